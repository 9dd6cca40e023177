"""History of rows whose key has no place in a table's columns: each is a row of its own there, too."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest

from cdc.records.history import COLUMNS, KEY_TEXT, as_of_sql, versions_sql
from cdc.view import View
from operations.as_of import reading
from operations.query.histories import Past
from sinks.iceberg.history import KEY
from spark.reading.spec import FlowSpec
from spark.warehouse.history.rows import HistoryDecoder, history_ddl
from spark.warehouse.history.tables import columns_of, follow
from tests.support.entry_cases import records
from tests.support.trees import table

TERMS = table("terms", "id valid_to", id="int4", valid_to="timestamptz", price="text")
VIEW, TOPIC, KEYS = View.identity(TERMS), "p.public.terms", ["id", "valid_to"]
EVER, NEVER, END = "infinity", "-infinity", "2026-01-01T00:00:00Z"


def event(lsn: int, valid_to: str, price: str | None) -> tuple[bytes, bytes]:
    """A row's change, or its end."""
    key = {"id": 1, "valid_to": valid_to}
    source = {"schema": "public", "table": "terms", "lsn": lsn, "ts_ms": lsn, "sequence": f'["{lsn - 5}","{lsn}"]'}
    after = None if price is None else {**key, "price": price}
    return orjson.dumps(key), orjson.dumps({"op": "u" if after else "d", "source": source, "after": after})


def history(*pairs: tuple[bytes, bytes | None], view: View = VIEW) -> pa.Table:
    spec = FlowSpec("lake", {view.name: view}, {TOPIC: (view.name,)}, {TOPIC: view.table}, {}, {})
    return pa.Table.from_batches([HistoryDecoder(spec, "system", {}).decode(records(*pairs))])


def read(sql: str, rows: pa.Table) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("history", rows)
        return connection.execute(f"SELECT * FROM ({sql}) ORDER BY ALL").fetchall()


def prices(rows: pa.Table, cut: int) -> list[str]:
    found = read(as_of_sql(["price"], KEYS, "history", cut, keyed=True), rows)
    return [price for (price,) in found]


def test_an_id_is_kept_of_a_row_whose_key_the_columns_do_not_hold_and_of_no_other() -> None:
    rows = history(event(10, EVER, "a"), event(20, NEVER, "b"), event(30, END, "c"), event(40, EVER, None))
    assert rows.column(KEY_TEXT).to_pylist() == ["1|infinity", "1|-infinity", None, "1|infinity"]
    plain = table("plain", "id", id="int4", valid_to="timestamptz", price="text")
    assert KEY_TEXT not in history_ddl(View.identity(plain)), "nothing of it where every key has a place"


def test_two_such_rows_are_two_in_each_cut_and_end_each_by_itself() -> None:
    """They were one: a cut showed the newer, and lost the other with its delete."""
    rows = history(event(10, EVER, "a"), event(20, NEVER, "b"), event(30, EVER, "c"), event(40, NEVER, None))
    assert [prices(rows, cut) for cut in (10, 20, 30, 40)] == [["a"], ["a", "b"], ["b", "c"], ["c"]]
    sql = versions_sql(["price"], KEYS, "history", keyed=True)
    found = read(f"SELECT price, epoch_ms(valid_to), is_current, {KEY_TEXT} FROM ({sql})", rows)
    assert found == [
        ("a", 30, False, "1|infinity"),
        ("b", 40, False, "1|-infinity"),
        ("c", None, True, "1|infinity"),
    ]


def test_what_an_older_headwater_has_written_is_ended_by_what_comes_after_it() -> None:
    """As it was: whose such a row is nobody can tell, and by itself it would be there for ever."""
    before = history(event(10, EVER, "a"), event(11, END, "x"))
    before = before.set_column(before.column_names.index(KEY_TEXT), KEY_TEXT, pa.nulls(2, pa.string()))
    rows = pa.concat_tables([before, history(event(20, EVER, "b"), event(30, END, "y"))])
    assert [prices(rows, cut) for cut in (10, 20, 30)] == [["a", "x"], ["b", "x"], ["b", "y"]]
    ended = pa.concat_tables([before, history(event(20, EVER, None))])
    assert [prices(ended, cut) for cut in (10, 20)] == [["a", "x"], ["x"]]
    versions = read(versions_sql(["price"], KEYS, "history", keyed=True), ended)
    assert [(price, current) for price, _, _, current, *_ in versions] == [("a", False), ("x", True)]


def test_a_history_that_is_there_gets_the_column() -> None:
    there = [(name, kind) for name, kind in columns_of(VIEW).items() if name != KEY_TEXT]
    asked = list[str]()
    fields = [
        SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda k=kind: k)) for name, kind in there
    ]
    spark: Any = SimpleNamespace(sql=asked.append, table=lambda _: SimpleNamespace(schema=fields))
    assert follow(spark, "h", VIEW, VIEW.numbers), "its versions are shown anew"
    assert asked == [f"ALTER TABLE h ADD COLUMNS (`{KEY_TEXT}` string)"]


@pytest.mark.parametrize("keyed", [False, True])
def test_what_is_printed_and_asked_heeds_the_column_where_a_history_has_it(
    keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was put aside before, or is not written any more, has none."""
    names = ["id", "valid_to", "price", *COLUMNS, *([KEY_TEXT] if keyed else [])]
    fields: Sequence[Any] = [SimpleNamespace(name=name) for name in names]
    held: Any = SimpleNamespace(
        name=lambda: ("lake", "shop", "terms_history"),
        schema=lambda: SimpleNamespace(fields=fields),
        metadata_location="m.json",
        properties={KEY: orjson.dumps(KEYS).decode()},
    )
    monkeypatch.setattr(reading, "pyiceberg_properties", lambda _: {})
    cut: Any = SimpleNamespace(sink="lake", tables={"public.terms": held}, cut=20)
    [printed] = reading.statements(SimpleNamespace(sinks={"lake": None}), cut).values()  # type: ignore[arg-type]
    past = Past(SimpleNamespace(columns=names, table=held), TOPIC, {}, versions=True)  # type: ignore[arg-type]
    assert {KEY_TEXT in sql for sql in (*printed.values(), past.select("h"))} == {keyed}
    assert printed["duckdb"].startswith('SELECT "id", "valid_to", "price" FROM '), "a table as it was has none of ours"
