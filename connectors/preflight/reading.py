"""Has the Connect worker's memory room for the rows that are read at a time?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdc.pipeline import Pipeline
from cdc.sizes import size_words
from connectors.debezium import CHUNK_ROWS, LEAST_CHUNK_ROWS, READING_OPTIONS, rows_at_once
from connectors.postgres import unless_locked
from connectors.preflight.gathered import some
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.tables.partitions import over_trees

MIB = 2**20
# What a heap of 1 GB, that of the local stack and of our image, has room for beside the queue; and what is proposed: a
# value may be compressed in Postgres, and is not in the worker.
MOST, PROPOSED = 256 * MIB, 64 * MIB
# What a row has in its table's own file is on one page, however many dead rows are around it.
PAGE = 8_192

# Each table's files: their bytes with what is stored out of line (TOAST), those of its own file, and about how many
# rows are in them now. A table that nobody has analysed tells no rows. The size of a file waits for a lock.
FILES = over_trees("""
SELECT n.nspname || '.' || c.relname, pg_table_size(p.oid)::float8, pg_relation_size(p.oid)::float8,
       p.reltuples::float8 * pg_relation_size(p.oid) / (p.relpages * current_setting('block_size')::float8)
FROM tree t JOIN pg_class c ON c.oid = t.root JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'r' AND p.reltuples > 0 AND p.relpages > 0
""")


@dataclass(frozen=True)
class File:
    """The rows of a table, or of one of its partitions.

    Attributes:
        table: ``schema.table``, of a partition that of its root.
        bytes: of all of them, with what is stored out of line.
        own: of these, the bytes of the table's own file.
        rows: about how many there are.
    """

    table: str
    bytes: float
    own: float
    rows: float

    def row(self, largest: int) -> float:
        """Bytes of one of them. It has no more than ``largest``, and no more than a page in the table's own file,
        whatever dead rows add. Not by ``pg_stats.avg_width``, which takes a value out of line for its pointer."""
        return min(min(self.own / self.rows, PAGE) + (self.bytes - self.own) / self.rows, largest)

    def held(self, rows: int, largest: int) -> float:
        """Bytes of so many of them."""
        return self.row(largest) * min(rows, self.rows)

    def fitting(self, largest: int) -> int:
        """How many rows have ``PROPOSED`` bytes, as a power of two; no fewer than a chunk has at the least."""
        return max(1 << max(int(PROPOSED / self.row(largest)).bit_length() - 1, 0), LEAST_CHUNK_ROWS)


def run(site: Site) -> Iterator[Finding]:
    """The rows that are read at a time have no more than ``MOST`` bytes."""
    found = unless_locked(site.db, FILES, {"tables": sorted(site.catalogue.tables)})
    files = [File(*row) for row in found if row[1] and row[3]]
    pipeline, rows = site.pipeline, rows_at_once(site.pipeline)
    largest = pipeline.kafka.max_message_bytes
    if not (wide := [file for file in files if file.held(rows, largest) > MOST]):
        return
    most = max(wide, key=lambda file: file.held(rows, largest))
    tables = sorted({file.table for file in wide})
    message = (
        f"{rows:,} rows of {most.table} have some {size_words(most.held(rows, largest))} (by its size, in which deleted"
        " large values count until VACUUM FULL), which the Connect worker holds in memory when it reads the table: with"
        " a heap of 1 GB it ends, and again whenever a reading goes on"
    )
    if others := [table for table in tables if table != most.table]:
        message += f"; so it is with {some(others)}"
    fitting = min(file.fitting(largest) for file in wide)
    yield Finding(Level.WARNING, ", ".join(tables), message, _fix(wide, rows, fitting, largest, pipeline))


def _fix(wide: list[File], rows: int, fitting: int, largest: int, pipeline: Pipeline) -> str:
    fewer = f"set source.snapshot_fetch_size: {fitting}"
    if own := [name for name in READING_OPTIONS if name in pipeline.connect.options]:
        fewer += f", and take {' and '.join(own)} out of connect.options"
    if fitting < CHUNK_ROWS:
        fewer += f" (all tables are then read again {fitting} rows at a time, which takes longer)"
    memory = "give the worker's Java more memory (-Xmx)"
    least = max(file.held(fitting, largest) for file in wide)
    if least <= MOST:
        return f"{fewer}; or {memory}"
    memory += f": {fitting} rows, the fewest that are read again at a time, have some {size_words(least)}"
    return f"{memory}; and {fewer}" if rows > fitting else memory


CHECK = Check("reading", "the rows that are read at a time fit into memory", run, needs=("server", "tables"))
