"""Whether another row lives that a table can't tell from one: asked once, and one row of the answer is read."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import errors

from cdc.view import View
from connectors.postgres import Connection
from tests.support.trees import table
from truth.unheld import has_sibling


def asked(kind: str, key: str, row: tuple[int, ...] | None = (1,)) -> tuple[bool, list[str]]:
    """What is answered, and what Postgres was asked."""
    said = list[str]()

    def execute(query: Any) -> Any:
        said.append(query.as_string(None))
        if row == ():
            raise errors.InvalidTextRepresentation("invalid input syntax for type integer")
        return SimpleNamespace(fetchone=lambda: row)

    terms = table("terms", "id valid_to", id="int4", valid_to=kind, note="text")
    connection = cast(Connection, SimpleNamespace(execute=execute, transaction=nullcontext))
    return has_sibling(connection, View.identity(terms), key), said


@pytest.mark.parametrize(
    ("kind", "lost", "condition"),
    [
        ("date", "infinity", "t.\"valid_to\" IN ('infinity', '-infinity')"),
        ("timestamp", "-infinity", "t.\"valid_to\" IN ('infinity', '-infinity')"),
        (
            "timestamptz",
            "infinity",
            "(t.\"valid_to\" IN ('infinity', '-infinity') OR t.\"valid_to\" > '294247-01-10 04:00:54.775807+00')",
        ),
        ("numeric(8,2)", "NaN", "t.\"valid_to\" IN ('NaN')"),
    ],
)
def test_rows_with_the_other_parts_and_none_of_these_are_asked_for(kind: str, lost: str, condition: str) -> None:
    found, [said] = asked(kind, f"17|{lost}")
    assert found and said.endswith(f""" AND {condition} AND NOT (t."valid_to" = '{lost}') LIMIT 1"""), "not of itself"
    assert said.startswith('SELECT 1 FROM "public"."terms" AS t WHERE t."id" = \'17\'::text::int8 AND ')
    assert asked(kind, f"17|{lost}", None)[0] is False


def test_of_a_key_that_has_a_place_nothing_is_asked() -> None:
    assert asked("date", "17|2026-01-01") == (False, [])


def test_a_part_that_is_no_value_of_its_columns_type_has_no_sibling() -> None:
    """A row of a former key type could not be erased."""
    assert asked("date", "abc|infinity", ())[0] is False
