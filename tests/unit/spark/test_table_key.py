"""Rows whose key a warehouse's table can't hold: none comes near it, and each is a dead letter."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import orjson
import pytest

from cdc import types
from cdc.join.view import JoinedView
from cdc.letters.deadletter import DeadLetter
from cdc.records.change import Change, Op
from cdc.table_key import TableKey
from cdc.view import View
from operations.query import tail
from operations.records.newest import Newest, Record
from operations.verify.repair import warehouse
from operations.verify.repair.work import Refused
from spark.join.engine import Made
from spark.join.table_stage import table_entries
from spark.reading.entries import TALLY, Entry, EntryDecoder
from spark.reading.expressions import PREFIX
from spark.reading.native import NativeReader
from spark.reading.native_raw import AFTER, ROWKEY
from spark.reading.record import batch_of
from spark.reading.spec import FlowSpec
from spark.warehouse import keyless
from tests.support.trees import node, table

PRICES = table("prices", "id valid_to", id="int4", valid_to="timestamptz", price="text")
VIEW = View.identity(PRICES)
TOPIC = "p.public.prices"
END, WHY = "2026-01-01T00:00:00Z", "key column valid_to is infinity, which a table can't hold"


def spec_of(view: View = VIEW) -> FlowSpec:
    return FlowSpec("lake", {view.name: view}, {TOPIC: (view.name,)}, {TOPIC: view.table}, {}, {})


def record(offset: int, key: dict[str, Any], *, gone: bool = False, of: str = "prices") -> Record:
    source = {"schema": "public", "table": of, "lsn": 80 + offset, "ts_ms": 1, "sequence": f'[null,"{80 + offset}"]'}
    after = None if gone else key | {"price": "1"}
    value = {"op": "d" if gone else "u", "source": source, "before": None, "after": after}
    return Record(orjson.dumps(key), orjson.dumps(value), TOPIC, 0, offset)


FOREVER = {"id": 1, "valid_to": "infinity"}
ENDED = {"id": 1, "valid_to": END}


# -- which values they are ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("timestamptz", END),
        ("timestamptz", "infinity"),
        ("timestamptz", "-infinity"),
        ("timestamptz", "+294250-01-01T00:00:00Z"),
        ("timestamptz", "-0043-03-15T00:00:00Z"),
        ("timestamp", (1 << 63) - 1),
        ("timestamp", -(1 << 63)),
        ("timestamp", 1_000_000),
        ("timestamp", 253_402_300_800_000_000),
        ("date", 2_147_483_647),
        ("date", -2_147_483_648),
        ("date", 20_000),
        ("date", 2_932_897),
        ("numeric(8,2)", "NAN"),
        ("numeric(8,2)", "1.50"),
        ("numeric", "NAN"),
        ("numeric", "POSITIVE_INFINITY"),
        ("text", "infinity"),
        ("text", "NaN"),
        ("float8", "NaN"),
    ],
)
def test_a_key_has_no_place_exactly_where_its_typed_value_is_null(kind: str, raw: Any) -> None:
    of = table("t", "a k", a="text", k=kind)
    view, key = View.identity(of), {"a": "x|y", "k": raw}
    column = of.by_name["k"]
    convert = types.arrow_converter(column)
    typed = raw if convert is None else convert(raw)
    identity = view.document_id(Change("public.t", Op.TOMBSTONE, key, None, 0, "", 0, 0, 0))
    why = TableKey.of(view).unheld(identity)
    assert (why is not None) is (typed is None)
    assert why is None or f"key column k is {identity.rpartition('|')[2]}, which a table can't hold" in why


def test_of_most_keys_nothing_is_asked() -> None:
    plain = TableKey.of(View.identity(table("t", "a b", a="text", b="int8", c="date")))
    assert plain.lacking == () and plain.unheld("NaN|infinity") is None
    assert TableKey.of(VIEW).lacking == ("valid_to",)
    assert TableKey.of(VIEW).unheld("1|null") is None, "another matter than a value without a place"


# -- rows of one table -------------------------------------------------------------------------------------------------


def test_such_a_row_is_a_letter_and_no_entry_and_its_delete_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[DeadLetter]()
    monkeypatch.setattr("cdc.log.letters.send", lambda _settings, letters: sent.extend(letters))
    records = [record(0, ENDED), record(1, FOREVER), record(2, {"id": 2, "valid_to": "-infinity"}, gone=True)]
    (batch,) = keyless.keyed_entries(spec_of().pack(), iter([batch_of(records)]))
    rows = {row[PREFIX + "id"]: row for row in batch.to_pylist()}
    assert rows.keys() == {f"1|{END}", ""} and rows[f"1|{END}"]["valid_to"] is not None
    assert (rows[""][PREFIX + "view"], rows[""][PREFIX + "version"], rows[""][PREFIX + "offset"]) == (TALLY, 1, 3)
    (letter,) = sent
    assert (letter.sink, letter.view, letter.key, letter.offset) == ("lake", "prices", "1|infinity", 1)
    assert letter.reason.startswith(WHY) and letter.table is None and not letter.deleting


def test_where_a_condition_may_leave_the_row_out_spark_says_whether_it_lacks_a_key() -> None:
    view = replace(VIEW, where="valid_to IS NOT NULL")
    decoded = EntryDecoder(spec_of(view), typed=True).decode(batch_of([record(0, FOREVER)]))
    assert keyless.with_keys(spec_of(view), view, TableKey.of(view), decoded) == decoded


def test_a_letter_of_such_a_row_says_that_and_not_that_spark_has_failed() -> None:
    view = replace(VIEW, where="valid_to IS NOT NULL")
    failed = cast(Any, {"columns": [], "seen": None})
    assert keyless.why_failed(view, "1|infinity", failed).startswith(WHY)
    assert keyless.why_failed(view, f"1|{END}", failed).startswith("Spark could not compute")


@pytest.mark.parametrize(
    ("kind", "raw", "plain"),
    [("numeric(8,2)", "NAN", False), ("numeric(8,2)", "1.50", True), ("numeric", "NAN", True)],
)
def test_the_virtual_machine_leaves_such_a_key_to_the_codec(kind: str, raw: str, plain: bool) -> None:
    reader = NativeReader.of(spec_of(View.identity(table("prices", "k", k=kind, v="numeric(8,2)"))))
    assert reader is not None
    row = f"{{'k': '{raw}', 'v': 'NAN'}}"
    said = reader._is_plain().replace("`", '"')
    # Elsewhere than in the key NaN is plain, and null.
    assert duckdb.sql(f"SELECT {said} FROM (SELECT {row} AS {ROWKEY}, {row} AS {AFTER})").fetchall() == [(plain,)]


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp"])
def test_tables_with_a_moment_in_their_key_are_the_codecs_altogether(kind: str) -> None:
    assert NativeReader.of(spec_of(View.identity(table("prices", "id at", id="int4", at=kind)))) is None


def test_a_table_of_which_a_present_name_was_another_columns_is_the_codecs_altogether() -> None:
    """Plainly read, a record of before would give what a dropped column held."""
    was = (("id", "note", "phone"), (("id", "id"), ("phone", "note")))
    for moved, native in (((), True), ((was,), False)):
        known = replace(table("patients", "id", id="int4", note="text"), moved=moved)
        assert (NativeReader.of(spec_of(View.identity(known))) is not None) == native


# -- documents of several tables ---------------------------------------------------------------------------------------


def made_entries(where: str | None) -> tuple[list[Entry], list[tuple[Entry, str]]]:
    columns = tuple((column.name, column.name) for column in PRICES.columns)
    view = JoinedView("v", PRICES, PRICES.primary_key, columns, where=where, root=node(PRICES))
    shape = SimpleNamespace(typed=lambda part: part, columns=lambda part: part)
    joiner = SimpleNamespace(
        view=view,
        assembler=SimpleNamespace(shape=shape),
        documents=lambda given: [None if one.part is None else b"{}" for one in given],
    )
    made = [Made(f"1|{END}", 8, cast(Any, {})), Made("1|infinity", 8, cast(Any, {})), Made("2|infinity", 8, None)]
    return table_entries(cast(Any, joiner), made)


def test_a_joined_document_without_such_a_key_is_a_letter() -> None:
    entries, unfit = made_entries(None)
    assert [entry.id for entry in entries] == [f"1|{END}"], "the table has never had a row to be deleted"
    ((entry, why),) = unfit
    assert (entry.id, entry.document) == ("1|infinity", b"{}") and why.startswith(WHY)
    entries, unfit = made_entries("valid_to IS NOT NULL")
    assert [entry.id for entry in entries] == [f"1|{END}", "1|infinity"] and unfit == []


# -- who asks for them -------------------------------------------------------------------------------------------------


def test_a_repair_and_a_replay_are_told_why_there_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("prices", "1|infinity", 8, b"{}", TOPIC, 0, 1, 0)
    target: Any = SimpleNamespace(get=lambda _keys: {})
    work: Any = SimpleNamespace(view=VIEW, holding=target, refused=Refused("?"))
    monkeypatch.setattr(warehouse, "leaving", lambda *_: [])
    warehouse.repair_rows(work, {"1|infinity": "missing"}, {"1|infinity": Newest(entry, record(1, FOREVER))})
    assert work.refused.reasons["1|infinity"].startswith(WHY)


def test_a_fresh_question_sees_no_row_that_the_table_will_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (one, 1 << 60) for one in (record(0, ENDED), record(1, FOREVER), record(2, FOREVER | {"id": 2}, gone=True))
    ]
    monkeypatch.setattr(tail, "_pieces", lambda *_: iter([found]))
    columns = ("id", "valid_to", "price", "_hw_version")
    held: Any = SimpleNamespace(snapshot=None, columns=columns, table=SimpleNamespace(properties={}))
    read = tail.read_tail(cast(Any, None), spec_of(), held, [], 0.0, 0.0)
    assert (read.rows.num_rows, read.records, read.letters) == (1, 3, 1)
