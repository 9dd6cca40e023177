"""Properties of the codec: two roads to one value, order, injectivity, and no input that gets out of hand."""

from __future__ import annotations

import base64
import json
import string
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc import types
from cdc.catalogue import Column, Table
from cdc.errors import DecodeError, StateError
from cdc.keys import document_id, split_id
from cdc.records.change import Change
from cdc.records.debezium_json import Decoder
from cdc.records.position import MAX_EPOCH, MAX_LSN, format_lsn, pack, parse_lsn, unpack
from cdc.types.results import canonical_result
from cdc.view import View
from truth import values as truth

# A shared machine may pause any test for longer than hypothesis would allow one example.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")

EPOCHS, LSNS = st.integers(0, MAX_EPOCH), st.integers(0, MAX_LSN)
TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.tuples(EPOCHS, LSNS), st.tuples(EPOCHS, LSNS))
def test_positions_order_by_epoch_then_lsn(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert unpack(pack(*one)) == one
    assert (pack(*one) < pack(*other)) == (one < other)
    assert 0 <= pack(*one) < 2**63


@given(st.integers(), st.integers())
def test_positions_never_overflow_silently(epoch: int, lsn: int) -> None:
    if 0 <= epoch <= MAX_EPOCH and 0 <= lsn <= MAX_LSN:
        assert unpack(pack(epoch, lsn)) == (epoch, lsn)
    else:
        with pytest.raises(StateError):
            pack(epoch, lsn)


@given(st.integers(0, 2**64 - 1))
def test_lsn_notation(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@given(TEXTS)
@example("")
@example("0/1x")
@example("123456789/0")
def test_lsn_notation_refuses_the_rest(text: str) -> None:
    """A position is two numbers of at most eight hexadecimal digits each; anything else is refused as a whole."""
    numbers = text.split("/")
    if len(numbers) == 2 and all(1 <= len(one) <= 8 and set(one) <= set(string.hexdigits) for one in numbers):
        assert parse_lsn(text) >= 0
    else:
        with pytest.raises(ValueError, match="not a position in the log"):
            parse_lsn(text)


KEYS = st.one_of(TEXTS, st.text("|\\a", max_size=6), st.integers(), st.booleans())


def test_ids_are_as_documented() -> None:
    """docs/sinks.md tells readers how to make one, and how to take one apart."""
    page = Path(__file__).parents[2].joinpath("docs/sinks.md").read_text()
    for values in (["a|b", "c"], ["a", "b|c"], ["C:\\tmp"], ["C:\\tmp", 7]):
        assert split_id(document_id(values), len(values)) == [str(value) for value in values]
    assert "`C:\\tmp` alone is the id `" + document_id(["C:\\tmp"]) + "`" in page
    assert "it becomes `" + document_id(["C:\\tmp", 7]) + "`" in page


@given(st.lists(KEYS, min_size=1, max_size=4), st.lists(KEYS, min_size=1, max_size=4))
def test_ids_are_injective(one: list[Any], other: list[Any]) -> None:
    kinds = [type(value) for value in one]
    if len(other) == len(one) and [type(value) for value in other] == kinds:
        assert (document_id(one) == document_id(other)) == (one == other)
    texts = [value if isinstance(value, str) else document_id([value]) for value in one]
    assert split_id(document_id(one), len(one)) == texts


# -- two roads: Debezium's raw value through the codec, Postgres's text through the independent rendering -------------

_EPOCH = datetime(1970, 1, 1)


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // timedelta(microseconds=1)


def _pg_stamp(value: datetime) -> str:
    text = value.isoformat(sep=" ")
    return text.rstrip("0") if "." in text else text


def _pg_array(items: list[str | None]) -> str:
    def quoted(item: str | None) -> str:
        return "NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + ",".join(map(quoted, items)) + "}"


def _pg_hstore(items: dict[str, str | None]) -> str:
    def quoted(item: str | None) -> str:
        return "NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'

    printed = sorted(items.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))
    return ", ".join(f"{quoted(key)}=>{quoted(value)}" for key, value in printed)


DATETIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))
DECIMALS = st.decimals(Decimal("-99999999.99"), Decimal("99999999.99"), places=2, allow_nan=False)
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: format(d, "f"))
CASES: dict[str, tuple[Column, st.SearchStrategy[tuple[Any, str]]]] = {
    "int8": (Column("c", "bigint", "int8"), st.integers(-(2**63), 2**63 - 1).map(lambda n: (n, str(n)))),
    "bool": (Column("c", "boolean", "bool"), st.booleans().map(lambda b: (b, "t" if b else "f"))),
    "float8": (
        Column("c", "double precision", "float8"),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda f: (f, repr(f))),
    ),
    "numeric": (Column("c", "numeric", "numeric"), NUMBERS.map(lambda text: (text, text))),
    "numeric(10,2)": (
        Column("c", "numeric(10,2)", "numeric", 10, 2),
        DECIMALS.map(lambda d: (format(d, "f"), format(d, "f"))),
    ),
    "text": (Column("c", "text", "text"), TEXTS.map(lambda text: (text, text))),
    "jsonb": (
        Column("c", "jsonb", "jsonb"),
        JSON.map(lambda value: json.dumps(value, indent=1)).map(lambda text: (text, text)),
    ),
    "bytea": (
        Column("c", "bytea", "bytea"),
        st.binary().map(lambda raw: (base64.b64encode(raw).decode(), "\\x" + raw.hex())),
    ),
    "timestamp": (
        Column("c", "timestamp without time zone", "timestamp"),
        DATETIMES.map(lambda at: (_micros(at), _pg_stamp(at))),
    ),
    "timestamptz": (
        Column("c", "timestamp with time zone", "timestamptz"),
        DATETIMES.map(lambda at: (at.isoformat(timespec="microseconds") + "Z", _pg_stamp(at) + "+00")),
    ),
    "date": (
        Column("c", "date", "date"),
        st.dates(date(1, 1, 1), date(9999, 12, 31)).map(lambda d: (d.toordinal() - 719_163, d.isoformat())),
    ),
    "time": (
        Column("c", "time without time zone", "time"),
        st.times().map(lambda t: (_micros(datetime.combine(date(1970, 1, 1), t)), _pg_time(t))),
    ),
    "text[]": (
        Column("c", "text[]", "text", array=True),
        st.lists(st.none() | TEXTS.filter(lambda t: not t.startswith("[L")), max_size=5).map(
            lambda items: (items, _pg_array(items))
        ),
    ),
    "hstore": (
        Column("c", "hstore", "hstore"),
        st.dictionaries(TEXTS, st.none() | TEXTS, max_size=5).map(lambda d: (orjson.dumps(d).decode(), _pg_hstore(d))),
    ),
    "bit(9)": (
        Column("c", "bit(9)", "bit"),
        st.integers(0, 511).map(lambda n: (base64.b64encode(n.to_bytes(2, "little")).decode(), f"{n:09b}")),
    ),
}


def _pg_time(value: time) -> str:
    text = value.isoformat()
    return text.rstrip("0") if "." in text else text


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_two_roads_lead_to_one_value(name: str, data: st.DataObject) -> None:
    column, pairs = CASES[name]
    raw, text = data.draw(pairs)
    table = Table("public", "t", (Column("id", "integer", "int4"), column), ("id",))
    view = View.identity(table)
    change = Decoder(table).decode(b'{"id":1}', _event({"id": 1, "c": raw}), "t", 0, 0)
    if change.unavailable:
        return
    assert view.render(change) == truth.Documents(view)({"id": "1", "c": text})
    _arrow_takes(view, change)
    if name != "jsonb":
        document = orjson.loads(view.render(change)[1] or b"")
        arrow = pa.array([view.typed_row(change)[1]], types.arrow_type(column))[0].as_py()
        if column.base_type not in ("hstore", "numeric") or column.precision:
            # What Spark would give back for the column itself is what the document says.
            assert canonical_result(arrow) == document["c"]


def _event(after: Any, **source: Any) -> bytes:
    block = {
        "schema": "public",
        "table": "t",
        "lsn": 9,
        "sequence": '["5","9"]',
        "snapshot": "false",
        "ts_ms": 1,
    }
    return orjson.dumps({"op": "c", "before": None, "after": after, "source": block | source})


def _arrow_takes(view: View, change: Change) -> None:
    """Every value of a typed row is one that Arrow takes: one that it refused would fail the whole batch."""
    for value, field in zip(view.typed_row(change), view.arrow_schema(), strict=True):
        pa.array([value], field.type)


# -- no input gets out of hand --------------------------------------------------------------------------------

EVERY_TYPE = Table(
    "public",
    "t",
    (
        Column("id", "integer", "int4"),
        *(Column(f"c_{name}", name, name) for name in types.RULES),
        *(Column(f"a_{name}", f"{name}[]", name, array=True) for name in types.RULES),
        Column("n", "numeric(10,2)", "numeric", 10, 2),
        Column("neg", "numeric(5,-2)", "numeric", 5, -2),
        Column("bits", "bit(12)", "bit"),
        Column("lsn", "pg_lsn", "pg_lsn"),
    ),
    ("id",),
)
NAMES = [column.name for column in EVERY_TYPE.columns]
WORDS = st.sampled_from(
    ["NaN", "infinity", "NAN", "AA==", "P1D", "{}", "2013-01-01T00:00:00Z", "+99-Z", "Z", "T:Z", ""]
)
ODD = JSON | WORDS | st.lists(WORDS | JSON, max_size=3) | st.integers() | st.text(string.digits + "+-:.TZP")


@settings(max_examples=400)
@given(after=st.dictionaries(st.sampled_from(NAMES) | TEXTS, ODD, max_size=8))
@example(after={"id": None, "c_timestamp": False})
@example(after={"id": None, "c_date": True})
def test_any_row_is_a_document_or_an_error(after: dict[str, Any]) -> None:
    try:
        change = Decoder(EVERY_TYPE).decode(
            b'{"id":1}', json.dumps({**json.loads(_event({})), "after": after}).encode(), "t", 0, 0
        )
    except DecodeError:
        return
    view = View.identity(EVERY_TYPE)
    try:
        identity, document = view.render(change)
        assert identity == "1"
        assert document is not None
        assert b"\n" not in document, "a line break would cut a bulk request's line in two"
    except DecodeError as error:
        assert "t/0/0" in error.what
    try:
        _arrow_takes(view, change)
    except DecodeError as error:
        assert "t/0/0" in error.what


@settings(max_examples=300)
@given(st.none() | st.binary() | JSON.map(orjson.dumps), st.none() | st.binary() | JSON.map(orjson.dumps))
def test_any_bytes_are_a_change_or_an_error(key: bytes | None, value: bytes | None) -> None:
    try:
        assert isinstance(Decoder(EVERY_TYPE).decode(key, value, "t", 0, 0), Change)
    except DecodeError as error:
        assert "t/0/0" in error.what


@given(
    st.dictionaries(
        st.sampled_from(["lsn", "sequence", "snapshot", "ts_ms", "table", "schema"]),
        JSON | st.text('[]",0123456789nul', max_size=20),
        max_size=4,
    )
)
def test_any_source_block_is_a_position_or_an_error(source: dict[str, Any]) -> None:
    try:
        change = Decoder(EVERY_TYPE, snapshot_lsn=50).decode(b'{"id":1}', _event({"id": 1}, **source), "t", 0, 0)
        assert 0 < change.position < 2**63
        assert isinstance(change.ts_ms, int)
    except DecodeError as error:
        assert "t/0/0" in error.what


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | TEXTS
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.dates()
    | DATETIMES
    | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
    | st.timedeltas(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.integers(-(2**63), 2**63 - 1), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS.filter(lambda name: name != "base"), VALUES, max_size=4))
def test_whatever_spark_computes_joins_the_document(computed: dict[str, Any]) -> None:
    merged = orjson.loads(types.merge_fields(b'{"base":1.10}', computed))
    assert merged.keys() == {"base", *computed}
