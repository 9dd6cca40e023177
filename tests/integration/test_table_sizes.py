"""About how many rows a table has, by the server's statistics."""

from __future__ import annotations

import pytest

from connectors import progress
from connectors.tables.foreign_keys import read_sizes
from tests.support.source import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.sampled(turn=2, of=4)]


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
        assert progress.total_rows(connection, "public.part") == 500  # counted: nobody has analysed it
        monkeypatch.setattr(progress, "COUNT_ROWS", 100)
        assert progress.total_rows(connection, "public.part") is None
        connection.execute("ANALYZE part21")  # 401 rows, and the other has less than would be counted
        assert progress.total_rows(connection, "public.part") == 401
        assert progress.total_rows(connection, "public.none") is None
