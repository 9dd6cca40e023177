"""Values of tests' rows become what a real Debezium wrote for the same value of Postgres, or are refused."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
import pytest

from cdc import types
from cdc.catalogue import Column
from cdc.types.raw import raw_value
from tests.support import codec_cases as cases
from truth.text import parse_array, parse_hstore

# How a person writes what Postgres prints otherwise.
# Years that no fixture needs, and arrays in arrays, which Debezium loses.
NOT_FOR_FIXTURES = re.compile(r" BC|\d{5}-\d\d-|^\{\{")
_NUMBERS = ("int2", "int4", "int8", "oid", "float4", "float8")


def written(column: Column, text: str) -> Any:
    """Postgres's text as it stands in a test file."""
    kind = types.type_key(column)
    if column.array:
        from dataclasses import replace

        element = replace(column, array=False, type_name=column.type_name.removesuffix("[]"))
        return [None if item is None else written(element, item) for item in parse_array(text)]
    if kind in _NUMBERS:
        return text if text[-1] in "Nyn" else json.loads(text)
    if kind == "bool":
        return text == "t"
    if kind == "hstore":
        return parse_hstore(text)
    if kind == "point":
        x, y = (part if part[-1] in "Ny" else float(part) for part in text.strip("()").split(","))
        return {"x": x, "y": y}
    return text


def test_every_value_is_what_debezium_wrote() -> None:
    captured, raw = cases.fixture("types")
    compared, refused = set[str](), set[str]()
    for change in captured.changes():
        row = raw["texts"][str(change.key["id"])]
        assert change.after is not None
        for column in captured.table.columns:
            text, there = row[column.name], change.after.get(column.name)
            if text is None or there is None or types.unsupported(column) or NOT_FOR_FIXTURES.search(text):
                continue
            if types.lossy(column) and "infinity" in text:
                continue
            try:
                made = raw_value(column, written(column, text))
            except ValueError:
                if not types.lossy(column):  # what Debezium would not deliver as it is may be refused
                    refused.add(f"{column.type_name}: {text[:40]}")
                continue
            for convert in (types.json_converter(column), types.arrow_converter(column)):
                wanted, got = (one if convert is None else convert(one) for one in (there, made))
                assert orjson.dumps(got, default=str) == orjson.dumps(wanted, default=str), (column.name, text)
            compared.add(column.name)
    assert len(compared) >= 100
    assert not refused


def column(kind: str, base: str, **more: Any) -> Column:
    return Column("c", kind, base, **more)


@pytest.mark.parametrize(
    ("of", "value", "why"),
    [
        (column("integer", "int4"), 2**31, "whole number of integer"),
        (column("integer", "int4"), True, "whole number"),
        (column("integer", "int4"), 1.5, "whole number"),
        (column("text", "text"), 7, "in quotes"),
        (column("character varying(3)", "varchar"), "abcd", "longer than"),
        (column("boolean", "bool"), "yes", "true or false"),
        (column("numeric(10,2)", "numeric", precision=10, scale=2), "1.234", "more than 2 digits"),
        (column("numeric(4,2)", "numeric", precision=4, scale=2), 100, "does not fit"),
        (column("numeric", "numeric"), 1.5, "put it in quotes"),
        (column("numeric(20,2)", "numeric", precision=20, scale=2), 1234567890123456.78, "rounded: put it in quotes"),
        (column("numeric(25,0)", "numeric", precision=25, scale=0), 12345678901234567891e1, "rounded: put it in quot"),
        (column("timestamp with time zone", "timestamptz"), "2024-01-01T10:00:00", "needs its zone"),
        (column("timestamp without time zone", "timestamp"), "2024-01-01T10:00:00Z", "has no zone"),
        (column("timestamp(0) with time zone", "timestamptz"), "2024-01-01T10:00:00.5Z", "more than 0 digits"),
        (column("date", "date"), "2024-02-30", "expected a date"),
        (column("time without time zone", "time"), "25:00", "time of day"),
        (column("interval", "interval"), "1 day", "ISO 8601"),
        (column("uuid", "uuid"), "x", "expected a uuid"),
        (column("mood", "mood", enum_values=("ok",)), "bad", "one of ok"),
        (column("jsonb", "jsonb"), "plain", "read as JSON"),
        (column("bytea", "bytea"), "dead", "as Postgres prints them"),
        (column("text[]", "text", array=True), "a", "expected a list"),
        (column("text[]", "text", array=True), [["a"]], "more than one dimension"),
        (column("text", "text", nullable=False), None, "NOT NULL"),
        (column("box", "box"), "(1,1),(0,0)", "binary form"),
    ],
)
def test_what_does_not_fit_is_refused(of: Column, value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        raw_value(of, value)


def test_zeros_and_blanks_are_those_of_the_column() -> None:
    assert raw_value(column("numeric(10,2)", "numeric", precision=10, scale=2), 12.3) == "12.30"
    assert raw_value(column("character(5)", "bpchar"), "ab") == "ab   "
    assert raw_value(column("timestamp with time zone", "timestamptz"), "2024-01-01 10:00+02:00") == (
        "2024-01-01T08:00:00.000000Z"
    )


def test_the_largest_decimals_are_no_larger_than_they_are() -> None:
    """Python's `abs` rounds to 28 digits: 38 nines became a number that does not fit, and their rows dead letters."""
    convert = types.arrow_converter(column("numeric(38,0)", "numeric", precision=38, scale=0))
    assert convert is not None and str(convert("9" * 38)) == "9" * 38
    with pytest.raises(ValueError, match="does not fit"):
        convert("1" + "0" * 38)
