"""SQL over the warehouse while nothing follows the log: with its tail a query shows what Postgres has."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from headwater_client import take_token

from cdc.errors import QueryRefused, QueryTooLarge, TooLate
from cdc.pipeline import load
from cdc.records.position import parse_lsn
from cdc.token import parse_token
from operations.query import log as beside
from operations.query import tail
from operations.query.query import Answer, Queries
from operations.state.folder import register_of
from spark.disk.state import UNREAD
from spark.unread import Mark, Unread
from tests.support.local import ready
from tests.support.migrating import Migrating

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

CHANGES = (
    "UPDATE things SET a = 'new a', n = -1, price = 12.50 WHERE id IN (1, 2, 3)",
    "UPDATE things SET n = -2 WHERE id = 3",
    "DELETE FROM things WHERE id BETWEEN 10 AND 19",
    "INSERT INTO things (id, a, at) VALUES (500, 'made', timestamp '2031-02-03 04:05:06.7')",
    "INSERT INTO things (id, a) VALUES (501, 'short')",
    "DELETE FROM things WHERE id = 501",
    "UPDATE things SET id = 700 WHERE id = 20",
    "DELETE FROM things WHERE id = 21",
    "INSERT INTO things (id, a) VALUES (21, 'again')",
)


class Warehouse(Migrating):
    """One warehouse with a plain view, and one that needs Spark."""

    def kinds(self) -> dict[str, dict[str, Any]]:
        kinds = super().kinds()
        kinds["warehouse"]["views"] = [self.view("thing"), self.view("doubled")]
        return kinds


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    views = {
        "thing": {"root": "things"},
        "doubled": {"root": "things", "columns": ["id"], "fields": {"twice": "n * 2"}},
    }
    made = Warehouse(ready(), tmp_path_factory.mktemp("query"), sinks=("warehouse",), views=views)
    try:
        made.prepare()
        made.run("run", "--until-caught-up")
        yield made
    finally:
        made.close()


def opened(world: Warehouse) -> Queries:
    return Queries(load(world.file, world.environment()))


ASKED = 'SELECT id, a, n, price, "at", mood, code FROM {} ORDER BY id'


def truth(world: Warehouse) -> list[tuple[Any, ...]]:
    with psycopg.connect(world.conninfo) as connection:
        rows = connection.execute(ASKED.format("things").encode()).fetchall()
    texts = [[None if one is None else str(one) for one in row] for row in rows]
    return [
        (int(row[0] or 0), row[1], row[2] and int(row[2]), row[3], row[4] and iso(row[4]), *row[5:]) for row in texts
    ]


def iso(text: str) -> str:
    text = text.replace(" ", "T")
    return text.rstrip("0") if "." in text else text


def asked(queries: Queries, world: Warehouse, **options: Any) -> Answer:
    return queries.run(ASKED.format(world.view("thing")), **options)


def rows(answer: Answer) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in answer.found.rows]


def test_a_fresh_query_shows_what_was_committed_though_nothing_follows(
    world: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, before = opened(world), truth(world)
    try:
        with psycopg.connect(world.conninfo, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in CHANGES:
                cursor.execute(statement.encode())
            token = parse_token(take_token(cursor, world.name, after_commit=True) or "")
        now = truth(world)
        assert now != before
        fresh = asked(queries, world, at_least=token)
        assert rows(fresh) == now and fresh.fresh
        assert fresh.as_of.lsn is not None and fresh.as_of.lsn >= token.value
        [told] = fresh.tables
        assert told.tail is not None and told.tail.records >= len(CHANGES) and told.tail.letters == 0

        stood = asked(queries, world)
        assert rows(stood) == before and not stood.fresh
        assert stood.as_of.lsn is not None and stood.as_of.lsn < token.value, stood.as_of

        # A key that is asked for is looked for in both; a sum is over both.
        name = world.view("thing")
        assert queries.run(f"SELECT a FROM {name} WHERE id = 700", fresh=True).found.rows == [("a20",)]
        assert queries.run(f"SELECT a FROM {name} WHERE id IN (20, 12)", fresh=True).found.rows == []
        assert queries.run(f"SELECT sum(n) FROM {name}", fresh=True).found.rows == [(sum(row[2] or 0 for row in now),)]

        # What the table has already, read again from the log's beginning, changes nothing.
        with monkeypatch.context() as patched:
            patched.setattr(beside, "_applied", lambda *_: {})
            whole = asked(queries, world, fresh=True)
        assert rows(whole) == now
        assert whole.tables[0].tail is not None and whole.tables[0].tail.records > len(before)
        assert stood.tables[0].held == replace(whole.tables[0].held, applied=stood.tables[0].held.applied)

        with pytest.raises(QueryRefused, match="has Spark SQL"):
            queries.run(f"FROM {world.view('doubled')}", fresh=True)
        assert queries.run(f"SELECT count(*) FROM {world.view('doubled')}").found.rows == [(len(before),)]
        monkeypatch.setattr(tail, "MOST_RECORDS", 3)
        with pytest.raises(QueryTooLarge, match=r"records that .* lacks"):
            asked(queries, world, fresh=True)
    finally:
        queries.close()


def test_a_fresh_query_is_refused_as_run_would_be(world: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flow has not caught up for ten days, as it knows; the next record in the log knows more, if it is left."""
    queries, now = opened(world), truth(world)
    note = register_of(queries.pipeline, "warehouse").generation().flow_folder(world.view("thing")) / UNREAD
    before = note.read_text()
    try:
        assert rows(asked(queries, world, fresh=True)) == now
        note.write_text(Unread((Mark(-1, time.time() - 10 * 86400),)).to_json())
        assert rows(asked(queries, world, fresh=True)) == now  # the next record is there, and young
        monkeypatch.setattr(tail, "written_after", lambda *_: 0.0)  # it was compacted
        with pytest.raises(TooLate, match="remembers of deletes"):
            asked(queries, world, fresh=True)
        assert asked(queries, world).as_of.lsn is not None
        note.write_text(before)
        assert rows(asked(queries, world, fresh=True)) == now
    finally:
        note.write_text(before)
        queries.close()


def test_the_command_says_as_of_when_it_is(world: Warehouse) -> None:
    name = world.view("thing")
    words = ["query", str(world.file), f"SELECT id, a FROM {name} WHERE id = 500", "--fresh", "--json"]
    environment = world.environment()
    command = [sys.executable, "-m", "console.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert "as of LSN" not in done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == [[500, "made"]] and told["columns"][0] == {"name": "id", "type": "INTEGER"}
    assert parse_lsn(told["as_of"]["lsn"]) > 0 and told["fresh"] and not told["truncated"]
    [table] = told["tables"]
    assert table["name"] == name and table["tail"]["records"] > 0 and table["as_of"] == told["as_of"]
    listed = list(csv.reader(io.StringIO(world.run("query", "SHOW TABLES", "--csv"))))
    assert listed == [["name"], [world.view("doubled")], [name]]
    shown = world._call("query", [f"FROM {name} ORDER BY id", "--limit", "5"])
    assert " a5 " in shown.stdout and " a7 " not in shown.stdout
    assert "the first 5 rows" in shown.stderr and "as of LSN" in shown.stderr
    done = world._call("query", ["SELECT * FROM read_csv('/etc/passwd')"])
    assert done.returncode == 2 and "reaches beyond the warehouse" in done.stderr and "Traceback" not in done.stderr


def test_once_followed_the_table_is_what_the_fresh_query_was(world: Warehouse) -> None:
    world.run("run", "--until-caught-up")
    queries = opened(world)
    try:
        with psycopg.connect(world.conninfo, autocommit=True) as connection:
            token = parse_token(take_token(connection.cursor(), world.name, after_commit=True) or "")
        fresh = asked(queries, world, at_least=token)
        assert rows(asked(queries, world)) == rows(fresh) == truth(world)
        assert fresh.tables[0].tail is not None and fresh.tables[0].tail.records == 0
        stood = asked(queries, world)
        assert stood.as_of.lsn is not None and stood.as_of.lsn >= token.value
    finally:
        queries.close()
