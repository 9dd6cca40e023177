"""Debezium's placeholders for large values that an update did not change, and so did not log (TOAST).

What it puts depends on the type, and for many arrays it puts a plain null, which nothing tells from NULL: see
``cdc.types.null_when_unchanged`` and docs/decisions/toast.md. All forms below were seen in real events.
"""

from __future__ import annotations

import base64
from typing import Any

from cdc.catalogue import Column, Table
from cdc.errors import UnavailableValue
from cdc.types import may_be_large, type_key
from cdc.types.rules import RULES

TEXT = "__debezium_unavailable_value"
BASE64 = base64.b64encode(TEXT.encode()).decode()
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
NUMBERS = list(TEXT.encode())
HSTORE = f'{{"{TEXT}":"{TEXT}"}}'

_TEXTS = frozenset((TEXT, BASE64, HSTORE))
_LISTS = ([TEXT], [BASE64], [UUID], NUMBERS)
_BINARY = frozenset(("bytea",))
_NUMBERED = frozenset(("int4", "int8", "date"))


def is_placeholder(value: Any) -> bool:
    """Whether a raw value stands for "unchanged, and not in the log"."""
    if type(value) is str:
        return value in _TEXTS
    return type(value) is list and value in _LISTS


def unavailable(after: dict[str, Any]) -> tuple[str, ...]:
    """The columns of a row whose value is a placeholder."""
    return tuple(name for name, value in after.items() if is_placeholder(value))


def marks_of(table: Table) -> tuple[bytes, ...]:
    """Bytes of which at least one is in every event of this table that holds a placeholder: a cheap first look."""
    return tuple(sorted({mark for column in table.columns for mark in _marks(column)}))


def _marks(column: Column) -> tuple[bytes, ...]:
    if not may_be_large(column):
        return ()
    key = type_key(column)
    if key in _BINARY:
        return (BASE64.encode(),)
    if key not in RULES:  # a type that Debezium does not know is bytes; one that it knows and we do not may be text
        return BASE64.encode(), TEXT.encode()
    if column.array and key in _NUMBERED:
        return (",".join(map(str, NUMBERS)).encode(),)
    if column.array and key == "uuid":
        return (UUID.encode(),)
    return (TEXT.encode(),)


def not_in_the_log(table: str, columns: tuple[str, ...], record: str) -> UnavailableValue:
    """The error for ``columns`` of ``table`` in the record at ``topic/partition/offset``."""
    names = ", ".join(columns)
    return UnavailableValue(
        f"record {record}: {table}.{names} did not change, is large, and so is not in Postgres's log",
        means="the document can't be built from this record; what the sink holds for the row is left as it is",
        fix=f"set policy.toast to reselect or full and run `headwater apply`, or leave {names} out of the view",
    )
