"""Document ids: one string for a primary key, the same in every sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

# Begins the id of something that a sink holds under a name that no id of ours is written as. It is half of a surrogate
# pair, which no text has and which stands for one byte that is not UTF-8.
_STRAY = "\udcff"


def stray_id(name: bytes) -> str:
    """The id of a thing in a sink whose name there is not what ``document_id`` gives, and need not even be text."""
    return _STRAY + name.decode("utf-8", "surrogateescape")


def is_stray(identity: str) -> bool:
    """Whether an id was made by ``stray_id``: no row can have it."""
    return identity[:1] == _STRAY


def stray_name(identity: str) -> bytes:
    """The name that ``stray_id`` was given."""
    return identity[1:].encode("utf-8", "surrogateescape")


def id_bytes(identity: str) -> bytes:
    """Any id as bytes; the inverse is ``id_text``."""
    return identity.encode("utf-8", "surrogateescape")


def id_text(raw: bytes) -> str:
    """An id from ``id_bytes``."""
    return raw.decode("utf-8", "surrogateescape")


def shown(identity: str) -> str:
    """An id for people: of a stray one the name, its bytes that are no text as ``\\xff``."""
    if not is_stray(identity):
        return identity
    return stray_name(identity).decode("utf-8", "backslashreplace")


def document_id(values: Sequence[Any]) -> str:
    """The id of the document with these key values.

    One column: its canonical value as text. Several: joined with ``|``, in each of them ``\\`` and ``|`` escaped by
    ``\\``, so that ("a|b", "c") and ("a", "b|c") stay two documents.

    Args:
        values: canonical values of the key columns, in the key's order.
    """
    if len(values) == 1:
        return _text(values[0])
    return "|".join(map(id_part, values))


def id_part(value: Any) -> str:
    """A key value as it stands in the id of several."""
    return _text(value).replace("\\", "\\\\").replace("|", "\\|")


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


def alike(key: str, columns: int) -> list[str]:
    """Keys that somebody may have meant: another letter case, blanks or zeros too many, parts joined otherwise."""
    bare = key.strip()
    found = [bare, bare.lower(), bare.upper(), bare.capitalize(), bare.lstrip("0"), bare.strip("'\"")]
    for sign in "|,/:; " if columns > 1 else "":
        parts = [part.strip() for part in bare.strip("()").split(sign)]
        if len(parts) == columns:
            found += [document_id(parts), document_id(parts[::-1])]
    return [one for one in dict.fromkeys(found) if one and one != key]


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    # Floats in JSON's spelling, arrays as JSON: unusual keys, but two values never share one text.
    return orjson.dumps(value).decode()
