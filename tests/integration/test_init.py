"""From a database to documents: `init` writes a file, and check, apply, run, verify and preview take it as it is."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from elasticsearch import Elasticsearch
from redis import Redis

from cdc.pipeline import load
from tests.support import inside
from tests.support.servers import Servers, servers
from tests.support.source import PATIENCE, SourceDatabase, eventually, source_database
from tests.support.twelve import TABLES, fill

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

EXAMPLES = Path(__file__).parents[2] / "examples"


# `init` keeps tables in a warehouse; this view besides, for what `preview` says of one.
LAKE = """
  lake:
    type: iceberg
    warehouse: ${{HEADWATER_HOME}}/lake
    catalog_uri: ${{HEADWATER_HOME}}/lake/catalog.db
    namespace: {p}
    trigger_seconds: 1
    views: [{p}_tag]
"""


@dataclass
class Begun:
    """A database, and a file that `init` has written for it."""

    stack: Servers
    database: SourceDatabase
    folder: Path
    said: str = ""

    @property
    def file(self) -> Path:
        return self.folder / "pipeline.yaml"

    @property
    def name(self) -> str:
        return self.database.name

    @property
    def url(self) -> str:
        at = f"{self.database.endpoints.postgres_host}:{self.database.endpoints.postgres_port}"
        return f"postgres://{self.database.owner}:{self.database.password}@{at}/{self.name}"

    def environment(self) -> dict[str, str]:
        words = dict.fromkeys(("HEADWATER_SOURCE_PASSWORD", "HEADWATER_SETUP_PASSWORD"), self.database.password)
        home = {"HEADWATER_HOME": str(self.folder)}  # of state and warehouse, not of the servers
        return {**os.environ, **self.stack.endpoints.environment(), **words, **home}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return inside.call(words, self.environment())

    def good(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = self.call(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def init(self, *options: str) -> subprocess.CompletedProcess[str]:
        done = self.good(
            "init", self.url, "--yes", "--out", str(self.file), "--user", self.database.replicator, *options
        )
        self.said = done.stderr
        return done

    def json(self, *words: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
        done = self.call(*words, "--json")
        assert done.returncode in ok, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    """Twelve tables, their file, captured and kept in an index and a cache; nothing runs any more."""
    stack = servers()
    stack.up()
    with source_database(stack.endpoints) as database:
        with database.connect() as connection:
            fill(connection, f"{database.name}_")
        made = Begun(stack, database, tmp_path_factory.mktemp("init"))
        made.init("--sink", "elasticsearch", "--sink", "redis")
        made.file.write_text(made.file.read_text().replace("sinks:\n", "sinks:\n" + LAKE.format(p=database.name), 1))
        try:
            made.good("check", str(made.file))
            made.good("apply", str(made.file), "--wait")
            run = [sys.executable, "-m", "console.cli", "run", str(made.file), "--until-caught-up", "--timeout", "300"]
            done = subprocess.run(run, env=made.environment(), capture_output=True, text=True, check=False, timeout=500)
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
            yield made
        finally:
            made.call("drop", str(made.file), "--topics", "--yes")


def test_what_was_written_equals_postgres(begun: Begun) -> None:
    report = begun.json("verify", str(begun.file))
    assert report["equal"]
    rows = {(sink["sink"], view["view"]): view["expected"] for sink in report["sinks"] for view in sink["views"]}
    assert rows["cache", f"{begun.name}_order"] == 60 and rows["search", f"{begun.name}_customer"] == 20


def test_documents_are_those_that_a_person_would_have_asked_for(begun: Begun) -> None:
    p = begun.name
    with Redis.from_url(begun.stack.endpoints.redis_cache_url) as redis:
        order = json.loads(redis.get(f"{p}:{p}_order:3") or b"{}")
        product = json.loads(redis.get(f"{p}:{p}_product:3") or b"{}")
    assert [item["line"] for item in order[f"{p}_OrderItems"]] == [1, 2, 3]
    assert order["customer"]["name"] == "customer 4" and "password_hash" not in order["customer"]
    assert {tag["word"] for tag in product["tags"]} == {"tag 3"}
    with Elasticsearch(begun.stack.endpoints.elasticsearch_url) as search:
        customer = search.get(index=f"{p}-{p}_customer", id="10")["_source"]
    assert "password_hash" not in customer and customer["country"]["name"] == "France"


def test_the_file_says_what_is_left_out_and_holds_no_password(begun: Begun) -> None:
    text, p = begun.file.read_text(), begun.name
    assert begun.database.password not in text + begun.said
    for left in (
        f"public.{p}_audit_log: has no primary key",
        f"public.{p}_sessions: is unlogged",
        "a view: its changes",
    ):
        assert left in begun.said.replace("\n", " ")
        assert left in " ".join(line.removeprefix("#").strip() for line in text.splitlines())
    pipeline = load(begun.file, begun.environment())
    assert set(pipeline.source.tables) == {f"public.{p}_{name}" for name in TABLES}
    assert (pipeline.source.user, pipeline.source.setup_user) == (begun.database.replicator, begun.database.owner)
    # A table between two others, and the lines of orders, are in the documents of others.
    assert {f"{p}_product_tag", f"{p}_order_item"}.isdisjoint(pipeline.views)


def test_a_file_that_is_there_is_left_alone(begun: Begun) -> None:
    before = begun.file.read_bytes()
    done = begun.call("init", begun.url, "--yes", "--out", str(begun.file))
    assert done.returncode == 1 and "is there already" in done.stderr
    assert begun.file.read_bytes() == before


def test_only_some_tables_and_the_report(begun: Begun, tmp_path: Path) -> None:
    file, p = tmp_path / "some.yaml", begun.name
    options = (
        "--yes",
        "--out",
        str(file),
        "--tables",
        f"{p}_order*",
        "--tables",
        f"public.{p}_customers",
        "--name",
        "few",
    )
    report = begun.json("init", begun.url, *options)
    assert {one["table"] for one in report["tables"]} == {f"public.{p}_orders", f"public.{p}_customers"}
    assert any("not captured" in one["why"] for one in report["left_out"])
    assert report["name"] == "few" and load(file, begun.environment()).name == "few"
    done = begun.call("init", begun.url, "--yes", "--out", str(tmp_path / "none.yaml"), "--tables", f"{p}_ordr")
    assert done.returncode == 1 and f"{p}_orders" in done.stderr and not (tmp_path / "none.yaml").exists()


def test_in_a_terminal_it_asks_for_what_is_not_said(begun: Begun, tmp_path: Path) -> None:
    file, p = tmp_path / "asked.yaml", begun.name
    bare = begun.url.replace(f":{begun.database.password}@", "@")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "console.cli", "init", bare, "--out", str(file)]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    running = subprocess.Popen(words, env=begun.environment(), **streams, start_new_session=True)
    os.close(theirs)
    said = ""
    try:
        answers = {
            "Password of": begun.database.password,
            "Which tables?": f"{p}_tags {p}_products",
            "Where to?": "redis",
            "Name of the pipeline": "asked",
        }
        for question, answer in answers.items():
            said += told_until(ours, question)
            # What is typed before the terminal has gone silent is thrown away, and shown.
            assert question != "Password of" or eventually(lambda: not termios.tcgetattr(ours)[3] & termios.ECHO)
            os.write(ours, answer.encode() + b"\n")
        said += told_until(ours, "written:")
        assert running.wait(60) == 0, said
    finally:
        running.kill()
        running.wait(30)
        os.close(ours)
    pipeline = load(file, begun.environment())
    assert pipeline.name == "asked" and set(pipeline.source.tables) == {f"public.{p}_tags", f"public.{p}_products"}
    assert [part.type for part in pipeline.sinks.values()] == ["redis"]
    assert begun.database.password not in said + file.read_text()


def told_until(terminal: int, words: str) -> str:
    """What a program says up to some words."""
    said, until = "", time.monotonic() + 30 * PATIENCE
    while words not in said:
        assert time.monotonic() < until, said
        if select.select([terminal], [], [], 0.5)[0]:
            said += os.read(terminal, 65_536).decode()
    return said


def test_without_a_password_it_says_what_to_do(begun: Begun, tmp_path: Path) -> None:
    bare = begun.url.replace(f":{begun.database.password}@", "@")
    done = begun.call("init", bare, "--out", str(tmp_path / "none.yaml"))
    assert done.returncode == 1 and "PGPASSWORD" in done.stderr
    wrong = begun.url.replace(begun.database.password, "guessed")
    done = begun.call("init", wrong, "--out", str(tmp_path / "none.yaml"))
    assert done.returncode == 1 and "authentication failed" in done.stderr and "guessed" not in done.stderr


@pytest.mark.parametrize("example", ["dual_writes", "flights", "profiles", "shop", "social", "wiki"])
def test_the_examples_tables_get_a_file_that_check_takes(example: str, tmp_path: Path) -> None:
    stack = servers()
    stack.up()
    with source_database(stack.endpoints) as database:
        with database.connect("superuser") as connection:
            for extension in ("citext", "hstore"):
                if connection.execute("SELECT FROM pg_available_extensions WHERE name = %s", [extension]).fetchone():
                    connection.execute(f"CREATE EXTENSION {extension}")
        database.execute((EXAMPLES / example / "schema.sql").read_text())
        made = Begun(stack, database, tmp_path)
        made.init("--sink", "elasticsearch", "--sink", "redis", "--sink", "iceberg")
        report = made.json("check", str(made.file))
        assert report["ready"] and [one["state"] for one in report["checks"] if one["check"] == "views"] == ["ok"]


# -- preview, held against what the sinks have ------------------------------------------------------------------------


def changed(begun: Begun, folder: Path, old: str, new: str) -> Path:
    """The file with something else in it."""
    text = begun.file.read_text()
    assert old in text
    file = folder / "changed.yaml"
    file.write_text(text.replace(old, new, 1))
    return file


@pytest.mark.parametrize("sink", ["search", "cache", "lake"])
def test_an_unchanged_view_makes_what_the_sink_holds(begun: Begun, sink: str) -> None:
    for view in ("tag",) if sink == "lake" else ("order", "customer", "product", "tag"):
        report = begun.json("preview", str(begun.file), f"{begun.name}_{view}", "--diff", "--sink", sink)
        assert report["equal"] and report["compared"] >= 5 and report["documents"] == []


@pytest.mark.parametrize("sink", ["cache", "lake"])
def test_a_changed_view_is_held_against_the_living_generation(begun: Begun, tmp_path: Path, sink: str) -> None:
    p = begun.name
    root = f"    root: {p}_tags\n"
    view = f"{p}_tag"
    file = changed(begun, tmp_path, root, root + "    columns: [tag_id, {word: title}]\n")
    report = begun.json("preview", str(file), view, "--diff", "--sink", sink, ok=(2,))
    assert report["compared"] == 5 and len(report["documents"]) == 5
    page = (Path(__file__).parents[2] / "docs" / "json-output.md").read_text(encoding="utf-8")
    shown = json.loads(page.partition("\n## preview --diff\n")[2].partition("```json\n")[2].partition("```")[0])
    assert report.keys() == shown.keys()
    one = next(one for one in report["documents"] if one["key"] == "2")
    assert (one["change"], one["behind"]) == ("changed", False)
    assert one["fields"] == [
        {"change": "removed", "field": "word", "sink": "tag 2"},
        {"change": "added", "field": "title", "file": "tag 2"},
    ]
    said = begun.call("preview", str(file), view, "2", "--diff", "--sink", sink)
    assert said.returncode == 2 and '- word: "tag 2"' in said.stdout and '+ title: "tag 2"' in said.stdout


def test_documents_that_come_and_go_and_a_sink_that_is_behind(begun: Begun, tmp_path: Path) -> None:
    p = begun.name
    root = f"    root: {p}_tags\n"
    file = changed(begun, tmp_path, root, root + '    where: "tag_id < 3"\n')
    begun.database.execute(
        f"INSERT INTO {p}_tags VALUES (0, 'new')", f"UPDATE {p}_tags SET word = 'other' WHERE tag_id = 1"
    )
    try:
        report = begun.json("preview", str(file), f"{p}_tag", "--diff", "--sink", "search", ok=(2,))
        found = {one["key"]: (one["change"], one["behind"]) for one in report["documents"]}
        gone = dict.fromkeys(("3", "4", "5"), ("removed", False))
        assert found == {"0": ("added", True), "1": ("changed", True), **gone}
        assert "leaves it out" in next(one["why"] for one in report["documents"] if one["key"] == "3")
    finally:
        begun.database.execute(
            f"DELETE FROM {p}_tags WHERE tag_id = 0", f"UPDATE {p}_tags SET word = 'tag 1' WHERE tag_id = 1"
        )


def test_a_view_that_the_sink_does_not_have_yet_is_new(begun: Begun, tmp_path: Path) -> None:
    p = begun.name
    file = changed(begun, tmp_path, "views:\n", f"views:\n  {p}_word:\n    root: {p}_tags\n")
    text = file.read_text()
    file.write_text(text.replace(f"{p}_tag]", f"{p}_tag, {p}_word]"))
    report = begun.json("preview", str(file), f"{p}_word", "--diff", "--sink", "cache", ok=(2,))
    assert report["new"] and {one["change"] for one in report["documents"]} == {"added"}


def test_which_sink_is_said_when_several_keep_the_view(begun: Begun) -> None:
    done = begun.call("preview", str(begun.file), f"{begun.name}_tag", "--diff")
    assert done.returncode == 1 and "--sink search or --sink cache" in done.stderr
