"""The source's tables as plain data, as codecs, views and preflight see them; ``connectors.tables.catalogue`` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from cdc.errors import StateError


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: as in the catalogue, unquoted.
        type_name: as ``format_type`` prints it: ``numeric(10,2)``, ``text[]``, a domain's own name.
        base_type: ``pg_type.typname`` of the type under any domain and array: ``numeric``, ``timestamptz``, an enum's
            name; with its schema, ``app.money``, if it is a user's own and called like a type that is treated in a way
            of its own. SQL spellings (``timestamp with time zone``) are understood too.
        precision: of a numeric, else None.
        scale: of a numeric, else None.
        array: any number of dimensions; Postgres does not tell them apart.
        nullable: may hold NULL.
        enum_values: an enum's labels in order, else None.
        ordinal: ``attnum``.
        collated: of a nondeterministic collation: texts that differ may be equal in Postgres.
        unpadded: of ``bpchar`` without a length, also under a domain, whose name does not say so: blanks at its end are
            kept, and do not count in Postgres. Neither compared nor shown: a catalogue of before lacks it; and see
            ``as_stored``.
    """

    name: str
    type_name: str
    base_type: str
    precision: int | None = None
    scale: int | None = None
    array: bool = False
    nullable: bool = True
    enum_values: tuple[str, ...] | None = None
    ordinal: int = 0
    collated: bool = False
    unpadded: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class NotUnique:
    """A unique index that makes no key of its columns.

    Attributes:
        name: the index's.
        columns: those that it names, also in expressions and in its condition.
        reason: why not, in words: ``it is partial (WHERE …)``.
    """

    name: str
    columns: tuple[str, ...]
    reason: str


# All names of a former shape; (name then, name now) of its columns that are there still.
Moved = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        schema: its schema, unquoted.
        name: its name, unquoted.
        columns: in order of ``ordinal``.
        primary_key: column names in the key's order; empty if there is none.
        replica_identity: ``default``, ``full``, ``index`` or ``nothing``. Not shown: what is remembered of a view by
            its words (accepted expressions) would be forgotten when ``apply`` sets it.
        generated: names of generated columns, which are not captured.
        renamed: (former name, present name) of its columns, as far as it was noticed; see cdc/shapes.py.
        moved: of each former shape in which another column had a present name, or a former one: (name then, name now)
            of its columns that are there still, and all names of then, by which its records are known; see
            cdc/shapes.py.
        later: names of columns that it did not have when it was first seen.
        reused: names of columns that another column bore before; see cdc/shapes.py.
        oid: of the table whose columns' numbers these are; 0 if that is not known.
        since: LSN in bytes from which it has had this shape for certain; 0 if it was never seen with another.
        unique_keys: columns of each other unique key, in its order: no two rows have the same values at the end of a
            transaction (it may be deferrable), and any of them may be NULL. Empty if it was read before they were.
        not_unique: unique indexes that are none, for messages.
        present: of a table that a generation goes on with as it was: (column, what the database has in its place now,
            None if it is gone), of those that are not what they were. Not kept, it is found out each time.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    replica_identity: str = field(default="default", repr=False)
    generated: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    since: int = field(default=0, compare=False, repr=False)
    later: tuple[str, ...] = field(default=(), compare=False, repr=False)
    # Not compared: an index that nothing joins by makes no other table.
    unique_keys: tuple[tuple[str, ...], ...] = field(default=(), compare=False, repr=False)
    not_unique: tuple[NotUnique, ...] = field(default=(), compare=False, repr=False)
    present: tuple[tuple[str, Column | None], ...] = field(default=(), compare=False, repr=False)
    moved: tuple[Moved, ...] = field(default=(), compare=False, repr=False)
    reused: tuple[str, ...] = field(default=(), compare=False, repr=False)
    oid: int = field(default=0, compare=False, repr=False)

    @property
    def qualified(self) -> str:
        """``schema.table``, unquoted."""
        return f"{self.schema}.{self.name}"

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def moved_rows(self) -> Mapping[frozenset[str], Mapping[str, str | None]]:
        """Names of all columns of a record that its names alone would misread -> the name there of each present column;
        None where that was another column's, by now dropped or called otherwise, and its own is not in the record."""
        return {
            frozenset(names): {
                **dict.fromkeys(name for name in names if name in self.by_name),
                **{present: former for former, present in pairs},
            }
            for names, pairs in self.moved
        }


def moved_from(then: Table, now: Table, renamed: Iterable[tuple[str, str]]) -> Moved | None:
    """How the columns of a table are found in records of another shape of it; None where their names, and the former
    ones, lead to them anyhow. They do not where a name was another column's: by now dropped, or called otherwise,
    whether or not the one that bears it today was there. Pure.

    Args:
        then: the shape of the records.
        now: by whose names they are to be read.
        renamed: (former name, present name) of columns, see ``Table.renamed``.
    """
    called = {column.ordinal: column.name for column in then.columns}
    pairs = {column.name: called[column.ordinal] for column in now.columns if column.ordinal in called}
    named = {name: name for name in now.by_name if name in then.by_name}
    for former, present in renamed:
        if former in then.by_name:
            named.setdefault(present, former)
    if named == pairs:
        return None
    return tuple(sorted(then.by_name)), tuple(sorted((former, present) for present, former in pairs.items()))


@dataclass(frozen=True)
class Catalogue:
    """The captured tables of one database, bound to the identity of its server.

    Attributes:
        tables: ``schema.table`` -> Table.
        system_identifier: of the cluster (``pg_control_system``); another one is another history.
        timeline: grows at every promotion or point-in-time recovery.
        database: its name.
        lsn: of the source's log in bytes, just before this was read; 0 if that is not known.
        unseen: transactions (the lower half of their ids, as the log has them) that were open then, or whose end could
            not be seen yet: what they did is not in it, though they may have written before ``lsn``.
        doubts: a newer value that does not fit may be of a shape that nobody has seen yet; False once a look that was
            taken because of one has found nothing new: it is what it is then.
        gone: tables that were there once, as they were last.
    """

    tables: dict[str, Table] = field(default_factory=dict)
    system_identifier: str = ""
    timeline: int = 0
    database: str = ""
    lsn: int = 0
    doubts: bool = True
    gone: Mapping[str, Table] = field(default_factory=dict)
    unseen: frozenset[int] = frozenset()

    def to_json(self) -> str:
        """JSON text; stable, so that two catalogues can be compared as text."""
        return json.dumps(
            {
                "system_identifier": self.system_identifier,
                "timeline": self.timeline,
                "database": self.database,
                "lsn": self.lsn,
                **({"unseen": sorted(self.unseen)} if self.unseen else {}),
                "tables": [as_stored(self.tables[name]) for name in sorted(self.tables)],
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> Catalogue:
        """Read what ``to_json`` wrote.

        Raises:
            StateError: the text is not a catalogue (terminal).
        """
        try:
            raw = json.loads(text)
            tables = [table_of(item) for item in raw["tables"]]
            return cls(
                {table.qualified: table for table in tables},
                str(raw["system_identifier"]),
                int(raw["timeline"]),
                str(raw["database"]),
                int(raw.get("lsn", 0)),
                unseen=frozenset(map(int, raw.get("unseen", ()))),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"not a saved catalogue: {error!r}", fix="delete the file; it is read again") from error


def as_stored(one: Any) -> dict[str, Any]:
    """``asdict`` of a table, or of what has tables, for a file.

    An older Headwater, which goes on with the same folder, refuses a column of which it does not know what is said: so
    ``unpadded`` is said only where it is so.
    """
    return asdict(one, dict_factory=lambda said: {name: value for name, value in said if name != "unpadded" or value})


def table_of(raw: Mapping[str, Any]) -> Table:
    """A table of what ``as_stored`` made of it; KeyError, TypeError if it is something else."""
    columns = tuple(Column(**{**c, "enum_values": _tuple(c["enum_values"])}) for c in raw["columns"])
    renamed = tuple((str(former), str(present)) for former, present in raw.get("renamed", ()))
    key, identity = tuple(raw["primary_key"]), raw["replica_identity"]
    return Table(
        raw["schema"],
        raw["name"],
        columns,
        key,
        identity,
        tuple(raw.get("generated", ())),
        renamed,
        int(raw.get("since", 0)),
        tuple(raw.get("later", ())),
        # A file of an older version has neither: the next look at Postgres brings them.
        unique_keys=tuple(tuple(names) for names in raw.get("unique_keys", ())),
        not_unique=tuple(
            NotUnique(one["name"], tuple(one["columns"]), one["reason"]) for one in raw.get("not_unique", ())
        ),
        moved=tuple(
            (tuple(names), tuple((former, present) for former, present in pairs))
            for names, pairs in raw.get("moved", ())
        ),
        reused=tuple(raw.get("reused", ())),
        oid=int(raw.get("oid", 0)),
    )


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
