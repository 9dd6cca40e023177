"""Which changes of a key's columns leave its records what they were."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.same_key import key_from, key_parts, same_key
from cdc.shapes import Shape
from operations.schema.decide import other_key

ID = Column("id", "integer", "int4", nullable=False, ordinal=1)
TYPES: dict[str, tuple[Any, ...]] = {
    "integer": ("integer", "int4"),
    "bigint": ("bigint", "int8"),
    "a domain of integer": ("number", "int4"),
    "uuid": ("uuid", "uuid"),
    "text": ("text", "text"),
    "varchar(8)": ("character varying(8)", "varchar"),
    "citext": ("citext", "citext"),
    "mood": ("mood", "mood", None, None, False, True, ("sad",)),
    "mood by another name": ("feeling", "feeling", None, None, False, True, ("sad",)),
    "char(8)": ("character(8)", "bpchar"),
    "char(10)": ("character(10)", "bpchar"),
    "numeric": ("numeric", "numeric"),
    "numeric(8,2)": ("numeric(8,2)", "numeric", 8, 2),
    "numeric(9,2)": ("numeric(9,2)", "numeric", 9, 2),
    "numeric(9,3)": ("numeric(9,3)", "numeric", 9, 3),
    "timestamp": ("timestamp without time zone", "timestamp"),
    "timestamp(0)": ("timestamp(0) without time zone", "timestamp"),
}


def shape(*columns: Column, oid: int = 9) -> Shape:
    return Shape(Table("public", "t", columns, ("id",)), oid=oid)


def typed(name: str) -> Shape:
    return shape(replace(Column("id", *TYPES[name]), ordinal=1))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("integer", "bigint"),
        ("bigint", "integer"),
        ("integer", "a domain of integer"),
        ("varchar(8)", "text"),
        ("text", "varchar(8)"),
        ("text", "citext"),
        ("mood", "text"),
        ("mood", "mood by another name"),
        ("uuid", "text"),
        ("numeric(8,2)", "numeric(9,2)"),
        ("numeric(8,2)", "numeric"),
    ],
)
def test_types_that_write_each_value_as_it_was_leave_the_key_what_it_is(was: str, now: str) -> None:
    assert not other_key(typed(was), typed(now))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("integer", "uuid"),
        ("integer", "text"),
        ("text", "bigint"),
        ("text", "uuid"),
        ("char(8)", "char(10)"),
        ("char(8)", "text"),
        ("numeric(8,2)", "numeric(9,3)"),
        ("numeric", "numeric(9,3)"),
        ("integer", "numeric"),
        ("timestamp", "timestamp(0)"),
    ],
)
def test_another_type_of_the_same_name_is_another_key(was: str, now: str) -> None:
    """Documents under the ids of before stayed for ever, and each rebuild differed from Postgres."""
    assert other_key(typed(was), typed(now))


def test_another_column_of_the_same_name_is_another_key() -> None:
    assert other_key(shape(ID), shape(replace(ID, ordinal=4)))


def test_of_a_table_that_was_made_again_numbers_say_nothing_and_types_do() -> None:
    assert not other_key(shape(ID), shape(replace(ID, ordinal=4), oid=10))
    assert other_key(shape(ID), shape(replace(ID, base_type="uuid", type_name="uuid"), oid=10))


def test_another_name_or_one_column_more_is_another_key_as_before() -> None:
    more = shape(ID, Column("b", "text", "text", ordinal=2))
    assert other_key(more, replace(more, table=replace(more.table, primary_key=("id", "b"))))
    renamed = Shape(Table("public", "t", (replace(ID, name="no"),), ("no",)), oid=9)
    assert other_key(shape(ID), renamed)


def test_a_label_with_another_name_is_another_key_and_one_more_is_not() -> None:
    """Documents under the former label stayed for ever: nothing deletes them, and no sweep can ask for them."""

    def mood(*labels: str) -> Shape:
        return shape(Column("id", "mood", "mood", enum_values=labels, ordinal=1))

    old = mood("sad", "ok")
    assert not other_key(old, mood("sad", "fine", "ok", "happy"))
    assert other_key(old, mood("low", "ok"))
    assert other_key(old, mood("ok", "sad"))
    assert not other_key(old, typed("text"))
    assert not other_key(typed("text"), old)


def test_labels_are_kept_of_an_enum_alone_and_an_older_version_kept_none() -> None:
    (plain,), (mood,) = key_parts(typed("integer").table), key_parts(typed("mood").table)
    raw = [part.to_dict() for part in (plain, mood)]
    assert key_from(json.loads(json.dumps(raw))) == (plain, mood)
    assert raw[0] == {"name": "id", "number": 1, "kind": "int4", "type_name": "integer"}
    assert raw[1].pop("labels") == ["sad"]
    (older,) = key_from(raw[1:])
    assert older.to_dict() == raw[1]
    assert same_key([older], [replace(mood, labels=("low",))], numbered=True)


def test_a_shape_of_an_older_version_that_lacks_numbers_is_no_other_key() -> None:
    assert not other_key(shape(replace(ID, ordinal=0)), shape(ID))
    assert not same_key(key_parts(shape(ID).table), (), numbered=True)
