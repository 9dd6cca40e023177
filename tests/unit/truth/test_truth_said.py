"""Which names Spark SQL says, by the second opinion: it must come to what the engine comes to."""

from __future__ import annotations

import pytest

from cdc.join.expressions import mentions
from tests.support.trees import FLIGHTS
from tests.unit.cdc.test_join_expressions import NAMES, OVER
from truth.said import Said
from truth.spark_sql import table_shape

TEXTS = [
    *(text for text, _ in OVER),
    "a * day",
    "(a) * day",
    "1.*day",
    "1.5e3 * year - .5D",
    "count(*)",
    "struct(airline.*, year)",
    "struct(a, *)",
    "f(transform(tags, x -> struct(x . * )))",
    "airline . `year`",
    "`day`(1)",
    "day (1) + `a``b`",
    "$q$ a $q$ || $q$ || day || $x",
    "'a",
    "/* a",
    "r'a\\' || day || R\"year\"",
    "'a\\\\' || day || 'it''s a'",
    "2nd + 5d + `5`",
    "é_day + day_é",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_both_find_the_same_names(text: str) -> None:
    names = (*NAMES, "a`b", "5", "2nd", "1", "airline", "it", "r", "q", "x")
    said = Said.of([text])
    assert {name for name in names if said.every or said.mentions(name)} == mentions(text, names)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("to_json(airline)", True),
        ("airline.name", False),
        ("`Airline` /* as */ . `name`", False),
        ("struct(airline.*)", True),
        ("struct(airline -- all\n . *)", True),
        ("airline.name || airline", True),
        ("airlines[0].name = airline[0]", True),
        ("airline(1) || 'airline' || \"airline\" -- airline", False),
        ("struct(*)", False),
    ],
)
def test_what_is_meant_as_a_whole(text: str, whole: bool) -> None:
    assert Said.of(["1", text]).means_whole("airline") == whole


def test_a_star_is_of_the_row_or_of_one_in_it() -> None:
    assert [(said.star, said.every) for said in map(Said.of, (["struct(*)"], ["struct(a.*)"], ["a * b"], []))] == [
        (True, True),
        (False, True),
        (False, False),
        (False, False),
    ]


def test_a_star_names_all_columns_of_a_table() -> None:
    assert list(table_shape(FLIGHTS, ["to_json(struct(*))"]).columns) == list(FLIGHTS.by_name)
    assert list(table_shape(FLIGHTS, ["origin('miles') || DEST"]).columns) == ["dest"]
