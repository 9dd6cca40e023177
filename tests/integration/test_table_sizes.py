"""What Postgres tells of tables: about how many rows they have, with partitions of every kind; their foreign keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from connectors.captured.captured import Captured
from connectors.captured.rewritten import rewritten
from connectors.database.sightings import Sighting, files_of, look
from connectors.snapshots import progress
from connectors.tables.facts import read_facts
from connectors.tables.foreign_keys import read_foreign_keys, read_sizes
from tests.support.source import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


PARTITIONED = (
    "CREATE TABLE part (id int, d int, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)",
    "CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (100) TO (1000) PARTITION BY RANGE (d)",
    "CREATE TABLE part21 PARTITION OF part2 FOR VALUES FROM (100) TO (1000)",
    "INSERT INTO part SELECT n, n FROM generate_series(1, 500) n",
)


def test_rows_of_a_partitioned_table_are_counted_once(source: SourceDatabase) -> None:
    """ANALYZE keeps statistics of each partition and of their root: the sum of all would be the double."""
    source.execute(
        *PARTITIONED,
        "CREATE TABLE whole (id int PRIMARY KEY)",
        "INSERT INTO whole SELECT n FROM generate_series(1, 300) n",
        "ANALYZE",
    )
    with source.connect() as connection:
        assert read_sizes(connection, ["public.part", "public.whole"]).rows == {"public.part": 500, "public.whole": 300}


def test_a_snapshot_counts_only_what_is_small_with_its_partitions(
    source: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root has no bytes and often no statistics of its own: a billion rows below it were counted one by one."""
    source.execute(*PARTITIONED)
    with source.connect() as connection:
        assert progress.total_rows(connection, "public.part") == (500, True)  # counted: nobody has analysed it
        monkeypatch.setattr(progress, "COUNT_ROWS", 100)
        assert progress.total_rows(connection, "public.part") is None
        connection.execute("ANALYZE part21")  # 401 rows, and the other has less than would be counted
        assert progress.total_rows(connection, "public.part") == (401, False)
        assert progress.total_rows(connection, "public.none") is None


def test_a_large_file_of_few_rows_is_not_read_to_count_them(
    source: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue whose rows are gone again is gigabytes; and what was analysed while it was small has grown since."""
    source.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY) WITH (autovacuum_enabled = false)" for name in ("queue", "grown")),
        "INSERT INTO queue SELECT generate_series(1, 5000)",
        "DELETE FROM queue WHERE id <= 4990",
        "INSERT INTO grown SELECT generate_series(1, 200)",
        "ANALYZE",
        "DELETE FROM queue WHERE id = 5000",
        "INSERT INTO grown SELECT generate_series(201, 5000)",
    )
    with source.connect() as connection:
        assert progress.total_rows(connection, "public.queue") == (9, True), "small enough to be counted"
        monkeypatch.setattr(progress, "COUNT_ROWS", 1_000)
        assert progress.total_rows(connection, "public.queue") == (10, False)
        grown = progress.total_rows(connection, "public.grown")
        assert grown is not None and 4_000 < grown.rows < 6_000 and grown.rows != 5_000


def test_partitions_that_log_nothing_are_told_of_at_every_depth(source: SourceDatabase) -> None:
    """Only a superuser makes a foreign server; and a table with a foreign partition has no key."""
    with source.connect("superuser") as connection, connection.transaction(force_rollback=True):
        for statement in (
            "CREATE TABLE of_kinds (id int NOT NULL, body text) PARTITION BY RANGE (id)",
            "CREATE UNLOGGED TABLE kind1 PARTITION OF of_kinds FOR VALUES FROM (0) TO (9)",
            "CREATE TABLE kind2 PARTITION OF of_kinds FOR VALUES FROM (10) TO (19)",
            "CREATE TABLE kind3 PARTITION OF of_kinds FOR VALUES FROM (20) TO (99) PARTITION BY RANGE (id)",
            "CREATE UNLOGGED TABLE kind31 PARTITION OF kind3 FOR VALUES FROM (20) TO (29)",
            "CREATE FOREIGN DATA WRAPPER elsewhere",
            "CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere",
            "CREATE FOREIGN TABLE kind32 PARTITION OF kind3 FOR VALUES FROM (30) TO (39) SERVER elsewhere",
        ):
            connection.execute(statement)
        fact = read_facts(connection, ["public.of_kinds"])["public.of_kinds"]
    assert fact.unlogged == ("public.kind1", "public.kind31") and fact.foreign == ("public.kind32",)
    assert fact.not_full == [f"public.{name}" for name in ("of_kinds", "kind1", "kind2", "kind3", "kind31")]


def test_a_foreign_key_over_periods_is_told_apart(source: SourceDatabase) -> None:
    with source.connect() as connection:
        new = connection.info.server_version >= 180000
        source.execute(
            "CREATE TABLE owners (id int PRIMARY KEY)",
            "CREATE TABLE owned (id int PRIMARY KEY, owner int REFERENCES owners)",
        )
        if new:
            source.execute(
                # Of a key of numbers it would need the extension btree_gist.
                "CREATE TABLE held (ids int4range, at daterange, PRIMARY KEY (ids, at WITHOUT OVERLAPS))",
                "CREATE TABLE within (id int PRIMARY KEY, ids int4range, at daterange,"
                " FOREIGN KEY (ids, PERIOD at) REFERENCES held (ids, PERIOD at))",
            )
        found = read_foreign_keys(connection, ["public.owned", *["public.within"] * new])
    assert [(key.table, key.period) for key in found] == [("public.owned", False), *[("public.within", True)] * new]


def test_tables_whose_rows_were_written_anew_are_told(source: SourceDatabase) -> None:
    """A first snapshot that had not read one of them by then finds it empty."""
    source.execute(*PARTITIONED, *(f"CREATE TABLE t{n} (id int PRIMARY KEY, v int DEFAULT 1)" for n in range(4)))
    tables = ["public.part", *(f"public.t{n}" for n in range(4))]
    with source.connect() as connection:
        then, seen = files_of(connection, tables), look(connection, "none", tables).by_name
        entries = [
            Captured(table, "initial", None, datetime.now(UTC), identity=replace(seen[table], files=then[table]))
            for table in tables
        ]
        assert rewritten(connection, entries) == set()
        source.execute(
            "ALTER TABLE t0 ALTER v TYPE bigint",
            "TRUNCATE t1",
            "ALTER TABLE t2 ADD COLUMN w int DEFAULT 2",  # no row is written
            "INSERT INTO t3 VALUES (1)",
            "ALTER TABLE part DETACH PARTITION part1",
        )
        assert rewritten(connection, entries) == {"public.part", "public.t0", "public.t1"}
        source.execute("DROP TABLE t0")  # that is told by others
        assert rewritten(connection, entries) == {"public.part", "public.t1"}
        older = [replace(entry, identity=Sighting.from_dict(seen[entry.table].to_dict())) for entry in entries]
        assert rewritten(connection, older) == set(), "what an older version has captured knows no files"
