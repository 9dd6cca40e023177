"""A world of tables that are written down in a few words, under a view of a pipeline file: tests/support/join_world.py
without its own tables.

    booking: id, user_id -> user unique, place_id -> place, note text

A column without a type is an int4, or what it points at; a table's key is what stands before the bar, or ``id``. No two
rows have one value of a ``unique`` column: who holds it already lets go of it in the same transaction, as in Postgres.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from cdc.catalogue import Catalogue, Column, Table
from cdc.join.incoming import RowMaker
from cdc.join.view import JoinedView
from cdc.pipeline import loads
from cdc.records.change import Change, Op
from cdc.resolve.views import resolve_view
from tests.support.join_world import Row, World

FILE = """\
version: 1
name: written
source: {{database: d, user: u, tables: [{tables}]}}
kafka: {{bootstrap: "localhost:9092"}}
connect: {{url: "http://localhost:8083"}}
row_store: {{url: "redis://h:6379/1"}}
views:
  v:
{view}
sinks:
  s: {{type: redis, url: "redis://h", view: v}}
"""
WORDS = ("red", "blue", "é", "", "a|b", "{}")
# How many rows of a table there may be whose key is its own.
ROWS = 4

Identity = tuple[Any, ...]


@dataclass(frozen=True)
class Written:
    """A table as it is written down.

    Attributes:
        table: as the catalogue has it.
        points: columns -> the table that they point at.
        unique: columns of which no two rows have one value.
    """

    table: Table
    points: dict[tuple[str, ...], str]
    unique: tuple[str, ...]

    @classmethod
    def read(cls, line: str) -> Written:
        """``name: column [type] [-> table] [unique], …``; several columns that point are joined with +."""
        name, _, rest = line.partition(":")
        schema, _, called = name.strip().rpartition(".")
        columns, key, points, unique = list[Column](), list[str](), dict[tuple[str, ...], str](), list[str]()
        keyed, bar, others = rest.partition("|")
        for part in [*keyed.split(","), *others.split(",")] if bar else rest.split(","):
            words = part.split()
            if not words:
                continue
            named = tuple(words[0].split("+"))
            kinds = dict(one.partition("=")[::2] for one in named)
            to = words[words.index("->") + 1] if "->" in words else None
            plain = words[1] if len(words) > 1 and words[1] not in ("->", "unique") else "int4"
            columns += [Column(one, kind or plain, kind or plain) for one, kind in kinds.items()]
            if to is not None:
                points[tuple(kinds)] = to
            unique += kinds if "unique" in words else ()
            key += kinds if bar and part in keyed.split(",") else ()
        found = Table(schema or "public", called, tuple(columns), tuple(key or ["id"]))
        return cls(found, points, tuple(unique))


def view_of(tables: Sequence[Written], view: str) -> JoinedView:
    """A view of a pipeline file, resolved against these tables."""
    names = ", ".join(one.table.qualified for one in tables)
    text = FILE.format(tables=names, view="\n".join(f"    {line}" for line in view.strip("\n").splitlines()))
    catalogue = Catalogue({one.table.qualified: one.table for one in tables})
    found = resolve_view(loads(text, "p.yaml", {}), catalogue, "v")
    assert isinstance(found, JoinedView)
    return found


class WrittenWorld(World):
    """Tables, their log, and random transactions in which nothing breaks a unique column.

    Args:
        tables: as they are written down, a line each.
        view: of the pipeline file, over them.
        parts: of each topic.
    """

    def __init__(self, tables: str, view: str, parts: int = 2) -> None:
        written = [Written.read(line) for line in tables.strip().splitlines()]
        self.written = {one.table.name: one for one in written}
        super().__init__(view_of(written, view), {name: {} for name in self.written}, parts=parts)

    def __post_init__(self) -> None:
        self.names = sorted(table.name for table in self.view.tree.tables().values())
        self.makers = {name: RowMaker(layout) for name, layout in self.view.layout.tables.items()}

    def put(self, name: str, /, **row: Any) -> None:
        """Write a row, whatever was there under its key; columns that are not said are NULL."""
        table = self.written[name].table
        whole = dict.fromkeys(table.by_name) | row
        key = tuple(whole[column] for column in table.primary_key)
        known = self.tables[name].get(key)  # type: ignore[call-overload]
        self.tables[name][key] = whole  # type: ignore[index]
        self._say(name, key, whole, Op.CREATE if known is None else Op.UPDATE)

    def take(self, name: str, *key: Any) -> None:
        """Delete a row."""
        del self.tables[name][key]  # type: ignore[arg-type]
        self._say(name, key, None, Op.DELETE)

    def _say(self, name: str, key: Identity, row: Row | None, op: Op) -> None:
        table = self.written[name].table
        part = (name, zlib.crc32(repr(key).encode()) % self.parts)
        records = self.log.setdefault(part, [])
        named, at = dict(zip(table.primary_key, key, strict=True)), (f"t.{name}", part[1])
        records.append(Change(table.qualified, op, named, row and dict(row), self.lsn, *at, len(records), 0))
        if row is None:
            records.append(Change(table.qualified, Op.TOMBSTONE, named, None, 0, *at, len(records), 0))

    def transaction(self, random: Random) -> None:
        """One to three random changes."""
        for _ in range(random.choice((1, 1, 2, 3))):
            self.lsn += 1
            name = random.choice(self.names)
            held = self.tables[name]
            if held and random.random() < 0.2:
                self.take(name, *random.choice(list(held)))
            else:
                self._random(random, name)
        self.lsn += 1

    def _random(self, random: Random, name: str) -> None:
        one = self.written[name]
        row = {column.name: _value(random, column) for column in one.table.columns}
        for columns, to in one.points.items():
            # Also rows that are not there: foreign keys are no business of the pipeline's.
            number = random.choice((None, 0, 1, 2, ROWS - 1))
            number = 0 if number is None and set(columns) & set(one.table.primary_key) else number
            target = self.written[to].table
            kinds = [target.by_name[column].base_type for column in target.primary_key]
            row |= {
                column: None if number is None else _key(kind, number)
                for column, kind in zip(columns, kinds, strict=True)
            }
        pointing = {column for columns in one.points for column in columns}
        own = random.randrange(ROWS)
        row |= {c: _key(one.table.by_name[c].base_type, own) for c in one.table.primary_key if c not in pointing}
        key = tuple(row[column] for column in one.table.primary_key)
        for column in one.unique:
            for other, values in list(self.tables[name].items()):
                if other != key and row[column] is not None and values[column] == row[column]:
                    if random.random() < 0.5:
                        self.take(name, *other)  # type: ignore[misc]
                    else:
                        self.put(name, **{**values, column: None})
                    self.lsn += 1
        self.put(name, **row)


def _key(kind: str, number: int) -> Any:
    return number if kind.startswith("int") else f"k{number}|"


def _value(random: Random, column: Column) -> Any:
    if random.random() < 0.2:
        return None
    if column.base_type == "text":
        return random.choice(WORDS)
    if column.base_type == "bool":
        return random.random() < 0.5
    return random.choice((0.5, -1.25, 3.0)) if column.base_type == "float8" else random.randrange(-3, 4)


def printed(world: WrittenWorld) -> dict[str, list[dict[str, str | None]]]:
    """``schema.table`` -> its rows as Postgres prints them."""
    return {
        one.table.qualified: [
            {column: _printed(value) for column, value in row.items()} for row in world.tables[name].values()
        ]
        for name, one in world.written.items()
    }


def _printed(value: Any) -> str | None:
    if isinstance(value, bool):
        return "t" if value else "f"
    return None if value is None else str(value)
