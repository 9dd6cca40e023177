"""What is seen of the tables does not wait for a migration that has locked one of them, or waits to; and changes of
captured tables are seen, those of others not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.database.sightings import look
from connectors.postgres import Connection
from connectors.tables.facts import read_facts, read_written
from connectors.tables.partitions import estimated_rows
from connectors.tables.shapes import fingerprint, read_shapes
from operations.overview.changes import counted
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack

TABLES, BOTH = ["public.*"], ["public.days", "public.slugs"]
LOOKS: dict[str, Callable[[Connection], Any]] = {
    "fingerprint": lambda connection: fingerprint(connection, TABLES),
    "sightings": lambda connection: look(connection, "none", BOTH).by_name,
    "rows": lambda connection: estimated_rows(connection, BOTH),
    "changes": lambda connection: counted(connection, BOTH),
    "facts": lambda connection: read_facts(connection, BOTH),
    "shapes": lambda connection: {
        name: (shape.table, shape.files, shape.leaves, shape.parts, shape.filled, shape.table.unique_keys)
        for name, shape in read_shapes(connection, TABLES)[1].items()
    },
}


def test_nothing_is_waited_for(source: SourceDatabase) -> None:
    source.execute(
        "CREATE TABLE slugs (id int PRIMARY KEY, slug text UNIQUE, live bool DEFAULT true, at date DEFAULT now())",
        "CREATE UNIQUE INDEX by_slug ON slugs (slug) WHERE live",
        "CREATE UNIQUE INDEX by_lower ON slugs (lower(slug))",
        "CREATE TABLE days (id int, day int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE days_1_1 PARTITION OF days_1 FOR VALUES FROM (0) TO (10)",
        "INSERT INTO days SELECT n, 1 FROM generate_series(0, 6) n",
        "INSERT INTO slugs VALUES (1, 'a')",
        "ANALYZE days, slugs",
    )
    with source.connect() as ours, source.connect() as migration:
        ours.execute("SET lock_timeout = '3s'")
        assert read_written(ours, BOTH) == {"public.slugs": ("at",)}
        before = {name: ask(ours) for name, ask in LOOKS.items()}
        assert [leaf for _, leaf, _ in before["shapes"]["public.days"][3]] == ["days_1_1"]
        assert before["rows"] == {"public.days": 7, "public.slugs": 1}
        assert before["facts"]["public.days"].partitions == ("public.days_1", "public.days_1_1")
        words = {one.name: one.reason for one in read_shapes(ours, TABLES)[0].tables["public.slugs"].not_unique}
        assert words == {"by_slug": "it is partial (WHERE live)", "by_lower": words["by_lower"]}
        assert "lower(slug)" in words["by_lower"]
        migration.execute("BEGIN")
        migration.execute("LOCK TABLE slugs, days, days_1, days_1_1 IN ACCESS EXCLUSIVE MODE")
        assert {name: ask(ours) for name, ask in LOOKS.items()} == before
        found = read_shapes(ours, TABLES)[0].tables["public.slugs"].not_unique
        assert {one.name: one.reason for one in found} == {
            "by_slug": "it is partial",
            "by_lower": "it is over an expression",
        }
        assert read_written(ours, BOTH) == {}
        assert ours.execute("SHOW lock_timeout").fetchone() == ("3s",)


SAME: tuple[str, ...] = (
    "ALTER TABLE other ADD v text",
    "CREATE TABLE more (id int)",
    "ALTER TABLE old ADD q int DEFAULT 3",
    "ALTER TABLE old DROP q",
)
ANOTHER: tuple[str, ...] = (
    "ALTER TABLE one ADD w int DEFAULT 3",
    "ALTER TABLE one ALTER w DROP DEFAULT",
    "ALTER TABLE one ALTER w TYPE bigint",
    "ALTER TABLE one RENAME w TO x",
    "ALTER TABLE one REPLICA IDENTITY FULL",
    "CREATE UNIQUE INDEX ON one (v)",
    "TRUNCATE one",
    "ALTER TABLE one RENAME TO gone",
    "ALTER TABLE gone RENAME TO one",
    "ALTER TABLE days ADD w int DEFAULT 5",
    "ALTER TABLE days ATTACH PARTITION old FOR VALUES FROM (20) TO (30)",
    "VACUUM FULL days_1",
    "ALTER TABLE days_1 RENAME TO days_one",
    "CREATE TABLE all_of.new (id int)",
    "DROP TABLE all_of.new",
)


def test_a_look_is_another_one_when_a_captured_table_is(source: SourceDatabase) -> None:
    source.execute(
        "CREATE SCHEMA all_of",
        "CREATE TABLE one (id int PRIMARY KEY, v text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE TABLE days (id int, day int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE old (id int NOT NULL, day int NOT NULL, w int)",
    )
    with source.connect() as ours:
        now = fingerprint(ours, ["public.one", "public.days", "all_of.*"])
        for statement in (*SAME, *ANOTHER):
            source.execute(statement)
            before, now = now, fingerprint(ours, ["public.one", "public.days", "all_of.*"])
            assert (now == before) == (statement in SAME), statement
