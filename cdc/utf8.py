"""Spark SQL that holds the texts in a value against UTF-8: Spark casts any bytes to a string, and keeps them.

A Java ``Row`` puts U+FFFD in the place of what is none, and different values become one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cdc.join.expressions import quoted

# Of a map, as Spark calls them.
_SIDES = ("key", "value")


def has_text(kind: Any) -> bool:
    """Whether there is a text in a value of a type (its ``jsonValue``). Pure."""
    return any(map(_is_text, _plain(kind)))


def has_bytes(kind: Any) -> bool:
    """Whether there are bytes in one: its cast to a string holds them, too. Pure."""
    return "binary" in _plain(kind)


def whole(said: str, kind: Any) -> str:
    """Spark SQL of the same value, which fails where a text in it is not UTF-8. Pure.

    Args:
        said: Spark SQL; in brackets, or a name.
        kind: its type, as ``jsonValue`` of PySpark's types says it.
    """
    if _is_text(kind):
        return f"validate_utf8({said})"
    texts = _texts(said, kind, 0)
    return f"CASE WHEN validate_utf8(CAST({texts} AS string)) IS NOT NULL THEN {said} END" if texts else said


def _texts(said: str, kind: Any, depth: int) -> str:
    """Spark SQL of a value without the bytes beside its texts, which its cast would hold, too; "" if it has no text."""
    if not has_text(kind):
        return ""
    if not has_bytes(kind):
        return said
    if kind["type"] == "array":
        one = f"__text{depth}"
        return f"transform({said}, {one} -> {_texts(one, kind['elementType'], depth + 1)})"
    if kind["type"] == "map":
        sides = [(f"map_{side}s({said})", {"type": "array", "elementType": kind[f"{side}Type"]}) for side in _SIDES]
    else:
        sides = [(f"{said}.{quoted(field['name'])}", field["type"]) for field in kind["fields"]]
    return f"struct({', '.join(filter(None, (_texts(side, of, depth) for side, of in sides)))})"


def _plain(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        yield kind
    elif kind["type"] == "array":
        yield from _plain(kind["elementType"])
    elif kind["type"] == "map":
        yield from _plain(kind["keyType"])
        yield from _plain(kind["valueType"])
    else:
        for field in kind["fields"]:
            yield from _plain(field["type"])


def _is_text(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith("string")
