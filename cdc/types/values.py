"""Converters: a raw value of Debezium's JSON to the canonical JSON value, and to the value that Arrow takes.

A converter is called with a value that is not None and raises ValueError, TypeError or KeyError for one that it does
not understand; the view turns that into a DecodeError that names the column. ``None`` in place of a converter means
that the raw value is right as it is, which the fast path skips.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

Converter = Callable[[Any], Any]

_FLOAT_WORDS = {"NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"}
_NUMERIC_WORDS = {"NAN": "NaN", "NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"}


def text(value: Any) -> str:
    """A type that is text already, or one we do not know: as text."""
    return value if type(value) is str else orjson.dumps(value).decode()


def json_fragment(value: str) -> orjson.Fragment:
    """json or jsonb, embedded as it stands: no digit of a large number and no order of keys is lost.

    The ``json`` type keeps line breaks between tokens (never inside a string, where they must be escaped), and a line
    break would cut a line of Elasticsearch's bulk format in two.
    """
    if "\n" in value or "\r" in value:
        value = value.replace("\n", " ").replace("\r", " ")
    return orjson.Fragment(value)


def json_text(value: str) -> str:
    """json or jsonb for Arrow: the same text."""
    if "\n" in value or "\r" in value:
        value = value.replace("\n", " ").replace("\r", " ")
    return value


def numeric(value: str) -> str:
    """A numeric's own digits."""
    return _NUMERIC_WORDS.get(value, value)


def numeric_decimal(value: str) -> Decimal | None:
    """A numeric for a decimal column; NaN and infinities have no place there and become None."""
    if value in _NUMERIC_WORDS:
        return None
    try:
        return Decimal(value)
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a number") from error


def real(value: Any) -> float | str:
    """A float: JSON has no NaN and no infinities, so these are words."""
    if type(value) is float or type(value) is int:
        return value
    return _FLOAT_WORDS[value]


def real_float(value: Any) -> float:
    """A float for Arrow, which does have NaN and infinities."""
    return float(_FLOAT_WORDS[value] if type(value) is str else value)


def binary(value: str) -> bytes:
    """bytea for Arrow."""
    return base64.b64decode(value, validate=True)


def array_of(convert: Converter | None) -> Converter:
    """A converter for an array of any number of dimensions whose elements need ``convert``."""
    if convert is None:
        return _list

    def elements(values: Any) -> list[Any]:
        if type(values) is not list:
            raise TypeError(f"expected an array, got {type(values).__name__}")
        return [None if v is None else elements(v) if type(v) is list else convert(v) for v in values]

    return elements


def _list(values: Any) -> list[Any]:
    if type(values) is not list:
        raise TypeError(f"expected an array, got {type(values).__name__}")
    return values


def hstore(value: Any) -> dict[str, str | None]:
    """hstore: an object."""
    found = orjson.loads(value) if type(value) is str else value
    if type(found) is not dict:
        raise TypeError("expected an object")
    return found


def hstore_text(value: Any) -> str:
    """hstore for Arrow: JSON text."""
    return orjson.dumps(hstore(value)).decode()
