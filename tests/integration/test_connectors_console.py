"""The verbs check, plan and apply as a user calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from console.cli import apply, plan
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack

FILE = """
version: 1
name: {name}
source:
  host: {host}
  port: {port}
  database: {name}
  user: {user}
  password: "{password}"
  setup_user: {owner}
  setup_password: "{password}"
  tables: [{tables}]
kafka: {{bootstrap: "{kafka}"}}
connect: {{url: "{connect}"}}
views: {{t: {{root: public.t}}}}
sinks: {{cache: {{type: redis, url: "redis://127.0.0.1", view: t}}}}
"""


def written(source: SourceDatabase, folder: Path, tables: str) -> str:
    path = folder / "pipeline.yaml"
    path.write_text(source.filled_in(FILE, tables=tables))
    return str(path)


def run(command: object, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)  # type: ignore[arg-type]


def test_plan_tells_apply_does_and_plan_is_silent(source: SourceDatabase, tmp_path: Path) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 300)")
    source.pipeline("public.t")  # so that it is dropped at the end
    file = written(source, tmp_path, "public.t")
    told = run(plan.command, file)
    assert told.exit_code == 2
    assert f"+ connector        headwater-{source.name}" in told.output
    as_json = json.loads(run(plan.command, file, "--json").stdout)
    lines = [line for line in told.output.splitlines() if line.startswith("+")]
    grouped = [re.match(r"\+ [\w-]+ +(?:(\d+) (?:tables|topics|schemas): )?", line) for line in lines]
    assert len(as_json["changes"]) == sum(int(found[1] or 1) for found in grouped if found)
    done = run(apply.command, file, "--wait", "--json")
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert report["fresh"] is True
    assert report["changes"] == as_json["changes"]
    assert report["snapshot"] == {"public.t": {"rows": 300, "done": True}}
    again = run(plan.command, file)
    assert (again.exit_code, again.output) == (0, "nothing to change\n")
    assert "nothing to change" in run(apply.command, file).output
    assert source.password not in told.output + done.output


def test_table_that_is_not_there_is_named_with_its_place_in_the_file(source: SourceDatabase, tmp_path: Path) -> None:
    from cdc.errors import SourceError

    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    file = written(source, tmp_path, "public.t, public.nothing")
    line = next(n for n, text in enumerate(Path(file).read_text().splitlines(), 1) if "tables:" in text)
    with pytest.raises(SourceError, match=rf"^{file}:{line}:\d+: .*there is no table public\.nothing"):
        run(plan.command, file)
