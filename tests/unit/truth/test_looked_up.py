"""Rows that are looked up by values of another table, which may have none of theirs: that is no error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
import pytest

from cdc.catalogue import Column, Table
from connectors.postgres import Connection
from truth.rows import looked_up


class Server:
    """Answers with the texts that it was asked for; an error for one of a list, as Postgres has for a whole query."""

    connection = None  # of Postgres, for the encoding

    def __init__(self, error: Exception | None = None, *wrong: str) -> None:
        self.error, self.wrong, self.asked = error, wrong, list[str]()
        self.undone = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error:
            self.undone += 1
            raise

    def execute(self, query: Any) -> Iterator[tuple[str]]:
        self.asked.append(query.as_string(None))
        texts = self.asked[-1].split("'{")[1].split("}'")[0].replace('"', "").split(",")
        if self.error is not None and set(texts) & set(self.wrong):
            raise self.error
        return iter([(text,) for text in texts])


def found(column: Column, server: Server, *values: str) -> list[str | None]:
    table = Table("public", "t", (column,), (column.name,))
    rows = looked_up(cast(Connection, server), table, [column.name], [column.name], [(value,) for value in values])
    return [row[column.name] for row in rows]


@pytest.mark.parametrize(
    ("type_name", "base_type", "cast_to"),
    [
        ("numeric(10,0)", "numeric", '"k0"::numeric'),
        ("iso2", "text", '"k0"::text'),
        ("public.amount", "numeric", '"k0"::numeric'),
        ("character varying(3)", "varchar", '"k0"::varchar'),
        ("character varying(3)", "character varying", '"k0"::varchar'),
        ("timestamp(0) with time zone", "timestamptz", '"k0"::timestamptz'),
        ("public.age", "int2", '"k0"::int8'),
        ("integer", "integer", '"k0"::int8'),
        ("oid", "oid", 'CASE WHEN "k0"::int8 BETWEEN 0 AND 4294967295 THEN "k0"::int8::oid END'),
        # Without its length, or its schema, the name is another type, or none.
        ("character(3)", "bpchar", '"k0"::character(3)'),
        ("bit(4)", "bit", '"k0"::bit(4)'),
        ("public.tree", "ltree", '"k0"::public.tree'),
    ],
)
def test_values_are_compared_without_what_limits_the_column(type_name: str, base_type: str, cast_to: str) -> None:
    """A foreign key of numeric(12,0) beside numeric(10,0), or a text beside a domain with a rule: the whole command
    ended as an error of a database that is right. The column is never cast: it may have an index."""
    server = Server()
    assert found(Column("k", type_name, base_type), server, "1") == ["1"]
    assert f'{cast_to} AS "k0"' in server.asked[0] and 't."k" = k."k0"' in server.asked[0]


def test_an_enum_is_compared_as_it_is() -> None:
    server = Server()
    found(Column("k", "public.mood", "mood", enum_values=("glad", "text")), server, "glad")
    assert '"k0"::public.mood AS' in server.asked[0]


@pytest.mark.parametrize(
    "error", [psycopg.errors.CheckViolation("value for domain"), psycopg.errors.InvalidTextRepresentation("abc")]
)
def test_what_no_row_can_have_has_no_row_and_costs_the_others_nothing(error: psycopg.Error) -> None:
    server = Server(error, "c", "f")
    column = Column("k", "public.tree", "ltree")
    assert found(column, server, *"abcdefgh") == list("abdegh")
    assert server.undone == 7  # for each of the two: by halves down to it alone, the first time together
    assert found(column, Server(error, "c"), "c") == []


def test_any_other_error_is_one() -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        found(Column("k", "text", "text"), Server(psycopg.errors.InsufficientPrivilege("no"), "b"), *"abc")
