"""What is read of a table's records before it is known what it means, whoever reads it.

A frame of what is *seen*: the place in the log, ``KEY``, and ``STATE`` with what a record in it has. ``LSN``: the
highest that it bears; ``ALONE``: it was streamed, and knows no commit before its own; ``TS``: when it was made, in ms;
``AFTER``: the row's raw values; ``ROWKEY``: the key's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdc.catalogue import Table
from cdc.join.expressions import quoted
from cdc.types.native import Native

# Of records: their key's bytes.
KEY = "_hw_key"
STATE, LSN, ALONE, TS, AFTER, ROWKEY = "_hw_state", "_hw_lsn", "_hw_alone", "_hw_ts", "_hw_after", "_hw_rowkey"
# Values of STATE: of an odd record nothing else is known; of a tombstone the key; of a delete all but the row.
IS_ODD, IS_GONE, IS_ENDED, IS_UPSERT = range(4)


@dataclass(frozen=True)
class RawTable:
    """How the records of a topic are read.

    Attributes:
        table: the topic's.
        columns: how its columns are, in its order.
        events: the records are events, whose rows have their own key (cdc/records/events.py).
    """

    table: Table
    columns: tuple[Native, ...]
    events: bool = False

    def row_ddl(self) -> str:
        """The columns of a row with the types of their raw values."""
        return _ddl(self.of_row())

    def key_ddl(self) -> str:
        """Likewise of its key."""
        return _ddl(self.of_key())

    def of_row(self) -> Iterator[tuple[str, Native]]:
        """The table's columns, in its order: name and how it is read."""
        return zip((column.name for column in self.table.columns), self.columns, strict=True)

    def of_key(self) -> Iterator[tuple[str, Native]]:
        """Likewise the key's, in the table's order."""
        keys = set(self.table.primary_key)
        return ((name, how) for name, how in self.of_row() if name in keys)


def _ddl(columns: Iterator[tuple[str, Native]]) -> str:
    return ", ".join(f"{quoted(name)} {how.raw}" for name, how in columns)


def all_of(conditions: list[str]) -> str:
    """A condition of SQL that asks for all of them."""
    return " AND ".join(f"({condition})" for condition in conditions)
