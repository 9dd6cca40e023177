"""What rows were at a moment, for documents that show them as they were: all versions that the log has, in a file.

Postgres keeps no former rows, so the log is all that there is to compare with; it is read once more, apart from the
engine: no row store, no batches, no order of arrival. A row of before the oldest version that is known is taken for
that version, unless the log has its creation (docs/as-of-joins.md).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from cdc.catalogue import Column, Table
from cdc.join.tree import Node
from cdc.keys import document_id
from cdc.scratch import scratch_folder
from cdc.types import REFUSALS
from cdc.types.times import days_of
from truth.events.logged import PREFIX, Reader, scratch

# What has become of a row; the last one is a delete that was found out by reading.
CREATED, DELETED, READ, MISSED = "c", "d", "r", "missed"
_JSON = ("json", "jsonb")
# SQLite's integers end a little before Postgres's moments.
_LATEST = (1 << 63) - 1
# Years as Postgres has them: before 1 and after 9999 too.
_MOMENT = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?Z?")
_TABLE = "version (name TEXT, key TEXT, since INT, at INT, op TEXT, row BLOB)"
_INDEX = "CREATE INDEX by_time ON version (name, key, since, at)"
_OF = "SELECT since, op, row, at FROM version WHERE name = ? AND key = ?"
_WERE_READ = f"('{READ}', '{MISSED}')"
_BEFORE = f"{_OF} AND since <= ? AND op NOT IN {_WERE_READ} ORDER BY since DESC, at DESC LIMIT 1"
# What was read is dated when it was told: of changes that came meanwhile the log says that they are newer.
_READ = f"{_OF} AND since <= ? AND op IN {_WERE_READ} AND since >= ? AND at > ? ORDER BY at DESC LIMIT 1"
_FIRST = f"{_OF} ORDER BY since, at LIMIT 1"


class Logged(NamedTuple):
    """A change as the log has it.

    Attributes:
        table: ``schema.table``.
        offset: in its partition, in which all changes of a row are.
        ts_ms: when it was committed.
        op: Debezium's letter, or ``MISSED``.
        key: primary key column -> raw value.
        row: column -> raw value; None of a deletion.
    """

    table: str
    offset: int
    ts_ms: int
    op: str
    key: Mapping[str, Any]
    row: Mapping[str, Any] | None


Versions = Callable[[], Iterable[Logged]]


class History:
    """All versions of some tables' rows.

    Args:
        store: where they are.
        tables: ``schema.table`` -> table.
    """

    def __init__(self, store: sqlite3.Connection, tables: Mapping[str, Table]) -> None:
        self._store, self._tables = store, tables

    def shown(self, table: str, key: Sequence[Any], moment: Any, names: Collection[str]) -> list[Any] | None:
        """A row as it was.

        Args:
            table: ``schema.table``.
            key: canonical values of its primary key.
            moment: canonical text of a timestamp; None for NULL.
            names: columns.

        Returns:
            the columns' canonical values; None if there was no such row.
        """
        at = _micros(moment)
        if at is None or any(value is None for value in key):
            return None
        named = (table, document_id(list(key)))
        changed = self._store.execute(_BEFORE, (*named, at)).fetchone()
        since, behind = (changed[0], changed[3]) if changed else (0, -1)
        read = self._store.execute(_READ, (*named, at, since, behind)).fetchone()
        found = read or changed or self._store.execute(_FIRST, named).fetchone()
        if found is None or found[1] in (DELETED, MISSED) or (found[1] == CREATED and found[0] > at):
            return None
        row, by_name = orjson.loads(found[2]), self._tables[table].by_name
        return [_canonical(by_name[name], row.get(name)) for name in names]


def _kept(value: Any) -> Any:
    """A value for the file: JSON as the text that it is, which may be more than a reader takes."""
    if isinstance(value, list):
        return [_kept(item) for item in value]
    return orjson.dumps(value).decode() if isinstance(value, orjson.Fragment) else value


def _canonical(column: Column, value: Any) -> Any:
    """The other way round."""
    if value is None or column.base_type not in _JSON:
        return value
    return [_canonical(column, item) for item in value] if isinstance(value, list) else orjson.Fragment(value)


def _micros(moment: Any) -> int | None:
    """Microseconds since 1970; None for what is no moment."""
    found = _MOMENT.fullmatch(str(moment))
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    seconds = days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
    return min(seconds * 1_000_000 + int((found[7] or "").ljust(6, "0")), _LATEST)


@contextmanager
def history(
    root: Node, used: Mapping[str, Collection[str]], read: Versions, folder: Path | None = None
) -> Iterator[History]:
    """All versions of the tables that a tree shows as they were.

    Args:
        root: the tree.
        used: ``schema.table`` -> its columns that will be asked for (``truth.joins.used_columns``).
        read: reads the log from its beginning; what it raises is raised here.
        folder: where versions wait; None for where temporary files lie.
    """
    tables = {name: table for name, table in root.tables().items() if name in root.versioned()}
    with (
        scratch_folder(PREFIX, folder) as own,
        scratch(own / "versions", _TABLE) as store,
    ):
        store.executemany("INSERT INTO version VALUES (?, ?, ?, ?, ?, ?)", _rows(tables, used, read))
        store.execute(_INDEX)
        yield History(store, tables)


def _rows(
    tables: Mapping[str, Table], used: Mapping[str, Collection[str]], read: Versions
) -> Iterator[tuple[Any, ...]]:
    readers = {name: Reader(table, {*table.primary_key, *used[name]}) for name, table in tables.items()}
    for one in read():
        made = readers[one.table]
        try:
            key = document_id([made.value(name, one.key[name]) for name in tables[one.table].primary_key])
            row = one.row and made(one.row)
        except REFUSALS:  # a dead letter, which is in no document
            continue
        kept = row and {name: _kept(value) for name, value in row.items()}
        yield one.table, key, one.ts_ms * 1000, one.offset, one.op, orjson.dumps(kept)
