"""A generation that goes on with a table as it was, and records of today: one column costs no row its place."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.catalogue import Column, Table
from cdc.records.debezium_json import Decoder
from cdc.records.former import Former
from cdc.view import View

ID = Column("id", "bigint", "int8", nullable=False, ordinal=1)


def column(kind: str, *numbers: int, array: bool = False) -> Column:
    precision, scale = numbers or (None, None)
    return Column("v", kind, kind, precision, scale, array=array, ordinal=2)


def table(was: Column, now: Column | None) -> Table:
    return Table("public", "t", (ID, was), ("id",), present=(("v", now),))


def brought(was: Column, now: Column | None, value: Any) -> Any:
    row = {"id": 1, "v": value}
    Former(table(was, now)).bring(row)
    return row["v"]


INT, BIG, TEXT, NUMERIC = column("int4"), column("int8"), column("text"), column("numeric", 8, 2)
DATE, STAMP, ZONED = column("date"), column("timestamp"), column("timestamptz")


@pytest.mark.parametrize(
    ("was", "now", "value", "wanted"),
    [
        (INT, BIG, 7, 7),
        (INT, BIG, 2**40, None),
        (NUMERIC, column("numeric", 12, 4), "1.25", "1.25"),
        (NUMERIC, column("numeric", 12, 4), "1.2500", "1.25"),  # as Postgres writes it
        (NUMERIC, column("numeric", 12, 4), "-100.0000", "-100.00"),
        (column("numeric", 8, 0), column("numeric", 12, 4), "100.0000", "100"),
        (column("numeric", 8, 2, array=True), column("numeric", 12, 4, array=True), ["1.2500", None], ["1.25", None]),
        (column("numeric", 8, 2, array=True), column("numeric", 12, 4, array=True), ["1.2575"], None),
        (NUMERIC, column("numeric", 12, 4), "1.2575", None),
        (TEXT, INT, 7, "7"),
        (TEXT, INT, "7", "7"),
        (TEXT, NUMERIC, "7.50", "7.50"),
        (NUMERIC, INT, 7, "7"),
        (INT, NUMERIC, "7.00", 7),
        (INT, NUMERIC, "7.5", None),
        (INT, TEXT, "7 or so", None),
        (INT, TEXT, 7, 7),
        (STAMP, ZONED, "2026-11-23T10:00:00.000000Z", None),
        (STAMP, ZONED, 1_790_000_000_000_000, 1_790_000_000_000_000),
        (ZONED, STAMP, 1_790_000_000_000_000, None),
        (STAMP, DATE, 20_000, None),
        (TEXT, column("bool"), True, None),
        (TEXT, column("text", array=True), ["a"], None),
    ],
)
def test_a_value_of_another_type_is_what_it_was_or_null(was: Column, now: Column, value: Any, wanted: Any) -> None:
    assert brought(was, now, value) == wanted
    assert type(brought(was, now, value)) is type(wanted)


def test_a_column_that_is_gone_or_unchanged_is_left_alone() -> None:
    assert brought(TEXT, None, "a") == "a"
    assert not Former(table(TEXT, None)) and not Former(Table("public", "t", (ID, TEXT), ("id",)))


def test_the_rest_of_the_row_arrives() -> None:
    """The fault: a frozen generation sent each change of such a table to the dead letters."""
    frozen = Table("public", "t", (ID, STAMP, Column("n", "text", "text", ordinal=3)), ("id",), present=(("v", ZONED),))
    source = {"table": "t", "schema": "public", "lsn": 9, "ts_ms": 5, "snapshot": None, "sequence": '["8","9"]'}
    after = {"id": 1, "v": "2026-11-23T10:00:00.000000Z", "n": "new"}
    value = orjson.dumps({"op": "c", "after": after, "source": source})
    change = Decoder(frozen).decode(b'{"id":1}', value, "topic", 0, 3)
    _, document = View.identity(frozen).render(change)
    assert document is not None and orjson.loads(document) == {"id": 1, "v": None, "n": "new"}


def test_a_value_that_is_not_in_the_record_stays_unknown() -> None:
    row = {"id": 1, "v": "placeholder"}
    Former(table(INT, TEXT)).bring(row, ("v",))
    assert row["v"] == "placeholder"
