"""Tables are migrated under a writer, and every sink follows by itself: see docs/schema-changes.md."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.local import ready
from tests.support.migrating import Migrating, Readers, Rows
from tests.support.migrations import MIGRATIONS, Migration

# Two generations are built one after the other where neither index nor warehouse can hold what comes.
pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0), pytest.mark.timeout(1200)]


@pytest.fixture(scope="module", params=["json", pytest.param("avro", marks=pytest.mark.slow)])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Migrating]:
    stack = ready()
    stack.up(more=["registry"] if request.param == "avro" else ())
    migrating = Migrating(stack, tmp_path_factory.mktemp("migrating"), form=request.param)
    with migrating.running():
        yield migrating


def noticed(migrating: Migrating, before: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """Whether the table's shape is another one than before."""
    return lambda shape: shape != before and bool(shape)


# In `make test` a few; all of them by `make test-schema`.
SOON = ("add a nullable column", "add a column with a constant default", "drop a column")
CASES = [
    pytest.param(one, marks=() if one.name in SOON else pytest.mark.slow, id=one.name.replace(" ", "-"))
    for one in MIGRATIONS
]


@pytest.mark.parametrize("migration", CASES)
def test_each_migration_under_a_writer(made: Migrating, migration: Migration) -> None:
    before = made.evolution()["acted"]["public.things"][0]
    with Rows(made.conninfo), Readers(made):
        time.sleep(0.5)
        for statement in migration.sql.split("; "):
            made.execute(statement)
        if migration.changes:
            made.migrated("public.things", noticed(made, before))
        time.sleep(2)
    made.assert_equal()
    assert {flow["state"] for flow in made.flows()} == {"running"}
    letters = json.loads(made.run("letters", "list", "--json"))  # also not one of before the look that has found it
    assert (letters["standing"], letters["other_generations"]) == (0, 0), letters
    if migration.undo:
        made.execute(migration.undo)
        made.wait(lambda report: not report["evolving"], 120)
        made.assert_equal()


def test_several_in_one_transaction_with_rows_between_and_one_that_is_rolled_back(made: Migrating) -> None:
    before = made.evolution()["acted"]["public.things"][0]
    with Rows(made.conninfo), psycopg.connect(made.conninfo) as connection:
        connection.execute("ALTER TABLE things ADD COLUMN never text DEFAULT 'x'")
        connection.execute("UPDATE things SET never = 'y' WHERE id < 20")
        connection.rollback()
        connection.execute("ALTER TABLE things ADD COLUMN one int DEFAULT 1")
        connection.execute("UPDATE things SET one = 2 WHERE id < 20")
        connection.execute("ALTER TABLE things RENAME COLUMN one TO two")
        connection.execute("INSERT INTO things (id, two) VALUES (5000, 3)")
        connection.commit()
        made.migrated("public.things", lambda shape: shape != before)
    made.assert_equal()
    assert not any(column["name"] == "never" for column in made.evolution()["acted"]["public.things"][0]["columns"])


def test_a_migration_while_nothing_runs(made: Migrating) -> None:
    before = made.evolution()["acted"]["public.things"][0]
    made.stop()
    made.execute("ALTER TABLE things ADD COLUMN asleep text DEFAULT 'zzz'")
    made.execute("UPDATE things SET spare = 'while it was down' WHERE id < 30")
    made.start()
    made.migrated("public.things", lambda shape: shape != before)
    made.assert_equal()


@pytest.mark.slow
def test_a_rebuild_from_offset_0_after_all_of_them_gives_the_same(made: Migrating) -> None:
    for sink in ("cache", "search"):
        report = json.loads(made.run("rebuild", sink, "--auto", "--json"))
        assert report["equal"] is True, report


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Migrating]:
    migrating = Migrating(ready(), tmp_path, policy="pause", sinks=("cache",), views={"thing": {"root": "things"}})
    with migrating.running():
        yield migrating


def test_pause_stops_what_is_concerned_until_apply(waiting: Migrating) -> None:
    waiting.execute("ALTER TABLE things ADD COLUMN note text DEFAULT 'n'")
    report = waiting.wait(lambda report: any(one["waits"] for one in report["evolving"]), 60)
    assert report["evolving"][0]["what"] == ["column note was added"]
    report = waiting.wait(lambda report: report["sinks"][0]["state"] == "failed", 60)
    assert "policy.schema is pause" in report["sinks"][0]["last_error"]
    planned = json.loads(waiting.run("plan", "--json", ok=(0, 2)))["tables"]
    assert planned[0]["views"][0]["verdict"] == "in place and read again"
    waiting.execute("UPDATE things SET spare = 'later' WHERE id < 20")
    waiting.run("apply")
    waiting.migrated("public.things", lambda shape: "note" in json.dumps(shape))
    waiting.wait(lambda report: report["sinks"][0]["state"] == "running", 60)
    waiting.assert_equal()


def test_two_tables_at_once_are_judged_one_by_one(tmp_path: Path) -> None:
    """The children's new values were null until the generation was shown that the root's new column needs."""
    parts = {"table": "parts", "on": {"id": "thing"}, "columns": ["id", "weight"]}
    views = {"tree": {"root": "things", "children": {"parts": parts}}}
    made = Migrating(ready(), tmp_path, sinks=("cache",), views=views)
    with made.running():
        made.execute(
            "BEGIN; ALTER TABLE parts ALTER weight TYPE bigint;"
            " ALTER TABLE things ADD COLUMN building text DEFAULT 'x';"
            " UPDATE parts SET weight = 3000000000 WHERE id = 1; COMMIT"
        )
        made.migrated("public.things", lambda shape: "building" in json.dumps(shape))
        made.migrated("public.parts", lambda shape: "bigint" in json.dumps(shape))
        made.assert_equal()
        said = made.log()
    first = f"generation 1, view {made.view('tree')}: "
    assert f"{first}new generation" in said, said
    assert f"{first}in place and read again" in said, said
