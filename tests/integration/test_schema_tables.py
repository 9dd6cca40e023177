"""Whole tables come, go, change their keys, their names and their partitions while `run` goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.local import ready
from tests.support.migrating import VIEWS, Migrating, Rows

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200)]

# Each has the columns id and v, and a view of its own in the index.
NAMES = ("keyed", "typed", "anew", "one", "other", "away", "doomed")
MORE = (
    "".join(
        f"CREATE TABLE {name} (id int PRIMARY KEY, v text, code text NOT NULL UNIQUE);"
        f"INSERT INTO {name} SELECT i, '{name}', 'c' || i FROM generate_series(1, 50) i;"
        for name in NAMES
    )
    + """
CREATE TABLE days (id int, day date, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
INSERT INTO days SELECT i, '2026-01-05', 'january' FROM generate_series(1, 50) i;
CREATE SCHEMA more;
CREATE TABLE more.first (id int PRIMARY KEY, v text);
INSERT INTO more.first SELECT i, 'old' FROM generate_series(1, 50) i;
GRANT USAGE ON SCHEMA more TO headwater;
"""
)


class Tables(Migrating):
    """The cache holds what nothing happens to, the index a view of each other table, the warehouse every table.

    Attributes:
        let_go: tables that the file no longer names; what they had in the warehouse stays there, and is finished.
    """

    let_go: tuple[str, ...] = ()

    def kinds(self) -> dict[str, dict[str, Any]]:
        found = super().kinds()
        touched = [self.view(name) for name in self.views if name not in VIEWS]
        lake = {name: value for name, value in found["warehouse"].items() if name != "views"}
        return {
            "cache": found["cache"] | {"views": [self.view(name) for name in VIEWS]},
            "search": found["search"] | {"views": touched},
            "lake": lake | {"tables": "all"},
        }

    def readable(self, *, allowed: bool) -> None:
        super().readable(allowed=allowed)
        self.execute("GRANT SELECT ON ALL TABLES IN SCHEMA more TO headwater")

    def stopped(self, table: str) -> str:
        """Wait until what reads a table has stopped, and the cache goes on; why it has."""

        def found(report: dict[str, Any]) -> list[str]:
            errors = [
                flow["last_error"] or ""
                for sink in report["sinks"]
                for flow in sink["flows"]
                if flow["state"] == "failed"
            ]
            return [error for error in errors if f"table public.{table}" in error]

        report = self.wait(lambda report: bool(found(report)), 120)
        assert {one["sink"]: one["state"] for one in report["sinks"]}["cache"] == "running"
        return found(report)[0]

    def mended(self) -> None:
        """One command; the rest comes by itself."""
        self.run("apply", "--wait", "--yes")
        self.settles()
        self.assert_equal()

    def settles(self) -> None:
        """Wait until all runs that is not let go of, and nothing is under way."""
        self.wait(
            lambda report: (
                not report["evolving"]
                and not report["file"]["building"]
                and all(
                    flow["state"] == ("finished" if flow["flow"] in self.let_go else "running")
                    for sink in report["sinks"]
                    for flow in sink["flows"]
                )
            )
        )


@pytest.fixture(scope="module", params=["json", "avro"])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Tables]:
    stack = ready()
    stack.up(more=["registry"] if request.param == "avro" else ())
    views = {**VIEWS, **{name: {"root": name} for name in (*NAMES, "days")}}
    tables = Tables(
        stack,
        tmp_path_factory.mktemp("tables"),
        sinks=("cache", "search", "lake"),
        views=views,
        more=MORE,
        tables=[*(f"public.{name}" for name in (*NAMES, "days")), "more.*"],
        form=request.param,
    )
    with tables.running():
        yield tables


def test_another_replica_identity_changes_nothing(made: Tables) -> None:
    made.execute("ALTER TABLE keyed REPLICA IDENTITY FULL")
    made.execute("UPDATE keyed SET v = 'full' WHERE id < 10")
    made.execute("DELETE FROM keyed WHERE id = 50")
    made.execute("ALTER TABLE keyed REPLICA IDENTITY DEFAULT")
    made.execute("UPDATE keyed SET v = 'default' WHERE id < 5")
    made.settles()
    made.assert_equal()


def test_a_partition_that_is_attached_brings_its_rows(made: Tables) -> None:
    made.execute("CREATE TABLE days_2 (LIKE days INCLUDING ALL)")
    made.execute("INSERT INTO days_2 SELECT i, '2026-02-05', 'february' FROM generate_series(1, 40) i")
    made.execute("ALTER TABLE days ATTACH PARTITION days_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')")
    made.execute("UPDATE days SET v = 'changed' WHERE day = '2026-02-05' AND id < 10")
    made.wait(lambda report: "partition public.days_2 was added" in made.log(), 60)
    made.settles()
    made.assert_equal()
    assert len(made.in_elasticsearch("days")) == 90


def test_a_partition_that_is_dropped_takes_its_rows_with_it(made: Tables) -> None:
    made.execute("DROP TABLE days_1")
    made.wait(lambda report: "partition public.days_1 is gone" in made.log(), 60)
    made.settles()
    made.assert_equal()
    assert len(made.in_elasticsearch("days")) == 40


def test_a_new_table_of_a_schema_that_is_captured_whole(made: Tables) -> None:
    made.execute("CREATE TABLE more.second (id int PRIMARY KEY, v text)")
    made.execute("GRANT ALL ON more.second TO headwater")
    made.execute("INSERT INTO more.second SELECT i, 'at once' FROM generate_series(1, 30) i")
    made.wait(lambda report: any("second" in flow["flow"] for one in report["sinks"] for flow in one["flows"]), 120)
    made.execute("INSERT INTO more.second SELECT i, 'later' FROM generate_series(31, 60) i")
    made.settles()
    made.assert_equal()


def test_another_key(made: Tables) -> None:
    for turn in range(20):  # the former topic is longer than the one that takes its place
        made.execute(f"UPDATE keyed SET v = 'turn {turn}'")
    with Rows(made.conninfo):
        made.execute("ALTER TABLE keyed DROP CONSTRAINT keyed_pkey, ADD PRIMARY KEY (code)")
        made.execute("UPDATE keyed SET code = code || 'x' WHERE id < 20")
        made.execute("DELETE FROM keyed WHERE id > 45")
        assert "`headwater apply" in made.stopped("keyed"), made.log()
        made.run("apply", "--wait")
        made.execute("UPDATE keyed SET v = 'after' WHERE id < 30")
    made.settles()
    made.assert_equal()
    assert "c1x" in made.in_elasticsearch("keyed")


def test_another_type_of_the_key(made: Tables) -> None:
    """Documents under the ids of before stayed for ever, and no rebuild was equal."""
    with Rows(made.conninfo):
        made.execute("ALTER TABLE typed ALTER id TYPE uuid USING lpad(id::text, 32, '0')::uuid")
        made.execute("UPDATE typed SET v = 'typed' WHERE code < 'c2'")
        assert "`headwater apply" in made.stopped("typed"), made.log()
        made.run("apply", "--wait")
        made.execute("UPDATE typed SET v = 'after' WHERE code < 'c3'")
    made.settles()
    made.assert_equal()
    there = made.in_elasticsearch("typed")
    assert "5" not in there and f"00000000-0000-0000-0000-{5:012}" in there


def test_dropped_and_made_anew(made: Tables) -> None:
    made.execute("DROP TABLE anew")
    made.execute("CREATE TABLE anew (id int PRIMARY KEY, v text, code text)")
    made.execute("INSERT INTO anew SELECT i, 'anew' FROM generate_series(20, 90) i")
    assert "was dropped and made again" in made.stopped("anew")
    made.mended()


def test_two_that_are_swapped(made: Tables) -> None:
    made.execute(
        "BEGIN; ALTER TABLE one RENAME TO x; ALTER TABLE other RENAME TO one; ALTER TABLE x RENAME TO other; COMMIT"
    )
    made.execute("DELETE FROM one WHERE id > 40")
    assert "another table has its name" in made.stopped("one")
    made.mended()


def test_renamed_and_named_again(made: Tables) -> None:
    made.execute("ALTER TABLE away RENAME TO elsewhere")
    made.execute("UPDATE elsewhere SET v = 'elsewhere' WHERE id < 9")
    assert "was renamed to public.elsewhere" in made.stopped("away")
    made.execute("ALTER TABLE elsewhere RENAME TO away")
    made.mended()


def test_dropped_for_good(made: Tables) -> None:
    made.execute("DROP TABLE doomed")
    assert "was dropped" in made.stopped("doomed")
    time.sleep(3)
    yaml = YAML()
    document = yaml.load(made.file.read_text())
    document["source"]["tables"].remove("public.doomed")
    del document["views"][made.view("doomed")]
    document["sinks"]["search"]["views"].remove(made.view("doomed"))
    with made.file.open("w") as out:
        yaml.dump(document, out)
    made.let_go = ("doomed",)
    made.mended()
