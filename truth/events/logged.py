"""Events as the log has them, for views that are made of events: somebody else reads the log and hands them in."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from cdc import types
from cdc.catalogue import Table
from cdc.keys import document_id
from cdc.used import used_columns
from cdc.view import View


class Event(NamedTuple):
    """An event as the log has it.

    Attributes:
        partition: of its topic; an aggregate's events are in one.
        offset: there.
        row: column -> raw value.
        again: an incremental snapshot has read it.
        topic: its topic.
        committed: when, ms since 1970; 0 if unknown.
        lost: no event, but that its partition has lost all that were committed before. These come first.
    """

    partition: int
    offset: int
    row: Mapping[str, Any]
    again: bool
    topic: str = ""
    committed: int = 0
    lost: bool = False


Events = Callable[[], Iterable[Event]]
# How folders are called in which events wait to be sorted; see ``cdc.scratch``.
PREFIX = "headwater-truth-"


class Reader:
    """Rows of the log as canonical values, under the names that their columns have now.

    Args:
        table: as it is now.
        used: the columns that somebody looks at. The others are null: a value of one may be of a type that its column
            had once, of which its row is none the worse.
    """

    def __init__(self, table: Table, used: Collection[str]) -> None:
        self._columns = {one.name: types.json_converter(one) for one in table.columns if one.name in used}
        self._others = dict.fromkeys(name for name in table.by_name if name not in used)
        self._renamed = table.renamed
        self._moved = table.moved_rows

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Column -> canonical value, of all columns; JSON as ``orjson.Fragment``.

        Raises:
            cdc.types.REFUSALS: a value is not of its column's type: the row is a dead letter.
        """
        named = dict(row)
        if self._moved and (then := self._moved.get(frozenset(row))) is not None:
            named |= {name: None if there is None else row[there] for name, there in then.items()}
        else:
            for former, present in self._renamed:
                if former in row:
                    named.setdefault(present, row[former])
        return {**self._others, **{name: self.value(name, named.get(name)) for name in self._columns}}

    def value(self, name: str, raw: Any) -> Any:
        """As calling it, of one column that is used."""
        convert = self._columns[name]
        return raw if raw is None or convert is None else convert(raw)


def reader(view: View) -> Reader:
    """Of rows of a view's table."""
    return Reader(view.table, used_columns(view, view.table.qualified))


def canonical_row(row: Mapping[str, Any], read: Reader) -> dict[str, Any]:
    """Column -> canonical value; JSON stays the text that it is.

    Raises:
        cdc.types.REFUSALS: a value is not of its column's type: the event is a dead letter.
    """
    values = read(row)
    return {
        name: orjson.dumps(value).decode() if isinstance(value, orjson.Fragment) else value
        for name, value in values.items()
    }


def row_id(view: View, values: Mapping[str, Any]) -> str:
    """The id of an event's own row.

    Raises:
        ValueError: it has none: the event is a dead letter.
    """
    key = [values[name] for name in view.key]
    if None in key:
        raise ValueError("its row lacks its key")
    return document_id(key)


@contextmanager
def scratch(path: Path, table: str) -> Iterator[sqlite3.Connection]:
    """A file of rows to be sorted, which nobody needs after a crash.

    Args:
        path: of the file; also what SQLite sorts lies on disk.
        table: its table, as ``CREATE TABLE`` has it.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as store:
        store.execute("PRAGMA journal_mode = OFF")
        store.execute("PRAGMA synchronous = OFF")
        store.execute(f"CREATE TABLE {table}")
        store.execute("BEGIN")
        yield store
