"""Debezium's change events as Avro in Confluent's framing: a zero byte, a schema's id (four bytes), the event.

Decoding gives what orjson gives of the same event as JSON, so that everything behind it is the same code: bytes become
base64, floats the shortest decimal of four bytes, NaN and the infinities words; Kafka Connect's logical types (dates)
are the raw numbers that JSON shows. A reader is made for each schema (cdc/records/avro_reader.py); what that does not
know is read by fastavro, with logical types of ours that are put into the schema once. fastavro also checks and writes.

A value that begins with ``{`` is JSON: so a pipeline may change its format while it lives.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

import orjson
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import LOGICAL_READERS

from cdc.catalogue import Table
from cdc.records.avro_reader import Reader, base64_text, compiled, float4, float8
from cdc.records.encoding import JSON
from cdc.records.placeholders import TEXT, UUID, marks_of

HEAD = struct.Struct(">bI")
_ESCAPED = re.compile(r"(?:_u[0-9a-f]{4})+")
_ROW = ("after", "before")
# Avro's primitive types whose values JSON shows in another way -> our logical type.
_OURS = {"bytes": "debezium-base64", "float": "debezium-float4", "double": "debezium-float8"}


class Parsed(NamedTuple):
    """A writer's schema, ready for use.

    Attributes:
        read: made for it, or None.
        reading: for fastavro, with our logical types.
        writing: as it is in the registry.
        names: field of a row -> column, where the two differ.
    """

    read: Reader | None
    reading: Any
    writing: Any
    names: Mapping[str, str]


class Avro:
    """Values as Avro.

    Args:
        schema: the parsed schema of an id; raises UnknownSchemaId, ValueError or RegistryError. It keeps what it has
            parsed: it is asked for every record.
    """

    def __init__(self, schema: Callable[[int], Parsed]) -> None:
        self._schema = schema

    def loads(self, value: bytes) -> Any:
        """Decode.

        Raises:
            ValueError: no Avro, or of another schema than its id says.
            RegistryError: the registry can't be asked.
        """
        if value[:1] == b"{":
            return orjson.loads(value)
        number = _number(value)
        schema = self._schema(number)
        try:
            event, end = schema.read(value, HEAD.size) if schema.read else _by_fastavro(value, schema)
        except Exception as error:  # whatever bytes of another schema lead to
            raise ValueError(f"it is not Avro of schema {number}: {type(error).__name__} {error}") from error
        if end != len(value):
            raise ValueError(f"it is not Avro of schema {number}: {len(value) - end} bytes are left")
        return event

    def marks(self, table: Table) -> tuple[bytes, ...]:
        """Text and bytes stand as they are; an array of numbers can't be told: its rows are looked at one by one.
        Values from before a change of the format are JSON still, so that one's forms count too."""
        forms = marks_of(table)
        if not forms:
            return ()
        return (b"",) if any(b"," in form for form in forms) else tuple({*forms, TEXT.encode(), UUID.encode()})

    def dumps(self, event: Mapping[str, Any], like: bytes) -> bytes:
        """An event of ours (a delete) by the schema of another value.

        Raises:
            ValueError, RegistryError: as ``loads`` of ``like``; the event lacks a field.
        """
        if like[:1] == b"{":
            return JSON.dumps(event, like)
        number = _number(like)
        out = BytesIO()
        out.write(HEAD.pack(0, number))
        schemaless_writer(out, self._schema(number).writing, dict(event))
        return out.getvalue()


def _number(value: bytes) -> int:
    if len(value) < HEAD.size or value[0] != 0:
        raise ValueError("it is not Avro as a schema registry's users write it: it does not begin with a zero byte")
    number: int = HEAD.unpack_from(value)[1]
    return number


def _by_fastavro(value: bytes, schema: Parsed) -> tuple[Any, int]:
    stream = BytesIO(value)
    stream.seek(HEAD.size)
    event: Any = schemaless_reader(stream, schema.reading, None)
    if schema.names:
        for part in _ROW:
            if row := event.get(part):
                event[part] = {schema.names.get(name, name): item for name, item in row.items()}
    return event, stream.tell()


def parse(text: str) -> Parsed:
    """Make a schema of the registry ready.

    Raises:
        ValueError: it is not a record of Avro.
    """
    try:
        plain = json.loads(text)
        if not isinstance(plain, dict) or plain.get("type") != "record":
            raise ValueError("it is not a record")
        names: dict[str, str] = {}
        _collect(plain, names)
        reading, writing = parse_schema(_prepared(plain)), parse_schema(plain)
        return Parsed(compiled(plain, names), reading, writing, names)
    except ValueError:
        raise
    except Exception as error:  # fastavro has a family of its own
        raise ValueError(f"the schema can't be used: {error}") from error


def _prepared(schema: Any) -> Any:
    """The schema with our logical types, without those of others."""
    if isinstance(schema, list):
        return [_prepared(one) for one in schema]
    if isinstance(schema, str):
        return {"type": schema, "logicalType": _OURS[schema]} if schema in _OURS else schema
    out = {key: value for key, value in schema.items() if key != "logicalType"}
    kind = schema["type"]
    if kind == "record":
        out["fields"] = [{**field, "type": _prepared(field["type"])} for field in schema["fields"]]
    elif kind == "array":
        out["items"] = _prepared(schema["items"])
    elif kind == "map":
        out["values"] = _prepared(schema["values"])
    elif isinstance(kind, str):
        if kind in _OURS:
            out["logicalType"] = _OURS[kind]
    else:
        return _prepared(kind)
    return out


def _collect(schema: Any, names: dict[str, str]) -> None:
    """Note every field name that is an escaped one."""
    if isinstance(schema, list):
        for one in schema:
            _collect(one, names)
    elif isinstance(schema, dict):
        for field in schema.get("fields", ()):
            if (name := unescaped(field["name"])) != field["name"]:
                names[field["name"]] = name
            _collect(field["type"], names)
        if isinstance(schema.get("type"), dict | list):
            _collect(schema["type"], names)


def unescaped(name: str) -> str:
    """A column's name from a field's: ``_uXXXX`` is a character (one half of it, beyond the first 65,536)."""
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("_u", "")).decode("utf-16-be"), name)


LOGICAL_READERS["bytes-debezium-base64"] = lambda value, *_: base64_text(value)
LOGICAL_READERS["float-debezium-float4"] = lambda value, *_: float4(value)
LOGICAL_READERS["double-debezium-float8"] = lambda value, *_: float8(value)
