"""Events as the log has them, for views that are made of events: somebody else reads the log and hands them in."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from cdc import types
from cdc.keys import document_id
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
# What a view's column needs, to become a canonical value.
Converters = Mapping[str, "types.Converter | None"]


def converters(view: View) -> Converters:
    """Of all columns of a view's table."""
    return {column.name: types.json_converter(column) for column in view.table.columns}


def canonical_row(row: Mapping[str, Any], columns: Converters) -> dict[str, Any]:
    """Column -> canonical value; JSON stays the text that it is.

    Raises:
        ValueError, KeyError, TypeError: a value is not of its column's type: the event is a dead letter.
    """
    return {name: _value(row.get(name), convert) for name, convert in columns.items()}


def row_id(view: View, values: Mapping[str, Any]) -> str:
    """The id of an event's own row.

    Raises:
        ValueError: it has none: the event is a dead letter.
    """
    key = [values[name] for name in view.key]
    if None in key:
        raise ValueError("its row lacks its key")
    return document_id(key)


def _value(value: Any, convert: types.Converter | None) -> Any:
    found = value if value is None or convert is None else convert(value)
    return orjson.dumps(found).decode() if isinstance(found, orjson.Fragment) else found


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
