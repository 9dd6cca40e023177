"""About how many rows a table has, by the server's statistics."""

from __future__ import annotations

import pytest

from connectors.foreign_keys import read_sizes
from tests.support.source import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.sampled(turn=2, of=4)]


def test_rows_of_a_partitioned_table_are_counted_once(source: SourceDatabase) -> None:
    """ANALYZE keeps statistics of each partition and of their root: the sum of all would be the double."""
    source.execute(
        "CREATE TABLE part (id int, d int, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)",
        "CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (100) TO (1000) PARTITION BY RANGE (d)",
        "CREATE TABLE part21 PARTITION OF part2 FOR VALUES FROM (100) TO (1000)",
        "CREATE TABLE whole (id int PRIMARY KEY)",
        "INSERT INTO part SELECT n, n FROM generate_series(1, 500) n",
        "INSERT INTO whole SELECT n FROM generate_series(1, 300) n",
        "ANALYZE",
    )
    with source.connect() as connection:
        assert read_sizes(connection, ["public.part", "public.whole"]).rows == {"public.part": 500, "public.whole": 300}
