"""Values as people write them to what Debezium's JSON carries: the inverse of the converters, for rows of tests.

A value that does not fit its column is refused, where Postgres would refuse it or make another one of it (rounding,
cutting): a fixture that is not what the table would hold proves nothing.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from ipaddress import ip_interface, ip_network
from typing import Any
from uuid import UUID

import orjson

from cdc.catalogue import Column
from cdc.types import times, values
from cdc.types.limits import unsupported
from cdc.types.rules import RULES, bit_length, type_key

Raw = Callable[[Column, Any], Any]

_BITS = {"int2": 16, "int4": 32, "int8": 64, "oid": 33}
_WORDS = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
# Decimal digits that a double always keeps.
_EXACT = 15
_FLOATS = ("NaN", "Infinity", "-Infinity")
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?")
_ZONE = re.compile(r"(.*\d)\s*(Z|[+-]\d\d(?::?\d\d)?)")
_LENGTH = re.compile(r"\((\d+)\)")
_DAY_US = 86_400_000_000
# Beyond all that Postgres can store: what Debezium gives for infinite dates (cdc/types/times.py).
_DATE_INFINITY = 2_147_483_647


def raw_value(column: Column, value: Any) -> Any:
    """What Debezium's JSON holds for a value.

    Args:
        column: the column.
        value: as YAML or JSON has it; None for NULL.

    Raises:
        ValueError: it does not fit the column; the message says what is wanted.
    """
    if value is None:
        if not column.nullable:
            raise ValueError("it is NOT NULL")
        return None
    reason = unsupported(column)
    if reason is not None:
        raise ValueError(reason)
    other: Raw = _word if type_key(column) in RULES else _unknown
    make = _MAKERS.get(type_key(column), other)
    if not column.array:
        return make(column, value)
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {value!r:.60}")
    if any(isinstance(item, list) for item in value) and type_key(column) not in ("json", "jsonb"):
        raise ValueError("Debezium does not deliver arrays of more than one dimension")
    return [None if item is None else make(column, item) for item in value]


def _text_of(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected {what} in quotes, got {value!r:.60}")
    return value


def _boolean(_column: Column, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {value!r:.60}")
    return value


def _integer(column: Column, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        value = int(value)  # in quotes
    limit = 1 << _BITS[type_key(column)] - 1
    if type(value) is not int or not -limit <= value < limit:
        raise ValueError(f"expected a whole number of {column.type_name}, got {value!r:.60}")
    return value


def _real(_column: Column, value: Any) -> float | str:
    if isinstance(value, str) and value in _FLOATS:
        return value
    if type(value) not in (int, float):
        raise ValueError(f"expected a number, NaN, Infinity or -Infinity, got {value!r:.60}")
    return float(value)


def _numeric(column: Column, value: Any) -> str:
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if type(value) is float and column.scale is None:
        raise ValueError("a number without quotes loses its zeros, and this type keeps them: put it in quotes")
    if type(value) is float and len(Decimal(repr(value)).as_tuple().digits) > _EXACT:
        raise ValueError(f"a number of more than {_EXACT} digits without quotes is rounded: put it in quotes")
    if type(value) not in (int, float, str):
        raise ValueError(f"expected a number, got {value!r:.60}")
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"expected a number, got {value!r:.60}") from None
    if column.precision is None or column.scale is None:
        return f"{number:f}"
    if not number.is_finite() or _scaled(number, column.scale) != number:
        raise ValueError(f"{value} does not fit {column.type_name}: more than {column.scale} digits of a fraction")
    if number.copy_abs() >= Decimal(10) ** (column.precision - column.scale):
        raise ValueError(f"{value} does not fit {column.type_name}")
    return f"{_scaled(number, column.scale):f}"


def _scaled(number: Decimal, scale: int) -> Decimal:
    with localcontext() as context:
        context.prec = 2_000
        if scale >= 0:
            return number.quantize(Decimal(1).scaleb(-scale))
        return number.scaleb(scale).to_integral_value().scaleb(-scale)


def _money(_column: Column, value: Any) -> str:
    money = Column("", "numeric(19,2)", "numeric", precision=19, scale=2)
    return _numeric(money, value)


def _prose(column: Column, value: Any) -> str:
    text = _text_of(value, "text")
    found = _LENGTH.search(column.type_name)
    if found and len(text) > int(found[1]) and type_key(column) in ("varchar", "bpchar"):
        raise ValueError(f"it is longer than {column.type_name}")
    if type_key(column) == "bpchar":
        return text.ljust(int(found[1]) if found else 1)
    return text


def _word(_column: Column, value: Any) -> str:
    return _text_of(value, "text as Postgres prints it")


def _unknown(_column: Column, value: Any) -> str:
    return base64.b64encode(_text_of(value, "text as Postgres prints it").encode()).decode()


def _enum(column: Column, value: Any) -> str:
    if value not in (column.enum_values or ()):
        raise ValueError(f"expected one of {', '.join(column.enum_values or ())}, got {value!r:.60}")
    return str(value)


def _uuid(_column: Column, value: Any) -> str:
    try:
        return str(UUID(_text_of(value, "a uuid")))
    except ValueError:
        raise ValueError(f"expected a uuid, got {value!r:.60}") from None


def _inet(column: Column, value: Any) -> str:
    text = _text_of(value, "an address")
    if type_key(column) == "cidr":
        return str(ip_network(text))
    found = ip_interface(text)
    return str(found) if found.network.prefixlen < found.max_prefixlen else str(found.ip)


def _day(value: Any) -> date:
    try:
        return date.fromisoformat(_text_of(value, "a date"))
    except ValueError:
        raise ValueError(f"expected a date like 2024-02-29, got {value!r:.60}") from None


def _date(_column: Column, value: Any) -> int:
    if value in (times.INFINITY, times.MINUS_INFINITY):
        return _DATE_INFINITY if value == times.INFINITY else -_DATE_INFINITY
    return (_day(value) - date(1970, 1, 1)).days


def _moment(column: Column, value: Any) -> datetime:
    text = _text_of(value, "a time")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected a time like 2024-02-29T10:00:00.5, got {value!r:.60}") from None
    _precise(column, found.microsecond)
    return found


def _precise(column: Column, micros: int) -> None:
    """Postgres rounds to so many digits; a fixture says what is there."""
    found = _LENGTH.search(column.type_name)
    if found and micros % 10 ** (6 - int(found[1])):
        raise ValueError(f"more than {found[1]} digits of a second in a {column.type_name}")


def _timestamp(column: Column, value: Any) -> int:
    if value in (times.INFINITY, times.MINUS_INFINITY):
        return (1 << 63) - 1 if value == times.INFINITY else -(1 << 63)
    found = _moment(column, value)
    if found.tzinfo is not None:
        raise ValueError(f"a {column.type_name} has no zone, got {value!r:.60}")
    return (found - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def _timestamptz(column: Column, value: Any) -> str:
    if value in (times.INFINITY, times.MINUS_INFINITY):
        return str(value)
    found = _moment(column, value)
    if found.tzinfo is None:
        raise ValueError(f"a {column.type_name} needs its zone: {value}Z for UTC, or {value}+02:00")
    moved = found.astimezone(UTC).replace(tzinfo=None)
    return f"{moved.isoformat(timespec='microseconds')}Z"


def _micros_of_day(column: Column, text: str) -> int:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a time of day like 10:00:00.5, got {text!r:.60}")
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[:3])
    micros = int(f"{found[4] or '':0<6}")
    _precise(column, micros)
    made = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros
    if minutes > 59 or seconds > 59 or made > _DAY_US:
        raise ValueError(f"expected a time of day like 10:00:00.5, got {text!r:.60}")
    return made


def _time(column: Column, value: Any) -> int:
    micros = _micros_of_day(column, _text_of(value, "a time of day"))
    if column.array and (micros % 1_000 or micros == _DAY_US):
        raise ValueError("Debezium cuts microseconds in arrays of times, and makes 00:00:00 of 24:00:00")
    return micros


def _timetz(column: Column, value: Any) -> str:
    found = _ZONE.fullmatch(_text_of(value, "a time of day with its zone"))
    if found is None:
        raise ValueError(f"expected a time of day with its zone like 10:00:00+02, got {value!r:.60}")
    micros, zone = _micros_of_day(column, found[1]), found[2]
    if zone != "Z" and any(digit in "123456789" for digit in zone):
        digits = zone[1:].replace(":", "")
        away = (int(digits[:2]) * 60 + int(digits[2:] or 0)) * 60_000_000
        micros = (micros - away if zone[0] == "+" else micros + away) % _DAY_US
    return f"{times.canonical_time(micros)}Z"


def _interval(_column: Column, value: Any) -> str:
    text = _text_of(value, "an interval")
    try:
        values.interval(text)
    except ValueError:
        raise ValueError(f"expected an interval in ISO 8601 like P1DT2H30M, got {value!r:.60}") from None
    return text


def _bytea(_column: Column, value: Any) -> str:
    text = _text_of(value, "bytes")
    try:
        if not text.startswith("\\x"):
            raise ValueError
        return base64.b64encode(bytes.fromhex(text[2:])).decode()
    except ValueError:
        raise ValueError(f"expected bytes as Postgres prints them, like '\\xdeadbeef', got {value!r:.60}") from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _json(column: Column, value: Any) -> str:
    if not isinstance(value, str):
        return orjson.dumps(value).decode()
    try:
        json.loads(value, parse_constant=_no_number)
    except ValueError:
        raise ValueError(
            f"text in a {column.base_type} column is read as JSON, and this is none: write a JSON text "
            f"with its quotes, like '\"{value:.20}\"', or YAML's own lists and mappings"
        ) from None
    return value


def _hstore(_column: Column, value: Any) -> str:
    if not isinstance(value, Mapping) or any(not isinstance(item, str | None) for item in value.values()):
        raise ValueError(f"expected a mapping of texts, got {value!r:.60}")
    return orjson.dumps(value).decode()


def _bits(column: Column, value: Any) -> str | bool:
    length = bit_length(column.type_name)
    text = str(value) if type(value) is int else value
    if not isinstance(text, str) or not re.fullmatch(f"[01]{{{length}}}", text):
        raise ValueError(f"expected {length} bits in quotes, got {value!r:.60}")
    if length == 1:
        return text == "1"
    return base64.b64encode(int(text, 2).to_bytes((len(text) + 7) // 8, "little")).decode()


def _point(column: Column, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or set(value) != {"x", "y"}:
        raise ValueError(f"expected x and y, like {{x: 1.5, y: -2}}, got {value!r:.60}")
    return {name: _real(column, value[name]) for name in ("x", "y")}


def _vector(column: Column, value: Any) -> list[float]:
    text = _text_of(value, "a vector as Postgres prints it, like '[1,2.5,3]',")
    try:
        found = json.loads(text)
        values.vector(found)
    except (ValueError, TypeError):
        raise ValueError(f"expected a vector as Postgres prints it, like '[1,2.5,3]', got {text!r:.60}") from None
    wanted = _LENGTH.search(column.type_name)
    if wanted and len(found) != int(wanted[1]):
        raise ValueError(f"{len(found)} numbers do not fit {column.type_name}")
    form = "e" if type_key(column) == "halfvec" else "f"
    try:
        held = [values.shortest(struct.unpack(form, struct.pack(form, float(number)))[0]) for number in found]
    except OverflowError:
        raise ValueError(f"a number does not fit {column.type_name}") from None
    if held != found:
        raise ValueError(f"more digits than a {type_key(column)} keeps: it would be {values.vector(held)[:60]}")
    return [float(number) for number in found]


_MAKERS: Mapping[str, Raw] = {
    "bool": _boolean,
    **dict.fromkeys(_BITS, _integer),
    **dict.fromkeys(("float4", "float8"), _real),
    "numeric": _numeric,
    "money": _money,
    **dict.fromkeys(("text", "varchar", "bpchar", "citext", "name", "char", "xml"), _prose),
    "enum": _enum,
    "uuid": _uuid,
    **dict.fromkeys(("inet", "cidr"), _inet),
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "time": _time,
    "timetz": _timetz,
    "interval": _interval,
    "bytea": _bytea,
    **dict.fromkeys(("json", "jsonb"), _json),
    "hstore": _hstore,
    "bit": _bits,
    "point": _point,
    **dict.fromkeys(("vector", "halfvec"), _vector),
}
