"""A reader for one Avro schema, as Python that is made for it: fastavro looks at the schema anew for every value.

Twice as fast as fastavro for Debezium's events, which are wide rows of small nullable values. What it does not
know (enums, fixed, unions of many, records within themselves) it leaves to fastavro: ``compiled`` gives None. Values
are as JSON shows them, see cdc/records/debezium_avro.py; a test compares the two readers on random rows.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from math import isfinite, isnan
from typing import Any

Reader = Callable[[bytes, int], tuple[Any, int]]
# An array of values that take no bytes could be told in a few bytes and fill the memory.
MOST_EMPTY = 100_000
_FLOAT = struct.Struct(">f")
# struct's letter, size, and what shows the value as JSON does.
_CODES = {"float": ("f", 4, "float4"), "double": ("d", 8, "float8")}


class _UnknownError(Exception):
    """A kind of schema that is left to fastavro."""


def compiled(schema: Any, names: Mapping[str, str]) -> Reader | None:
    """The reader of a schema: (bytes, where to begin) -> (value, where it ends).

    It raises ValueError or IndexError for bytes that are not of the schema.

    Args:
        schema: parsed JSON of the schema, a record.
        names: field -> the name it gets instead.

    Returns:
        None for a schema that has a part which is not known here.
    """
    maker = _Maker(names)
    try:
        top = maker.record(schema, "")
    except _UnknownError:
        return None
    space: dict[str, Any] = dict(_HELPERS)
    exec("\n".join(maker.functions), space)  # noqa: S102 (made here; of the schema only quoted names are in it)
    reader: Reader = space[top]
    return reader


class _Maker:
    """Writes a function for each record and each array."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.functions: list[str] = []
        self.records: dict[str, str] = {}
        self.open: set[str] = set()

    def record(self, schema: Mapping[str, Any], space: str) -> str:
        """The name of the function that reads a record."""
        full, space = _full_name(schema["name"], schema.get("namespace"), space)
        self.open.add(full)
        lines, pairs = [], []
        for number, field in enumerate(schema["fields"]):
            lines += self.value(field["type"], f"v{number}", space, "    ")
            pairs.append(f"{self.names.get(field['name'], field['name'])!r}: v{number}")
        self.open.discard(full)
        name = f"r{len(self.functions)}"
        self.functions.append("\n".join([f"def {name}(b, p):", *lines, f"    return {{{', '.join(pairs)}}}, p"]))
        self.records[full] = name
        return name

    def value(self, schema: Any, to: str, space: str, pad: str) -> list[str]:  # noqa: PLR0911 (one return a kind)
        """Lines that read a value at ``p`` into the variable ``to``."""
        if isinstance(schema, list):
            return self.union(schema, to, space, pad)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.value(kind, to, space, pad)
        if kind == "record":
            return [f"{pad}{to}, p = {self.record(schema, space)}(b, p)"]
        if kind in ("array", "map"):
            return [f"{pad}{to}, p = {self.many(schema, space)}(b, p)"]
        if kind in _CODES:
            code, size, show = _CODES[kind]
            return [f"{pad}({to},) = unpack_{code}(b, p)", f"{pad}p += {size}", f"{pad}{to} = {show}({to})"]
        if kind in _LINES:
            return [pad + line.replace("TO", to) for line in _LINES[kind]]
        full, _ = _full_name(kind, None, space)
        if full in self.open or full not in self.records:
            raise _UnknownError
        return [f"{pad}{to}, p = {self.records[full]}(b, p)"]

    def union(self, schemas: list[Any], to: str, space: str, pad: str) -> list[str]:
        """One that is null or a value: all that Connect writes."""
        if len(schemas) != 2 or "null" not in schemas:
            raise _UnknownError
        null = schemas.index("null")
        inner = self.value(schemas[1 - null], to, space, pad + "    ")
        return [
            f"{pad}n = b[p]",
            f"{pad}p += 1",
            f"{pad}if n == {2 - 2 * null}:",
            *inner,
            f"{pad}elif n == {2 * null}:",
            f"{pad}    {to} = None",
            f"{pad}else:",
            f"{pad}    raise ValueError(f'a union of two has no branch {{n}}')",
        ]

    def many(self, schema: Mapping[str, Any], space: str) -> str:
        """The name of the function that reads an array or a map."""
        array = schema["type"] == "array"
        inner = self.value(schema["items" if array else "values"], "v", space, " " * 12)
        key = [] if array else [" " * 12 + line.replace("TO", "k") for line in _LINES["string"]]
        add = "out.append(v)" if array else "out[k] = v"
        name = f"r{len(self.functions)}"
        self.functions.append(
            "\n".join(
                [
                    f"def {name}(b, p):",
                    f"    out = {'[]' if array else '{}'}",
                    "    while True:",
                    "        count, p = number(b, p)",
                    "        if not count:",
                    "            return out, p",
                    "        if count < 0:",
                    "            count = -count",
                    "            n, p = number(b, p)",
                    f"        if count > len(b) - p + {MOST_EMPTY}:",
                    "            raise ValueError('more items than bytes')",
                    "        for _ in range(count):",
                    *key,
                    *inner,
                    f"            {add}",
                ]
            )
        )
        return name


def _full_name(name: str, namespace: str | None, space: str) -> tuple[str, str]:
    """(full name, the namespace in it), as Avro tells them."""
    if "." in name:
        return name, name.rpartition(".")[0]
    inside = space if namespace is None else namespace
    return (f"{inside}.{name}" if inside else name), inside


def _number(b: bytes, p: int) -> tuple[int, int]:
    """A whole number of any length: seven bits a byte, zigzag."""
    n = shift = 0
    while True:
        c = b[p]
        p += 1
        n |= (c & 127) << shift
        if c < 128:
            return (n >> 1) ^ -(n & 1), p
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def base64_text(value: bytes) -> str:
    """Bytes as JSON shows them."""
    return base64.b64encode(value).decode()


def float4(value: float) -> float | str:
    """The shortest decimal that is this number among those of four bytes, as Java prints it."""
    if not isfinite(value):
        return word(value)
    packed = _FLOAT.pack(value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.pack(short) == packed:
                return short
        except OverflowError:  # rounded up past the largest
            continue
    return float(f"{value:.9g}")


def float8(value: float) -> float | str:
    """A number, or the word for what JSON has no number for."""
    return value if isfinite(value) else word(value)


def word(value: float) -> str:
    """NaN and the infinities."""
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


_SLICE = (
    "n = b[p]",
    "p += 1",
    "if n > 127:",
    "    n, p = number(b, p - 1)",
    "    n += n",
    "e = p + (n >> 1)",
    "if n & 1 or e < p or e > len(b):",
    "    raise ValueError('text or bytes that are longer than the record')",
)
_NUMBER = (
    "n = b[p]",
    "p += 1",
    "if n > 127:",
    "    TO, p = number(b, p - 1)",
    "else:",
    "    TO = (n >> 1) ^ -(n & 1)",
)
_LINES = {
    "null": ("TO = None",),
    "boolean": ("n = b[p]", "p += 1", "if n > 1:", "    raise ValueError('neither true nor false')", "TO = n == 1"),
    "int": _NUMBER,
    "long": _NUMBER,
    "string": (*_SLICE, "TO = b[p:e].decode()", "p = e"),
    "bytes": (*_SLICE, "TO = base64_text(b[p:e])", "p = e"),
}
_HELPERS = {
    "number": _number,
    "base64_text": base64_text,
    "float4": float4,
    "float8": float8,
    "unpack_f": struct.Struct("<f").unpack_from,
    "unpack_d": struct.Struct("<d").unpack_from,
}
