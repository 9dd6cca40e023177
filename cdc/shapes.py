"""The shapes that a table has had: its columns as they were, since when, and what became of its rows without a record.

Columns are the same by their number (``attnum``), whatever they are called: a rename keeps it, and a column that is
dropped and added again under its name is another one. Read by ``connectors.tables.shapes``; kept by
``operations.schema``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from cdc.catalogue import Catalogue, Column, Moved, Table, as_stored, moved_from, table_of
from cdc.errors import StateError
from cdc.formats import SHAPES, refuse_newer
from cdc.same_key import keeps_labels
from cdc.types import type_key

Kind = Literal["added", "dropped", "renamed", "retyped", "rewritten"]
# Between a column and its types, in words.
RETYPED = " changed from "
# Beyond that shapes keep one text for all files of a partitioned table: they are compared each second.
MOST_LEAVES = 4_000
# Types of text that differ by a limit alone: without a rewrite of the table its values are what they were.
_TEXTS = frozenset(("text", "varchar"))


@dataclass(frozen=True)
class Shape:
    """A table as it was from one position of the log on.

    Attributes:
        table: its columns, key and identity.
        since: LSN in bytes from which it holds for certain; records from shortly before may have it too. 0 for the
            first one known.
        oid: of the table.
        files: fingerprint of the file that holds its rows (``relfilenode``): another one means that Postgres has
            written them anew, which is in no log. Of a partitioned table see ``leaves``.
        filled: numbers of columns that rows may hold values of which nobody has written: by a default.
        parts: leaves of a partitioned table: oid, name, and which of its attachments it is. Rows come and go with them
            that are in no log.
        written: (number of a column, the transaction that last wrote its row of the catalogue: ``pg_attribute.xmin``).
            ``ALTER … TYPE … USING`` writes it and the files, also where the type stays what it was. Empty in a file of
            an older version.
    """

    table: Table
    since: int = 0
    oid: int = 0
    files: str = ""
    filled: tuple[int, ...] = ()
    parts: tuple[tuple[int, str, str], ...] = ()
    written: tuple[tuple[int, str], ...] = ()
    leaves: tuple[tuple[int, int], ...] | None = None
    # Not compared: how it came about is not what it is.
    unlogged: tuple[int, ...] | None = field(default=None, compare=False)

    def same_as(self, other: Shape) -> bool:
        """Whether nothing that concerns records or documents differs; files alone do not (VACUUM FULL)."""
        return self.table == other.table and self.oid == other.oid and not self.rewritten(other)

    def rewritten(self, other: Shape) -> set[int]:
        """Numbers of columns whose values USING may have made anew between the two, whatever their types are.

        VACUUM FULL writes the files alone, SET STATISTICS and the like the column alone. Where both came between two
        looks, or VACUUM FULL took what a constant default had left, the table is read for nothing.
        """
        if self.oid != other.oid or self.same_files(other):
            return set()
        before, captured = dict(other.written), {column.ordinal for column in self.table.columns}
        return {number for number, at in self.written if number in captured and before.get(number, at) != at}

    def same_files(self, other: Shape) -> bool:
        """Whether Postgres has written no row of the table anew between the two.

        Of a partitioned table those leaves count that both have: the rows of one that came are read in any case. Where
        they can't be told apart (a partition has gone, and one of the two was kept as one text), files count as others:
        a table that is read for nothing is better than values that nobody reads.
        """
        if self.leaves is None and other.leaves is None:
            return self.files == other.files
        if self.leaves is not None and other.leaves is not None:
            mine, theirs = dict(self.leaves), dict(other.leaves)
            return all(mine[oid] == theirs[oid] for oid in mine.keys() & theirs.keys())
        known, whole = (self, other) if other.leaves is None else (other, self)
        then = {oid for oid, _, _ in whole.parts}
        return whole.files == leaf_print([leaf for leaf in known.leaves or () if leaf[0] in then])

    def unlogged_since(self, older: Shape) -> set[int]:
        """Numbers of the columns that had values in no log when this shape followed an older one."""
        if self.unlogged is not None:
            return set(self.unlogged)
        return {one.new.ordinal for one in column_changes(older, self) if one.unlogged and one.new is not None}

    def told(self, table: Table) -> Shape:
        """The same, knowing which of its names other columns bore: of shapes that nobody has noted it does not."""
        return replace(self, table=replace(self.table, reused=table.reused))

    def alike(self, older: Shape) -> bool:
        """Whether nothing is to be done since an older shape: the same, with the same partitions."""
        return self.same_as(older) and not any(self.parts_since(older))

    def parts_since(self, older: Shape) -> tuple[dict[int, str], dict[int, str]]:
        """Partitions that have come since an older shape, and those that have gone: oid -> name."""
        if self.oid != older.oid:
            return {}, {}
        before = {(oid, attached) for oid, _, attached in older.parts}
        now = {(oid, attached) for oid, _, attached in self.parts}
        return (
            {oid: name for oid, name, attached in self.parts if (oid, attached) not in before},
            {oid: name for oid, name, attached in older.parts if (oid, attached) not in now},
        )


def leaf_print(leaves: Iterable[tuple[int, int]]) -> str:
    """One text for the files of leaves, as older versions had it of Postgres; a foreign table has none. Pure."""
    files = ",".join(str(file) for _, file in sorted(leaves) if file)
    return hashlib.md5(files.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class ColumnChange:
    """What happened to one column between two shapes.

    Attributes:
        kind: see ``Kind``; a column may be both renamed and retyped, which are two. Rewritten is one of the same type
            whose values were made anew.
        old: as it was; None if it was added.
        new: as it is; None if it was dropped.
        unlogged: rows may hold other values than the newest record of each says.
    """

    kind: Kind
    old: Column | None
    new: Column | None
    unlogged: bool = False

    @property
    def words(self) -> str:
        """For messages: ``column price changed from integer to bigint``."""
        if self.old is None:
            assert self.new is not None
            return f"column {self.new.name} was added"
        if self.new is None:
            return f"column {self.old.name} was dropped"
        if self.kind == "renamed":
            return f"column {self.old.name} was renamed to {self.new.name}"
        if self.kind == "rewritten":
            return f"values of column {self.new.name} were written anew"
        if self.old.type_name == self.new.type_name:
            return f"labels of {self.new.type_name} were changed (column {self.new.name})"
        return f"column {self.new.name}{RETYPED}{self.old.type_name} to {self.new.type_name}"


def column_changes(old: Shape, new: Shape) -> list[ColumnChange]:
    """What happened to a table's columns, in their order; nothing of defaults, NOT NULL and order. Pure."""
    # Of a table that was made again, numbers say nothing: its columns are the same by name.
    same = old.oid == new.oid
    before = {_mark(c, same): c for c in old.table.columns}
    after = {_mark(c, same): c for c in new.table.columns}
    anew = new.rewritten(old)
    found = [ColumnChange("dropped", column, None) for mark, column in before.items() if mark not in after]
    for mark, column in after.items():
        was = before.get(mark)
        if was is None:
            unlogged = _may_be_filled(column, old, new) or _reused(column, old, new)
            found.append(ColumnChange("added", None, column, unlogged=unlogged))
            continue
        if was.name != column.name:
            found.append(ColumnChange("renamed", was, column, unlogged=_reused(column, old, new)))
        if _type(was) != _type(column) and not _more_labels(was, column):
            found.append(ColumnChange("retyped", was, column, unlogged=not _kept(was, column, old, new)))
        elif column.ordinal in anew:
            found.append(ColumnChange("rewritten", was, column, unlogged=True))
    return found


def _may_be_filled(column: Column, old: Shape, new: Shape) -> bool:
    """Whether rows may have values of an added column that nobody has written.

    A default fills them, and may be dropped in the same breath: then the column does not take null, or the files are
    others. A column that was generated had its values before it was captured.
    """
    if old.oid != new.oid or not new.same_files(old) or column.ordinal in new.filled:
        return True
    return not column.nullable or column.name in old.table.generated


def _reused(column: Column, old: Shape, new: Shape) -> bool:
    """Whether another column had the name that a column has got, just before or long ago.

    Records of then have under it what that one held, perhaps of another type. Rows that nobody has written since have
    no newer one, and where the names of all columns are what they were, nothing tells the two apart.
    """
    return column.name in old.table.by_name or column.name in new.table.reused


def _mark(column: Column, by_number: bool) -> int | str:
    return column.ordinal if by_number else column.name


def _type(column: Column) -> tuple[Any, ...]:
    return (column.type_name, column.base_type, column.precision, column.scale, column.array, column.enum_values)


def _more_labels(was: Column, now: Column) -> bool:
    """An enum that has got another value: nothing that was is another thing now."""
    return was.base_type == now.base_type and was.enum_values != now.enum_values and _keeps_labels(was, now)


def _keeps_labels(was: Column, now: Column) -> bool:
    return (
        was.enum_values is not None and now.enum_values is not None and keeps_labels(was.enum_values, now.enum_values)
    )


def _kept(was: Column, now: Column, old: Shape, new: Shape) -> bool:
    """Whether each value is written as it was.

    USING may make anything of a column's values, and Postgres then writes the table anew: an ``int`` that became a
    ``bigint`` may have been doubled by the way.
    """
    if old.oid != new.oid or not new.same_files(old) or was.array != now.array:
        return False
    if type_key(was) == type_key(now) == "enum":
        return _keeps_labels(was, now)
    texts = {type_key(was), type_key(now)} <= _TEXTS
    numbers = type_key(was) == type_key(now) == "numeric" and was.scale == now.scale
    return texts or numbers or (was.base_type, was.array) == (now.base_type, now.array)


@dataclass(frozen=True)
class Shapes:
    """Every shape of every captured table, oldest first; never empty for a table."""

    tables: Mapping[str, tuple[Shape, ...]]

    def newest(self, table: str) -> Shape | None:
        """A table's shape as far as it is known."""
        known = self.tables.get(table)
        return known[-1] if known else None

    def with_newer(self, seen: Mapping[str, Shape]) -> tuple[Shapes, dict[str, tuple[Shape, Shape]]]:
        """The same with what was seen now, and the tables that have changed: (known, seen). Pure."""
        tables, changed = dict(self.tables), dict[str, tuple[Shape, Shape]]()
        for name, found in seen.items():
            known = self.newest(name)
            now = found.told(replace(found.table, reused=self._reused(name, found)))
            if known is None:
                tables[name] = (replace(now, since=0),)
            elif not known.same_as(now):
                tables[name] = (*tables[name], replace(now, unlogged=_sorted(now.unlogged_since(known))))
                changed[name] = known, now
            elif known != now or known.table.unique_keys != now.table.unique_keys:
                # Written anew, a default or another unique index: what is compared with the next time.
                before = tables[name][-2:-1]
                unlogged = _sorted(known.unlogged_since(before[0])) if before else None
                tables[name] = (*tables[name][:-1], replace(now, since=known.since, unlogged=unlogged))
        return Shapes(tables), changed

    def renamed(self, table: str) -> tuple[tuple[str, str], ...]:
        """Former names of a table's columns, and what each is called now; none that another column bears."""
        shapes = self.tables.get(table, ())
        if not shapes:
            return ()
        newest = shapes[-1]
        now = {column.ordinal: column.name for column in newest.table.columns}
        found: dict[str, str] = {}
        for shape in reversed([shape for shape in shapes if shape.oid == newest.oid]):
            for column in shape.table.columns:
                present = now.get(column.ordinal)
                if present is not None and column.name not in newest.table.by_name:
                    found.setdefault(column.name, present)
        return tuple(sorted(found.items()))

    def moved(self, table: str) -> tuple[Moved, ...]:
        """Former shapes whose records would be misread by names alone, see ``cdc.catalogue.moved_from``. Of shapes that
        can't be told apart by their names the newest counts."""
        shapes = self.tables.get(table, ())
        if not shapes:
            return ()
        newest, renamed = shapes[-1], self.renamed(table)
        seen, found = {frozenset(newest.table.by_name)}, list[Moved]()
        for shape in reversed([shape for shape in shapes if shape.oid == newest.oid]):
            names = frozenset(shape.table.by_name)
            if names not in seen and (moved := moved_from(shape.table, newest.table, renamed)) is not None:
                found.append(moved)
            seen.add(names)
        return tuple(found)

    def told_to(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue whose tables know what their columns were called, and since when they are what they are; and
        that knows of the tables which are gone."""

        def told(name: str, table: Table) -> Table:
            known = self.tables.get(name)
            return replace(
                table,
                renamed=self.renamed(name),
                moved=self.moved(name),
                since=self._rewritten(name),
                later=self._later(name),
                reused=self._reused(name, known[-1]) if known else (),
                oid=known[-1].oid if known else 0,
            )

        tables = {name: told(name, table) for name, table in catalogue.tables.items()}
        gone = {name: told(name, known[-1].table) for name, known in self.tables.items() if name not in tables}
        return replace(catalogue, tables=tables, gone=gone)

    def _reused(self, table: str, now: Shape) -> tuple[str, ...]:
        """Names of a shape's columns that another column bore in any shape before."""
        borne: dict[str, set[int]] = {}
        for shape in self.tables.get(table, ()):
            for column in shape.table.columns if shape.oid == now.oid else ():
                borne.setdefault(column.name, set()).add(column.ordinal)
        return tuple(one.name for one in now.table.columns if borne.get(one.name, set()) - {one.ordinal})

    def _rewritten(self, table: str) -> int:
        """LSN of the newest shape for which values were written anew that are in no log; 0 for none."""
        shapes = self.tables.get(table, ())
        return max((new.since for old, new in pairwise(shapes) if new.unlogged_since(old)), default=0)

    def _later(self, table: str) -> tuple[str, ...]:
        shapes = self.tables.get(table, ())
        first = {column.ordinal for column in shapes[0].table.columns} if shapes else set()
        return tuple(c.name for c in shapes[-1].table.columns if c.ordinal not in first) if shapes else ()

    def to_json(self) -> str:
        """For the disk."""
        tables = {name: [as_stored(shape) for shape in shapes] for name, shapes in sorted(self.tables.items())}
        return json.dumps({"format": SHAPES, "tables": tables}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, title: str) -> Shapes:
        """What ``to_json`` wrote.

        Raises:
            StateError: it is something else (terminal).
            NewerFormat: a newer Headwater wrote it (terminal).
        """
        try:
            raw = json.loads(text)
            refuse_newer(title, raw["format"], SHAPES)
            return cls({name: tuple(shape_of(one) for one in shapes) for name, shapes in raw["tables"].items()})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StateError(f"{title} can't be read: {error!r}", fix="restore it from a copy, or remove it") from error


def shape_of(raw: Mapping[str, Any]) -> Shape:
    """A shape of what ``as_stored`` made of it; KeyError, TypeError if it is something else."""
    table = table_of(raw["table"])
    parts = tuple((int(oid), str(name), str(attached)) for oid, name, attached in raw["parts"])
    written = tuple((int(number), str(xmin)) for number, xmin in raw.get("written", ()))
    leaves, unlogged = raw.get("leaves"), raw.get("unlogged")
    return Shape(
        table,
        int(raw["since"]),
        int(raw["oid"]),
        str(raw["files"]),
        tuple(raw["filled"]),
        parts,
        written,
        None if leaves is None else tuple((int(oid), int(file)) for oid, file in leaves),
        None if unlogged is None else _sorted(unlogged),
    )


def _sorted(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(numbers))


def used_changes(changes: Sequence[ColumnChange], used: set[str]) -> Iterator[ColumnChange]:
    """Those of them that concern columns of these names, as they were or as they are. Pure."""
    for change in changes:
        names = {column.name for column in (change.old, change.new) if column is not None}
        if names & used:
            yield change
