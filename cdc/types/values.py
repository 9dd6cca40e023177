"""Converters: a raw value of Debezium's JSON to the canonical JSON value, and to the value that Arrow takes.

A converter is called with a value that is not None and raises ValueError, TypeError, KeyError, AttributeError or
IndexError (``REFUSALS``) for one that it does not understand; the view turns that into a DecodeError that names the
column. ``None`` in place of a converter means that the raw value is right as it is, which the fast path skips.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

Converter = Callable[[Any], Any]
REFUSALS = (ValueError, TypeError, KeyError, AttributeError, IndexError)

_FLOAT_WORDS = {"NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"}
NUMERIC_WORDS = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?", re.ASCII
)
# A name of a member, any other text, or where an object begins and ends.
_NAMES = re.compile(r'(?P<name>"[^"\\]*(?:\\.[^"\\]*)*")[ \t\n\r]*:|"[^"\\]*(?:\\.[^"\\]*)*"|(?P<sign>[{}])')
# Between these Postgres prints a float4 with an exponent, and Python prints it without one.
_EXPONENT_FROM, _PYTHON_TOO = 1e6, 1e16
# Of a float4: its form, the largest (as decimals of nine digits may round to it), the least that has all of its digits.
_FLOAT4, _FLOAT4_MAX, _FLOAT4_NORMAL = struct.Struct("f"), 3.4028235e38, 1.1754943508222875e-38
# Six digits and a point: two decimals so short are two numbers in four bytes, too, so none is a longer form of another.
_CERTAIN = 7
# Nine digits are enough for each.
_FEWER, _ABOVE = tuple(f".{digits}g" for digits in range(8, 0, -1)), 1 + 2**-25


def text(value: Any) -> str:
    """A type that Debezium gives as text."""
    if type(value) is not str:
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def array_text(value: Any) -> str:
    """An element of a text array. Debezium prints a nested array's Java object: that is no value."""
    if value.startswith("[L") and ";@" in value:
        raise ValueError("Debezium does not deliver arrays of more than one dimension")
    return str(value)


def unknown(value: Any) -> str:
    """A type that Debezium does not know: its bytes in base64, which are Postgres's own text."""
    if type(value) is not str:
        return orjson.dumps(value).decode()
    return base64.b64decode(value, validate=True).decode()


def json_text(value: str) -> str:
    """json or jsonb as text without line breaks.

    The ``json`` type keeps line breaks between tokens (never inside a string, where they must be escaped), and a line
    break would cut a line of Elasticsearch's bulk format in two.
    """
    if type(value) is not str:
        raise TypeError(f"expected JSON text, got {type(value).__name__}")
    if "\n" in value or "\r" in value:
        value = value.replace("\n", " ").replace("\r", " ")
    return value


def json_fragment(value: str) -> orjson.Fragment:
    """json or jsonb, embedded as it stands: no digit of a large number and no order of keys is lost."""
    return orjson.Fragment(json_text(value))


def json_unique(value: str) -> orjson.Fragment:
    """The json type, which (unlike jsonb) may name a key twice: the last one stays, as in jsonb.

    Elasticsearch refuses a whole document for a repeated key. Text without one is embedded as it stands, however deeply
    it is nested: a row is converted when it is read and again for each document, and what depends on how much of the
    stack is left could pass there and fail here.
    """
    repeated = False

    def pairs(found: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated = repeated or len(dict(found)) < len(found)

    plain = json_text(value)
    try:
        json.loads(plain, object_pairs_hook=pairs, parse_float=len, parse_int=len)
    except RecursionError:
        repeated = True  # or may be
    return orjson.Fragment(_last_of_each(plain) if repeated else plain)


def _last_of_each(text: str) -> str:
    """JSON text without the members of objects whose name comes again; the rest stays as it is written."""
    dropped: list[tuple[int, int]] = []
    objects: list[tuple[dict[str, int], list[int]]] = []  # of each that is open: which member has a name, where each is
    for found in _NAMES.finditer(text):
        if found["sign"] == "{":
            objects.append(({}, []))
        elif found["sign"] == "}":
            objects.pop()
        elif found["name"]:
            numbers, starts = objects[-1]
            starts.append(found.start())
            name = json.loads(found["name"])
            if (former := numbers.get(name)) is not None:
                dropped.append((starts[former], starts[former + 1]))
            numbers[name] = len(starts) - 1
    kept, at = [], 0
    for start, end in sorted(dropped):  # one may lie within another
        if end > at:
            kept.append(text[at:start])
            at = end
    return "".join([*kept, text[at:]])


def numeric(value: str) -> str:
    """A numeric's own digits."""
    if type(value) is not str:  # a JSON number has been a double already
        raise TypeError(f"expected digits as text, got {type(value).__name__}")
    return NUMERIC_WORDS.get(value, value)


def numeric_negative_scale(value: str) -> str:
    """A numeric with a negative scale, to which Debezium adds two thousand zeros of a fraction that it can't have."""
    return NUMERIC_WORDS.get(value) or text(value).partition(".")[0]


def decimal_of(precision: int, scale: int) -> Converter:
    """A converter to ``decimal(precision, scale)``; NaN and infinities have no place there and become None."""
    limit = Decimal(10) ** (precision - scale)

    def decimal(value: str) -> Decimal | None:
        if value in NUMERIC_WORDS:
            return None
        try:
            number = Decimal(value)
        except InvalidOperation as error:
            raise ValueError(f"{value!r} is not a number") from error
        exponent = number.as_tuple().exponent
        if type(exponent) is not int or -exponent > scale or number.copy_abs() >= limit:  # abs() rounds
            raise ValueError(f"{value[:60]} does not fit decimal({precision},{scale})")
        return number

    return decimal


def whole_digits(convert: Converter) -> Converter:
    """The same converter for a numeric with a negative scale; see ``numeric_negative_scale``."""
    return lambda value: convert(value if value in NUMERIC_WORDS else value.partition(".")[0])


def integer_of(bits: int) -> Converter:
    """A converter that lets integers of so many bits pass: one that is too large would fail Arrow's whole batch."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def integer(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{value!r:.60} is not an integer of {bits} bits")
        return value

    return integer


def boolean(value: Any) -> bool:
    """A boolean for Arrow."""
    if type(value) is not bool:
        raise TypeError(f"expected true or false, got {type(value).__name__}")
    return value


def real(value: Any) -> float | str:
    """A float: JSON has no NaN and no infinities, so these are words."""
    if type(value) is float:
        return value
    return float(value) if type(value) is int else _FLOAT_WORDS[value]


def single(value: Any) -> float | str:
    """A float4, with the digits that Postgres prints."""
    return shortest(value) if type(value) is float else shortest(float(value)) if type(value) is int else real(value)


def shortest(number: float) -> float:
    """The number with the fewest digits that is the same one in four bytes.

    Java before 19 prints 8.9310003E9 for 8.931e9, and one in ten so; what has made a double of it, ten digits more.
    """
    if len(repr(number)) <= _CERTAIN and not 0 < abs(number) < _FLOAT4_NORMAL:
        return number
    try:
        held = _FLOAT4.pack(number)
    except OverflowError:
        return number
    (exact,) = _FLOAT4.unpack(held)
    found = None
    for form in _FEWER:
        fewer = float(format(exact, form))
        if _FLOAT4.pack(fewer) != held:
            break
        found = fewer
    if found is not None:
        return found
    # Of a power of two the neighbour above is twice as far as the one below: eight digits that are not nearest may do.
    above = float(f"{exact * _ABOVE:.8g}")
    return above if _FLOAT4.pack(above) == held else float(f"{exact:.9g}")


def real_float(value: Any) -> float:
    """A float for Arrow, which does have NaN and infinities."""
    return float(real(value))


def binary(value: str) -> bytes:
    """bytea for Arrow."""
    return base64.b64decode(value, validate=True)


def bits_of(length: int | None) -> Converter:
    """A converter for ``bit(length)``, which Debezium gives as the bytes of a number, lowest first."""

    def bits(value: str) -> str:
        return f"{int.from_bytes(base64.b64decode(value, validate=True), 'little'):b}".zfill(length or 0)

    return bits


def interval(value: str) -> str:
    """An interval as Postgres's IntervalStyle iso_8601 writes it: parts that are zero are left out."""
    found = _INTERVAL.fullmatch(value)
    if found is None:
        raise ValueError(f"{value!r} is not an interval")
    years, months, days, hours, minutes, seconds = (_part(part) for part in found.groups())
    date_part = "".join(f"{n}{unit}" for n, unit in ((years, "Y"), (months, "M"), (days, "D")) if n)
    time_part = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n)
    if time_part:
        return f"P{date_part}T{time_part}"
    return f"P{date_part}" if date_part else "PT0S"


def _part(number: str | None) -> str:
    if number is None:
        return ""
    if "." in number:
        # Debezium computes the seconds as a double: 5.988 arrives as 5.987999999. Postgres keeps microseconds.
        number = f"{Decimal(number):.6f}".rstrip("0").rstrip(".")
    return "" if number in ("0", "-0") else number


def point(value: Any) -> dict[str, Any]:
    """A point: x and y, without the binary form that Debezium adds."""
    return {"x": real(value["x"]), "y": real(value["y"])}


def point_text(value: Any) -> str:
    """A point for Arrow: JSON text."""
    return orjson.dumps(point(value)).decode()


def hstore(value: str) -> dict[str, str | None]:
    """hstore: an object, its keys in the order that Postgres gives them: by length, then by bytes.

    Debezium's order is that of a hash map: by it the id of a row whose key is one would not be that of the table's row,
    nor ``md5(marks)`` of the log that of the table.
    """
    found = orjson.loads(value)
    if type(found) is not dict:
        raise TypeError("expected an object")
    return {key: found[key] for key in sorted(found, key=_in_postgres)}


def hstore_text(value: str) -> str:
    """hstore for Arrow: JSON text."""
    return orjson.dumps(hstore(value)).decode()


def _in_postgres(key: str) -> tuple[int, bytes]:
    held = key.encode()
    return len(held), held


def vector(values: Any) -> str:
    """pgvector's vector or halfvec, of which Debezium gives the numbers: text as Postgres prints it."""
    return f"[{','.join([_printed(_finite(value)) for value in _list(values)])}]"


def sparsevec(value: Any) -> str:
    """pgvector's sparse vector, of which Debezium gives the places that are not zero: text as Postgres prints it."""
    if not isinstance(value, dict) or set(value) != {"dimensions", "vector"}:
        raise ValueError(f"{value!r:.60} is no sparse vector")
    held = value["vector"]
    # JSON has no keys that are numbers: Kafka's converter writes pairs.
    places = sorted((int(place), number) for place, number in (held.items() if isinstance(held, dict) else held))
    shown = ",".join(f"{place}:{_printed(_finite(number))}" for place, number in places)
    return f"{{{shown}}}/{int(value['dimensions'])}"


def geometry(value: Any) -> str:
    """PostGIS's geometry or geography, of which Debezium gives the bytes (EWKB): text as Postgres prints it."""
    if not isinstance(value, dict) or not {"wkb", "srid"} >= set(value) or not value.get("wkb"):
        raise ValueError(f"{value!r:.60} is no geometry")
    held = value["wkb"]
    return (held if isinstance(held, bytes) else base64.b64decode(text(held), validate=True)).hex().upper()


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= _FLOAT4_MAX:
        raise ValueError(f"{value!r:.60} is no number of a vector")
    return shortest(float(value))


def _printed(number: float) -> str:
    if _EXPONENT_FROM <= abs(number) < _PYTHON_TOO:
        digits, _, exponent = f"{number:.8e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{exponent}"
    return repr(number).removesuffix(".0")


def array_of(convert: Converter | None) -> Converter:
    """A converter for an array whose elements need ``convert``. Debezium delivers one dimension only."""
    if convert is None:
        return _list

    def elements(values: Any) -> list[Any]:
        return [None if value is None else convert(value) for value in _list(values)]

    return elements


def _list(values: Any) -> list[Any]:
    if type(values) is not list:
        raise TypeError(f"expected an array, got {type(values).__name__}")
    return values
