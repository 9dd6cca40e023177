"""The dbt example without dbt: its macro reads a cut as the product does, and its files fit the pipeline."""

from __future__ import annotations

import random
import re
import runpy
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import duckdb
import jinja2
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from ruamel.yaml import YAML

from cdc.pipeline import load
from cdc.records.history import as_of_sql
from tests.support.analysed import HERE
from tests.unit.project.test_docs import ROOT

PROJECT = HERE / "project"
COLUMNS = "id int, part int, a text, _hw_op text, _hw_position bigint, _hw_after bigint, _hw_offset bigint"


def macro(cut: int) -> str:
    """What ``as_of`` renders for a table of two key columns."""

    text = (PROJECT / "macros/cuts.sql").read_text()
    known = "{% macro cut_of(table, name) %}" + str(cut) + "{% endmacro %}"
    text = re.sub(r"\{% macro cut_of.*?endmacro %\}", known, text, flags=re.DOTALL)
    template = jinja2.Environment(extensions=["jinja2.ext.do"]).from_string(text)
    module: Any = template.make_module({"source": lambda _, name: name})
    return str(module.as_of("t", ["id", "part"], "monday"))


def test_a_cut_is_read_as_the_product_reads_it() -> None:
    rng = random.Random(3)
    words = ("read", "insert", "update", "delete")
    rows = [
        (rng.randint(1, 5), rng.randint(1, 3), str(n), rng.choice(words), rng.randint(1, 40), n, n) for n in range(200)
    ]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t_history ({COLUMNS})")
        connection.executemany("INSERT INTO t_history VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        for cut in (0, 1, 17, 90, 200):
            ours = connection.execute(as_of_sql(["id", "part", "a"], ["id", "part"], "t_history", cut)).fetchall()
            theirs = connection.execute(f"SELECT * FROM {macro(cut)}").fetchall()
            assert sorted(theirs) == sorted(ours)
            assert bool(ours) == (cut > 0)


# Instead of Python: an environment whose `activate` does what the real one does.
PYTHON = """#!/bin/sh
mkdir -p dbt/bin
echo "PATH=$PWD/dbt/bin:\\$PATH" > dbt/bin/activate
for program in pip dbt; do printf '#!/bin/sh\\necho %s $1\\n' $program > dbt/bin/$program; done
chmod +x dbt/bin/pip dbt/bin/dbt
"""


def test_an_environment_of_ones_own_finds_its_dbt(tmp_path: Path) -> None:
    told = (HERE / "README.md").read_text().partition("In an environment of your own:\n\n")[2].partition("\n\n")[0]
    (tmp_path / "examples/analytics/project").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    command = ["sh", "-ec", told]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "pip install\ndbt build\n", "")


def rendered(path: str, **known: Any) -> Any:
    """A file of the project, with what dbt would know of it."""
    text = (PROJECT / path).read_text()
    given = {"source": lambda _, name: name, **known}
    return jinja2.Environment(extensions=["jinja2.ext.do"]).from_string(text).make_module(given)


def test_a_name_that_another_cut_has_now_is_reported_anew_and_what_it_was_goes() -> None:
    cuts = {"monday": "30::bigint", "tuesday": "20::bigint"}
    model = rendered(
        "models/marts/revenue_as_it_was.sql",
        config=lambda **_: "",
        this="report",
        is_incremental=lambda: True,
        held_cuts=lambda _: [["monday", "10::bigint"], ["tuesday", "20::bigint"], ["gone", "5::bigint"]],
        cut_names=lambda _: list(cuts),
        cut_of=lambda _, name: cuts[name],
        as_of=lambda table, *_: table,
    )
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT 1 AS order_id, 'paid' AS status, DATE '2026-10-01' AS ordered_on"
        )
        connection.execute("CREATE TABLE order_lines AS SELECT 1 AS order_id, 2 AS quantity, 5 AS price")
        anew = connection.execute(f"SELECT cut, cut_position, revenue FROM ({model})").fetchall()
        assert anew == [("monday", 30, 10)]
        connection.execute("CREATE TABLE _hw_cuts (history VARCHAR, name VARCHAR, cut BIGINT)")
        connection.execute(
            "INSERT INTO _hw_cuts VALUES ('orders_history', 'monday', 30), ('orders_history', 'tuesday', 20)"
        )
        connection.execute("CREATE TABLE report (cut VARCHAR, cut_position BIGINT)")
        connection.execute("INSERT INTO report VALUES ('monday', 10), ('tuesday', 20), ('gone', 5)")
        connection.execute(str(rendered("macros/cuts.sql").forget_moved("report", "orders")))
        assert connection.execute("SELECT cut FROM report ORDER BY cut").fetchall() == [("gone",), ("tuesday",)]


def test_a_history_that_begins_anew_is_gained_whole_and_what_was_taken_stays() -> None:
    """Its topic was made anew: its offsets begin with 0 again, and all up to the former one's were skipped."""
    columns = "order_id INT, _hw_op VARCHAR, status VARCHAR, total INT, _hw_commit_time TIMESTAMP, _hw_tx BIGINT"

    def gained(*, first: bool = False) -> list[tuple[Any, ...]]:
        known: dict[str, Any] = {"config": lambda **_: "", "refuse_without": lambda *_: "", "this": "report"}
        model = rendered("models/marts/order_events.sql", is_incremental=lambda: not first, **known)
        connection.execute(f"CREATE TABLE report AS {model}" if first else f"INSERT INTO report BY NAME {model}")
        return connection.execute("SELECT history, part, place FROM report ORDER BY ALL").fetchall()

    def happened(*places: tuple[int, int]) -> None:
        connection.executemany("INSERT INTO orders_history VALUES (1, 'read', 'paid', 5, NULL, 7, ?, ?)", places)

    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE orders_history ({columns}, _hw_partition INT, _hw_offset BIGINT)")
        connection.execute("CREATE TABLE _hw_tables AS SELECT 'orders_history' AS name, 'a' AS uuid")
        happened((0, 0), (0, 1), (1, 0))
        former = [("a", 0, 0), ("a", 0, 1), ("a", 1, 0)]
        assert gained(first=True) == gained() == former
        happened((1, 1))
        former.append(("a", 1, 1))
        assert gained() == former
        connection.execute("DELETE FROM orders_history")
        connection.execute("UPDATE _hw_tables SET uuid = 'b'")
        happened((0, 0), (1, 0))
        assert gained() == gained() == [*former, ("b", 0, 0), ("b", 1, 0)]
        ids = connection.execute("SELECT count(*), count(DISTINCT event_id) FROM report").fetchone()
        assert ids == (6, 6)


def test_the_plugin_tells_a_table_from_another_one_that_got_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbt = ModuleType("dbt.adapters.duckdb.plugins")
    dbt.BasePlugin = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, dbt.__name__, dbt)
    plugin = runpy.run_path(str(PROJECT / "headwater_warehouse.py"))["Plugin"](creds=None)
    there = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    plugin.initialize({"catalog": "hw_warehouse", "namespace": "analytics", **there})
    told = []
    with closing(SqlCatalog("hw_warehouse", **there)) as catalog, duckdb.connect() as connection:
        catalog.create_namespace("analytics")
        for name in ("orders_history_by_id", None):
            made = catalog.create_table(("analytics", "orders_history"), pa.schema({"id": pa.int32()}))
            plugin.configure_connection(connection)
            asked = "SELECT uuid FROM warehouse._hw_tables WHERE name = 'orders_history'"
            told.append((connection.execute(asked).fetchall(), [(str(made.metadata.table_uuid),)]))
            if name is not None:
                catalog.rename_table(("analytics", "orders_history"), ("analytics", name))
    assert told[0][0] == told[0][1] and told[1][0] == told[1][1] and told[0] != told[1]


def test_the_sources_are_what_the_pipeline_keeps() -> None:
    nowhere = {"HEADWATER_SOURCE_PASSWORD": "x", "HEADWATER_SETUP_PASSWORD": "x"}
    sink = load(HERE / "pipeline.yaml", nowhere).sinks["warehouse"]
    views = set(sink.view_names)
    [source] = YAML(typ="safe").load((PROJECT / "models/sources.yml").read_text())["sources"]
    named = {table["name"] for table in source["tables"]}
    assert named == views | {"orders_history", "order_lines_history", "_hw_cuts", "_hw_tables"}
    profile = YAML(typ="safe").load((PROJECT / "profiles.yml").read_text())["analytics"]["outputs"]["local"]
    [plugin] = profile["plugins"]
    assert "'hw_warehouse'" in plugin["config"]["catalog"] and "'analytics'" in plugin["config"]["namespace"]


def test_dbt_has_the_duckdb_that_we_test_and_nothing_of_it_is_ours() -> None:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["query"]
    locked = (HERE / "dbt.lock").read_text()
    assert all(f"{one} \\" in locked for one in ours)
    assert "dbt-" not in (ROOT / "requirements.lock").read_text()
