"""Document ids: one string for a primary key, the same in every sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson


def document_id(values: Sequence[Any]) -> str:
    """The id of the document with these key values.

    One column: its canonical value as text. Several: joined with ``|``, in each of them ``\\`` and ``|`` escaped by
    ``\\``, so that ("a|b", "c") and ("a", "b|c") stay two documents.

    Args:
        values: canonical values of the key columns, in the key's order.
    """
    if len(values) == 1:
        return _text(values[0])
    return "|".join([_text(value).replace("\\", "\\\\").replace("|", "\\|") for value in values])


def split_id(identity: str, columns: int) -> list[str]:
    """The key values' texts of an id made by ``document_id`` for that many columns."""
    if columns == 1:
        return [identity]
    parts, current, escaped = [], [], False
    for char in identity:
        if escaped:
            current.append(char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "|":
            parts.append("".join(current))
            current = []
        else:
            current.append(char)
    return [*parts, "".join(current)]


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    # Floats in JSON's spelling, arrays as JSON: unusual keys, but two values never share one text.
    return orjson.dumps(value).decode()
