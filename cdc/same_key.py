"""Whether two looks at a table found the same key: then its topic goes on, else it is made anew.

Names are not enough. After ``ALTER id TYPE uuid``, or when another column got the name ``id``, records of before name
rows by ids that are no more: nothing would ever delete their documents, and a generation filled from the topic would
never equal Postgres. A key is the same as long as each of its values is still written as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.catalogue import Column, Table
from cdc.types import type_key

_INTEGERS = frozenset(("int2", "int4", "int8"))
# All of them are JSON's texts in a record's key, too; an integer is not.
_TEXTS = frozenset(("text", "varchar", "citext", "enum"))
# Their values are padded, cut or rounded to what the type's brackets say.
_FITTED = frozenset(("bpchar", "bit", "timestamp", "timestamptz", "time", "timetz", "interval"))
_NUMERIC = "numeric"


@dataclass(frozen=True)
class KeyPart:
    """A column of a key.

    Attributes:
        name: of the column.
        number: its ``attnum``; 0 if that is not known.
        kind: what its values are written as; empty if that is not known.
        type_name: for messages.
        labels: of an enum, in its order; empty if that is not known.
    """

    name: str
    number: int = 0
    kind: str = ""
    type_name: str = ""
    labels: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data; without labels what an older version wrote, with which it is compared in the database."""
        plain = {"name": self.name, "number": self.number, "kind": self.kind, "type_name": self.type_name}
        return {**plain, "labels": list(self.labels)} if self.labels else plain


def key_part(column: Column) -> KeyPart:
    """A column as a part of a key. Pure."""
    kind = type_key(column)
    if kind in _FITTED:
        kind = column.type_name
    elif kind == _NUMERIC and column.scale is not None:
        kind = f"{_NUMERIC}, scale {column.scale}"
    labels = column.enum_values or ()
    return KeyPart(column.name, column.ordinal, f"{kind}[]" if column.array else kind, column.type_name, labels)


def key_parts(table: Table) -> tuple[KeyPart, ...]:
    """A table's key. Pure."""
    return tuple(
        key_part(table.by_name[name]) if name in table.by_name else KeyPart(name) for name in table.primary_key
    )


def key_from(raw: Iterable[Mapping[str, Any]]) -> tuple[KeyPart, ...]:
    """A key of what ``KeyPart.to_dict`` gave, perhaps in another version. Pure."""
    return tuple(
        KeyPart(one["name"], int(one["number"]), one["kind"], one["type_name"], tuple(one.get("labels", ())))
        for one in raw
    )


def same_key(was: Sequence[KeyPart], now: Sequence[KeyPart], *, numbered: bool) -> bool:
    """Whether a key's records can be gone on with. Pure.

    Args:
        was: the key as it was.
        now: as it is.
        numbered: both are of the same table. Of one that was made again numbers say nothing.
    """
    return len(was) == len(now) and all(
        old.name == new.name
        and (not numbered or not old.number or not new.number or old.number == new.number)
        and (not old.kind or not new.kind or _written_alike(old.kind, new.kind))
        and (not old.labels or not new.labels or keeps_labels(old.labels, new.labels))
        for old, new in zip(was, now, strict=True)
    )


def keeps_labels(was: Iterable[str], now: Iterable[str]) -> bool:
    """Whether an enum has all labels that it had, in their order: ADD VALUE leaves it, RENAME VALUE need not. Pure.

    A label that is renamed and added anew behind its former place looks as if the other one had been added before it.
    """
    later = iter(now)
    return all(label in later for label in was)


def _written_alike(was: str, now: str) -> bool:
    """Whether values stay what they are written as: a uuid as text does, not each text as a uuid; and a numeric that
    loses its scale keeps its digits, not one that gets another."""
    if was == now or {was, now} <= _INTEGERS:
        return True
    if now in _TEXTS:
        return was in _TEXTS or was == "uuid"
    return now == _NUMERIC and was.startswith(f"{_NUMERIC},")
