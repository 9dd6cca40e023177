"""Joins only by types of which equal values have equal texts; sorting only where the order is Postgres's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from cdc.catalogue import Column
from cdc.join.comparable import not_added, not_counted, not_joined, not_sorted
from cdc.join.document import _sort_key
from cdc.join.ordering import order_key
from cdc.join.tree import Order
from cdc.types import RULES, json_converter, spark_type
from cdc.types.times import canonical_time
from truth.arithmetic import order


def column(kind: str, name: str = "c") -> Column:
    """``numeric(10,2)``, ``text[]``, ``character(3)``, ``enum:mood`` as the catalogue reads them."""
    array, text = kind.endswith("[]"), kind.removesuffix("[]")
    base, _, inside = text.rstrip(")").partition("(")
    if base.startswith("enum:"):
        return Column(name, base[5:], base[5:], enum_values=("a", "b"))
    precision, scale = map(int, inside.split(",")) if base == "numeric" and inside else (None, None)
    return Column(name, kind, base, precision, scale, array)


def test_a_nondeterministic_collation_compares_nothing() -> None:
    """Two texts may be one value there; here they are two."""
    plain, loose = column("text"), replace(column("text"), collated=True)
    for reason in (not_joined(plain, loose), not_joined(loose, plain), not_sorted(loose), not_counted(loose)):
        assert reason is not None and "its collation is nondeterministic" in reason
    assert not_joined(plain, plain) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int4", "int8"),
        ("int2", "oid"),
        ("text", "varchar"),
        ("character varying(5)", "name"),
        ("uuid", "uuid"),
        ("numeric(10,2)", "numeric(12,2)"),
        ("character(3)", "character(3)"),
        ("enum:mood", "enum:mood"),
        ("timestamptz", "timestamptz"),
        ("bytea", "bytea"),
        ("bool", "bool"),
        ("inet", "inet"),
    ],
)
def test_types_that_join(one: str, other: str) -> None:
    assert not_joined(column(one), column(other)) is None
    assert not_joined(column(other), column(one)) is None


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ("int4", "text", "c is int4, d is text"),
        ("int4", "numeric(10,0)", "c is int4, d is numeric(10,0)"),
        ("text", "citext", "'A' and 'a' are one citext"),
        ("citext", "citext", "'A' and 'a' are one citext"),
        ("bpchar", "bpchar", "c is bpchar, and equal values may have different texts: blanks at its end do not count"),
        ("character(3)", "character(5)", "c is character(3), d is character(5)"),
        ("character(3)", "text", "c is character(3), d is text"),
        ("numeric", "numeric", "both need the same scale"),
        ("numeric(10,2)", "numeric(10,3)", "both need the same scale"),
        ("float8", "float8", "0 and -0 are one float"),
        ("interval", "interval", "may have different texts"),
        ("enum:mood", "enum:size", "c is mood, d is size"),
        ("text[]", "text[]", "c is an array"),
        ("uuid", "text", "c is uuid, d is text"),
        ("timestamp", "timestamptz", "c is timestamp, d is timestamptz"),
        ("jsonb", "jsonb", "1.0 and 1 are one value"),
        ("json", "json", "by which rows can't be found"),
        ("pg_lsn", "pg_lsn", "by which rows can't be found"),
    ],
)
def test_types_that_do_not_join(one: str, other: str, reason: str) -> None:
    assert reason in str(not_joined(column(one), column(other, "d")))
    assert not_joined(column(other, "d"), column(one)) is not None


def test_every_type_has_an_opinion() -> None:
    sortable = {kind for kind in RULES if not_sorted(column(kind)) is None}
    assert {"int8", "numeric", "text", "timestamptz", "bool", "uuid", "enum", "money", "time"} <= sortable
    unsorted = {"json", "jsonb", "hstore", "point", "bytea", "interval", "timetz", "inet", "int4range", "xml", "vector"}
    assert not unsorted & sortable
    assert not_sorted(column("int4[]")) == "c is an array (int4[])"
    assert not_sorted(column("timetz")) == (
        "c is timetz, which has no order here: its zone counts in Postgres, and is not in the log"
    )
    added = {kind for kind in RULES if not_added(column(kind)) is None}
    assert added == {"int2", "int4", "int8", "float4", "float8", "numeric", "money"}
    assert not_added(column("numeric[]")) is not None
    assert not_counted(column("character(3)")) is None
    counted = {kind for kind in RULES if not_counted(column(kind)) is None}
    assert {"int4", "float8", "numeric", "text", "uuid", "bytea"} <= counted
    assert not {"json", "jsonb", "citext", "bpchar", "interval", "vector", "halfvec"} & counted


def test_a_time_without_a_zone_is_ordered_by_its_text_as_in_postgres() -> None:
    micros = [0, 1, 28_800_000_000, 28_800_000_001, 28_800_450_000, 28_800_500_000, 28_801_000_000, 86_400_000_000]
    texts = [canonical_time(value) for value in micros]
    mixed = texts[::-1]
    assert sorted(mixed, key=order_key(spark_type(column("time")))) == texts
    assert sorted(mixed, key=partial(order, column("time"))) == texts


@pytest.mark.parametrize(
    ("kind", "raws"),
    [
        ("int4[]", [[], [1], [1, 3], [1, None], [2], [10], [None], [None, 1]]),
        ("text[]", [["a"], ["a", "b"], ["a b"], ["b"], ["é"]]),
        ("numeric[]", [["-1"], ["2"], ["2", "1"], ["2.5"], ["10"], ["NAN"]]),
        ("float8[]", [["-Infinity"], [9.5], [10.0], ["NaN"]]),
        ("timestamptz[]", [["0099-01-01T00:00:00Z"], ["2013-01-01T10:00:00Z"], ["2013-01-01T10:00:00.5Z"]]),
        ("jsonb", ['"a"', "1", '[{"a": 1}]', '{"a": 1}', '{"a": 2}']),
    ],
)
def test_children_stand_by_a_key_of_arrays_or_json_as_the_second_opinion_has_them(kind: str, raws: list[Any]) -> None:
    """By the text of a list [10] is before [2]; and a fragment of JSON is called by its place in memory."""
    of = column(kind)
    convert, key = json_converter(of), _sort_key(of, 0, Order("c"))

    def expected(raw: Any) -> Any:
        return order(of, raw if convert is None else convert(raw))

    mixed = raws[1::2] + raws[::2]
    assert sorted(mixed, key=lambda raw: key([raw])) == sorted(mixed, key=expected) == raws
    assert orjson.loads(orjson.dumps(raws)) == raws, "as they are stored"
