"""Records that are not as they should be, and the views' answers to them."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import orjson
import pytest

from cdc.catalogue import Column, Table
from cdc.errors import DecodeError, UnavailableValue
from cdc.records.change import Op
from cdc.records.debezium_json import Decoder, snapshot_lsn
from cdc.records.placeholders import BASE64, NUMBERS, TEXT, UUID, marks_of
from cdc.records.position import unpack
from cdc.view import View
from tests.support.decoder_cases import ROW, TABLE, event

KEY = orjson.dumps({"a": 1, "b": "x|y"})


def decode(value: bytes | None, key: bytes | None = KEY, **more: Any) -> Any:
    return Decoder(TABLE, **more).decode(key, value, "p.public.t", 3, 17)


@pytest.mark.parametrize(
    ("value", "key", "says"),
    [
        (b"{", KEY, "unexpected end"),
        (b"[]", KEY, "indices"),
        (b"17", KEY, "subscriptable"),
        (b"{}", KEY, "'source'"),
        (event("x"), KEY, "'x'"),
        (event(after=None), KEY, "must have a row"),
        (event(after=[1]), KEY, "must have a row"),
        (event(table="other"), KEY, "of public.other"),
        (event(lsn=None, sequence=None), KEY, "no usable LSN"),
        (event(lsn=-5, sequence=None), KEY, "no usable LSN"),
        (event(lsn=1 << 52, sequence=None), KEY, "no usable LSN"),
        (event(lsn="12", sequence=None), KEY, "no usable LSN"),
        (event(sequence="[nonsense"), KEY, "is not an event"),
        (event(), None, "no key"),
        (event(), b"7", "not a JSON object"),
        (event(), b'{"a":1}', "lacks the column b"),
        (event(), b'{"a":1,"b":null}', "lacks the column b"),
        # Written under another key: a whole row of ours would be taken for what is one half of an update of that key.
        (event(), b'{"a":1,"b":"x","c":2}', "has c besides: the table's key was, or is by now, another one"),
        (None, b'{"a":1,"b":"x","c":2}', "has c besides: the table's key was, or is by now, another one"),
        (None, b"\xff", "is not an event"),
        (b"\xff\xfe", KEY, "is not an event"),
    ],
)
def test_a_bad_record_is_an_error_that_names_it(value: bytes | None, key: bytes | None, says: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(value, key)
    assert "p.public.t/3/17" in caught.value.what
    assert says in caught.value.what
    assert caught.value.means
    assert caught.value.fix


def test_records_with_schemas_are_told_what_to_set() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(b'{"schema":{},"payload":{}}')
    assert "schemas.enable" in caught.value.fix


def test_operations() -> None:
    assert [decode(event(op)).op for op in "rcu"] == [Op.READ, Op.CREATE, Op.UPDATE]
    deleted = decode(event("d", after=None))
    assert (deleted.op, deleted.after, deleted.key) == (Op.DELETE, None, {"a": 1, "b": "x|y"})
    gone = decode(None)
    assert (gone.op, gone.position) == (Op.TOMBSTONE, 0)
    emptied = decode(event("t", after=None), key=None)
    assert (emptied.op, emptied.key) == (Op.TRUNCATE, {})


@pytest.mark.parametrize(
    ("source", "lsn"),
    [
        ({}, 100),
        ({"sequence": '["150","100"]'}, 150),  # another transaction committed at 150 before this one did
        ({"lsn": None, "sequence": '["170","170"]'}, 170),  # incremental snapshot
        ({"sequence": '[null,"100"]'}, 100),
        ({"sequence": None}, 100),
    ],
)
def test_positions(source: dict[str, Any], lsn: int) -> None:
    assert unpack(decode(event(**source), epoch=7).position) == (7, lsn)


def test_the_first_transaction_after_a_snapshot_is_newer_than_the_snapshot() -> None:
    first = {"lsn": 100, "sequence": '[null,"100"]'}
    assert unpack(decode(event(**first), snapshot_lsn=140).position)[1] == 140
    assert unpack(decode(event(lsn=160, sequence='[null,"160"]'), snapshot_lsn=140).position)[1] == 160
    # Only that transaction: all others have their last commit, and old history must not be lifted.
    assert unpack(decode(event(), snapshot_lsn=140).position)[1] == 100
    # A snapshot's own rows stand where they were read.
    assert unpack(decode(event("r", **first, snapshot="true"), snapshot_lsn=140).position)[1] == 100


def test_the_markers_record_gives_the_snapshots_lsn() -> None:
    assert snapshot_lsn(event("r", lsn=77, sequence='[null,"77"]', snapshot="first")) == 77
    assert snapshot_lsn(event("u")) is None
    with pytest.raises(DecodeError):
        snapshot_lsn(b"{}")


def test_rendering() -> None:
    view = View.identity(TABLE)
    identity, document = view.render(decode(event()))
    assert identity == "1|x\\|y"
    assert document == b'{"a":1,"b":"x|y","n":"1.50","at":"2013-01-01T10:00:00Z"}'
    assert view.render(decode(event("d", after=None))) == ("1|x\\|y", None)
    chosen = View("v", TABLE, ("b", "a"), (("at", "when"), ("b", "at")))
    assert chosen.render(decode(event())) == ("x\\|y|1", b'{"when":"2013-01-01T10:00:00Z","at":"x|y"}')


def test_columns_that_came_or_went_since_the_catalogue_was_read() -> None:
    change = decode(event(after={"a": 1, "b": "x", "new": 5, "at": None, "shape": None}))
    assert View.identity(TABLE).render(change)[1] == b'{"a":1,"b":"x","n":null,"at":null}'
    assert View.identity(TABLE).typed_row(change) == (1, "x", None, None)


@pytest.mark.parametrize("value", [1.5, "not a number at all", ["1"], {"scale": 0}, True])
def test_a_value_that_is_not_of_its_columns_type_names_the_column(value: Any) -> None:
    change = decode(event(after=ROW | {"at": value}))
    for use in (View.identity(TABLE).render, View.identity(TABLE).typed_row):
        with pytest.raises(DecodeError) as caught:
            use(change)
        assert "column at of public.t does not hold a timestamp with time zone" in caught.value.what
        assert "p.public.t/3/17" in caught.value.what


def test_an_unavailable_value_stops_only_the_views_that_use_it() -> None:
    change = decode(event(after=ROW | {"b": TEXT}))
    assert change.unavailable == ("b",)
    with pytest.raises(UnavailableValue) as caught:
        View.identity(TABLE).render(change)
    assert "public.t.b" in caught.value.what
    assert "policy.toast" in caught.value.fix
    without = View("v", TABLE, ("a", "b"), (("a", "a"),))
    assert without.render(change)[1] == b'{"a":1}'
    # Spark SQL may look at any column of the row, so a view with expressions uses them all.
    assert View("v", TABLE, ("a", "b"), (("a", "a"),), {"f": "n + 1"}).unavailable(change) == ("b",)
    with pytest.raises(UnavailableValue):
        without.typed_row(change)
    assert without.render(decode(event("d", after=None))) == ("1|x\\|y", None)


def test_a_typed_row_has_nothing_of_a_column_that_the_view_does_not_use() -> None:
    """Retyped at the source, it cost each record of before its row: the table is not read again for it."""
    view, change = View.identity(TABLE), decode(event(after=ROW | {"at": "no time"}))
    assert view.typed_row(change, frozenset("abn")) == (1, "x|y", Decimal("1.50"), None)
    lacking = decode(event(after={name: value for name, value in ROW.items() if name != "n"} | {"at": "no time"}))
    assert view.typed_row(lacking, frozenset("an")) == (1, None, None, None)
    for used in (None, frozenset(("at",))):
        with pytest.raises(DecodeError, match=r"column at of public\.t does not hold"):
            view.typed_row(change, used)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (Column("c", "bytea", "bytea"), BASE64),
        (Column("c", "uuid[]", "uuid", array=True), [UUID]),
        (Column("c", "integer[]", "int4", array=True), NUMBERS),
        (Column("c", "bytea[]", "bytea", array=True), [BASE64]),
        (Column("c", "hstore", "hstore"), f'{{"{TEXT}":"{TEXT}"}}'),
        (Column("c", "pg_lsn", "pg_lsn"), BASE64),
    ],
)
def test_every_form_of_the_placeholder_is_known(column: Column, value: Any) -> None:
    table = Table("public", "t", (TABLE.columns[0], column), ("a",))
    change = Decoder(table).decode(b'{"a":1}', event(after={"a": 1, "c": value}), "t", 0, 0)
    assert change.unavailable == ("c",)
    assert marks_of(Table("public", "t", TABLE.columns[:1])) == ()


def test_a_view_travels_to_executors_and_compiles_itself_there() -> None:
    view = View("v", TABLE, ("a", "b"), (("at", "when"), ("n", "n")), {"f": "n + 1"}, "n > 0")
    change = decode(event())
    view.render(change)
    copy = pickle.loads(pickle.dumps(view))
    assert copy == view
    assert copy.render(change) == view.render(change)
    assert [name for name, _ in view.spark_schema()] == ["a", "b", "n", "at"]  # the box can't be delivered
    assert view.needs_spark
    assert not View.identity(TABLE).needs_spark
