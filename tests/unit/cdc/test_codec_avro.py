"""Avro: decoding gives what JSON gives, escaped names come back, what is no Avro is told as such."""

from __future__ import annotations

import base64
import json
import struct
from io import BytesIO
from math import isnan
from typing import Any

import orjson
import pytest
from fastavro import schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from cdc.catalogue import Column, Table
from cdc.errors import DecodeError, RegistryUnavailable, UnknownSchema
from cdc.records.change import Op
from cdc.records.debezium_avro import HEAD, Avro, Parsed, parse, unescaped
from cdc.records.debezium_json import Decoder, snapshot_lsn
from cdc.records.encoding import JSON
from cdc.records.placeholders import NUMBERS
from connectors.snapshots.cut_snapshot import delete_event
from tests.support.avro_cases import AVRO, PLACE, known, written

TABLE = Table(
    "public",
    "t",
    (
        Column("id", "integer", "int4", nullable=False),
        Column("Größe 1", "text", "text"),
        Column("raw", "bytea", "bytea"),
        Column("f4", "real", "float4"),
        Column("f8", "double precision", "float8"),
        Column("many", "bytea[]", "bytea", array=True),
    ),
    ("id",),
)


# What the made reader leaves to fastavro must come to the same.
SLOW = Avro(lambda number: known(number)._replace(read=None))


def decode(value: bytes | None) -> Any:
    return Decoder(TABLE, encoding=AVRO).decode(b'{"id":1}', value, "p.public.t", 0, 3)


@given(
    raw=st.none() | st.binary(max_size=50),
    f4=st.none() | st.floats(width=32),
    f8=st.none() | st.floats(),
    text=st.none() | st.text(),
    many=st.none() | st.lists(st.none() | st.binary(max_size=5), max_size=4),
)
def test_a_row_is_what_json_makes_of_it(raw: Any, f4: Any, f8: Any, text: Any, many: Any) -> None:
    row = {"id": 1, "Gr_u00f6_u00dfe_u00201": text, "raw": raw, "f4": f4, "f8": f8, "many": many, "day": 12}
    value = written(row)
    assert orjson.dumps(AVRO.loads(value)) == orjson.dumps(SLOW.loads(value))
    change = decode(value)
    after = change.after
    assert after["Größe 1"] == text
    assert after["raw"] == (None if raw is None else base64.b64encode(raw).decode())
    assert after["many"] == (many and [None if one is None else base64.b64encode(one).decode() for one in many])
    assert after["day"] == 12  # Kafka Connect's logical types are not fastavro's dates
    for name, value in (("f4", f4), ("f8", f8)):
        if value is None or value in (float("inf"), float("-inf")) or isnan(value):
            assert after[name] == (
                None if value is None else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
            )
        else:
            assert struct.pack(">d" if name == "f8" else ">f", after[name]) == struct.pack(
                ">d" if name == "f8" else ">f", value
            )
    assert (change.op, change.position & (1 << 48) - 1, change.ts_ms) == (Op.CREATE, 70, 5)
    assert orjson.loads(orjson.dumps(after)) == after


@pytest.mark.parametrize(
    ("value", "shown"), [(0.1, "0.1"), (16777217.0, "16777216.0"), (3.4028234663852886e38, "3.4028235e+38")]
)
def test_a_float_of_four_bytes_has_its_shortest_digits(value: float, shown: str) -> None:
    row = dict.fromkeys(("Gr_u00f6_u00dfe_u00201", "raw", "f8", "many", "day")) | {"id": 1, "f4": value}
    assert orjson.dumps(decode(written(row)).after["f4"]) == shown.encode()


def test_a_tombstone_is_one_and_json_is_still_read() -> None:
    assert decode(None).op is Op.TOMBSTONE
    change = decode(orjson.dumps({"before": None, "after": {"id": 1}, "source": PLACE, "op": "u"}))
    assert (change.op, change.after) == (Op.UPDATE, {"id": 1})


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (b"", DecodeError, "does not begin with a zero byte"),
        (b"garbage", DecodeError, "does not begin with a zero byte"),
        (b"\0\0\0", DecodeError, "does not begin with a zero byte"),
        (HEAD.pack(0, 8) + b"x", UnknownSchema, "no schema 8"),
        (HEAD.pack(0, 7), DecodeError, "not Avro of schema 7"),
        (HEAD.pack(0, 7) + b"\xff" * 40, DecodeError, "not Avro of schema 7"),
        (written(None, "d") + b"more", DecodeError, "4 bytes are left"),
        (written(None, "?"), DecodeError, "p.public.t/0/3"),
    ],
)
def test_what_is_no_record_is_told(value: bytes, kind: type[DecodeError], words: str) -> None:
    with pytest.raises(DecodeError, match=words) as caught:
        decode(value)
    assert type(caught.value) is kind
    assert "p.public.t/0/3" in str(caught.value)


@given(st.data())
def test_the_made_reader_reads_what_fastavro_reads(data: Any) -> None:
    schema = {"type": "record", "name": "r", "namespace": "n", "fields": data.draw(FIELDS)}
    parsed = parse(json.dumps(schema))
    assert parsed.read is not None
    row = {field["name"]: data.draw(value_of(field["type"])) for field in schema["fields"]}
    out = BytesIO()
    out.write(HEAD.pack(0, 1))
    schemaless_writer(out, parsed.writing, row)
    made = Avro(lambda number: parsed).loads(out.getvalue())
    slow = Avro(lambda number: parsed._replace(read=None)).loads(out.getvalue())
    assert list(made) == list(slow)
    assert repr(made) == repr(slow)


KINDS: Any = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "float", "double", "string", "bytes"]),
    lambda inner: st.one_of(
        inner.filter(lambda kind: kind != "null" and not isinstance(kind, list)).map(lambda kind: ["null", kind]),
        inner.filter(lambda kind: kind != "null" and not isinstance(kind, list)).map(lambda kind: [kind, "null"]),
        inner.map(lambda kind: {"type": "array", "items": kind}),
        inner.map(lambda kind: {"type": "map", "values": kind}),
    ),
    max_leaves=4,
)
FIELDS = st.lists(KINDS, max_size=6).map(
    lambda kinds: [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
)


def value_of(kind: Any) -> Any:
    if isinstance(kind, list):
        return st.none() | value_of(next(one for one in kind if one != "null"))
    if isinstance(kind, dict):
        inner = value_of(kind.get("items") or kind["values"])
        small = st.text(max_size=3)
        return st.lists(inner, max_size=3) if kind["type"] == "array" else st.dictionaries(small, inner, max_size=3)
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": st.text(),
        "bytes": st.binary(max_size=300),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("long", b"\xff" * 11 + b"\x01"),
        ("string", b"\x14short"),
        ("bytes", b"\x01"),
        ("boolean", b"\x02"),
        (["null", "int"], b"\x04\x02"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00"),
        ("double", b"\0\0"),
    ],
)
def test_bytes_that_are_not_of_the_schema_are_refused(kind: Any, rest: bytes) -> None:
    parsed = parse(json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}))
    assert parsed.read is not None
    with pytest.raises(ValueError, match="not Avro of schema 1"):
        Avro(lambda number: parsed).loads(HEAD.pack(0, 1) + rest)


@pytest.mark.parametrize(
    "kind",
    [
        ["null", "int", "string"],
        {"type": "enum", "name": "e", "symbols": ["a"]},
        {"type": "fixed", "name": "f", "size": 2},
    ],
)
def test_what_is_not_known_is_left_to_fastavro(kind: Any) -> None:
    parsed = parse(json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}))
    assert parsed.read is None
    out = BytesIO()
    out.write(HEAD.pack(0, 1))
    value: Any = {"enum": "a", "fixed": b"ab"}.get(kind["type"], 1) if isinstance(kind, dict) else "text"
    schemaless_writer(out, parsed.writing, {"x": value})
    assert Avro(lambda number: parsed).loads(out.getvalue()) == {"x": value}


@given(st.binary(max_size=80))
def test_no_bytes_bring_the_decoder_down(rest: bytes) -> None:
    for value in (rest, HEAD.pack(0, 7) + rest):
        try:
            decode(value)
        except DecodeError:
            continue


def test_a_registry_that_is_away_is_not_the_records_fault() -> None:
    def away(number: int) -> Parsed:
        raise RegistryUnavailable("it is down")

    with pytest.raises(RegistryUnavailable):
        Decoder(TABLE, encoding=Avro(away)).decode(b'{"id":1}', written(None, "d"), "t", 0, 0)


def test_avro_without_a_registry_is_a_decode_error_that_says_so() -> None:
    with pytest.raises(DecodeError, match=r"source\.registry"):
        Decoder(TABLE, encoding=JSON).decode(b'{"id":1}', written(None, "d"), "t", 0, 0)


def test_deletes_of_ours_are_written_as_the_topic_is() -> None:
    event = delete_event(
        AVRO.loads(written({"id": 1, "raw": None, "f4": None, "f8": None, "many": None}))["source"], 9, 1
    )
    value = AVRO.dumps(event, written(None, "d"))
    assert value[:5] == HEAD.pack(0, 7)
    change = Decoder(TABLE, snapshot_lsn=9, encoding=AVRO).decode(b'{"id":1}', value, "t", 0, 0)
    assert (change.op, change.position & (1 << 48) - 1) == (Op.DELETE, 9)
    assert orjson.loads(AVRO.dumps(event, b'{"op":"c"}')) == event  # a topic that was JSON
    assert snapshot_lsn(written(None, "r"), AVRO) == 70


@given(st.text(min_size=1))
def test_names_survive_escaping(name: str) -> None:
    assert unescaped(escaped(name)) == name


def escaped(name: str) -> str:
    """As deploy/connect/RowAvroConverter.java does it, by UTF-16 units."""
    raw = name.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
    out = []
    for at, unit in enumerate(units):
        rest = [chr(one) for one in units[at + 1 : at + 6]]
        looks = len(rest) == 5 and rest[0] == "u" and all(c in "0123456789abcdef" for c in rest[1:])
        plain = (chr(unit).isascii() and chr(unit).isalpha()) or (unit == ord("_") and not looks)
        out.append(chr(unit) if plain or (at and 48 <= unit <= 57) else f"_u{unit:04x}")
    return "".join(out)


def test_a_placeholder_is_looked_for_in_rows_of_number_arrays_always() -> None:
    numbers = Table("public", "t", (TABLE.columns[0], Column("n", "integer[]", "int4", array=True)), ("id",))
    assert AVRO.marks(numbers) == (b"",)
    assert AVRO.marks(Table("public", "t", TABLE.columns[:1], ("id",))) == ()
    assert b"__debezium_unavailable_value" in AVRO.marks(TABLE)
    # A value that is JSON still, from before the format was changed.
    assert set(JSON.marks(TABLE)) <= set(AVRO.marks(TABLE))
    assert NUMBERS


@pytest.mark.parametrize(
    "text", ["", "[]", '"string"', '{"type":"record"}', '{"type":"record","name":"a","fields":[{}]}']
)
def test_a_schema_that_is_none_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)
