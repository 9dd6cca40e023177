"""Rows that are looked up by values of another table, which may have none of theirs: that is no error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
import pytest

from cdc.catalogue import Column, Table
from cdc.view import View
from connectors.postgres import Connection
from truth.rows import equal_keys, looked_up


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


class Holding(Server):
    """A table's rows: those that a condition lets through, whatever it says, or all of them a page at a time."""

    def __init__(self, *rows: tuple[str, ...], error: Exception | None = None) -> None:
        super().__init__(error)
        self.rows = list(rows)

    def execute(self, query: Any) -> Iterator[Any]:
        self.asked.append(query.as_string(None))
        if self.error is not None:
            raise self.error
        return iter(self.rows)

    @contextmanager
    def cursor(self, **_options: Any) -> Iterator[Holding]:
        yield self

    def fetchmany(self, _size: int) -> list[Any]:
        rows, self.rows = self.rows, []
        return rows


def equal(server: Server, key: str, *columns: Column) -> list[str]:
    table = Table("public", "t", columns, tuple(column.name for column in columns))
    return equal_keys(cast(Connection, server), View.identity(table), key)


@pytest.mark.parametrize(
    ("column", "given", "text", "own", "condition"),
    [
        (Column("k", "bpchar", "bpchar"), "ab", "ab ", "ab ", """t."k" = 'ab'::text::bpchar"""),
        (Column("k", "numeric", "numeric"), "1.0", "1.00", "1.00", """t."k" = '1.0'::text::numeric"""),
        (Column("k", "double precision", "float8"), "0.0", "-0", "-0.0", """'0.0'::text::double precision"""),
        (Column("k", "interval", "interval"), "P1D", "P0Y0M0DT24H0M0S", "PT24H", """'P1D'::text::interval"""),
        (Column("k", "jsonb", "jsonb"), "1", "1.0", "1.0", """t."k" = '1'::text::jsonb"""),
        (Column("k", "text", "text", collated=True), "a", "A", "A", """t."k" = 'a'::text::text"""),
        # Its own operator has a schema that nobody knows; `=` alone would be the one of text.
        (
            Column("k", "public.citext", "citext"),
            "a",
            "A",
            "A",
            """lower(t."k"::text COLLATE "default") = lower('a'::""",
        ),
    ],
)
def test_a_row_of_an_equal_key_is_found_whatever_its_text(
    column: Column, given: str, text: str, own: str, condition: str
) -> None:
    """It was told by its id's text alone: a row that lives was not there, and its erasure certified."""
    server = Holding((text,))
    assert equal(server, given, column) == [own]
    assert condition in server.asked[0]


def test_what_postgres_does_not_read_back_is_told_by_its_text() -> None:
    parts = Column("n", "numeric", "numeric"), Column("day", "date", "date")
    server = Holding(("1.00", "infinity"), ("1.00", "-infinity"))
    assert equal(server, "1.0|infinity", *parts) == ["1.00|infinity"]
    assert (
        "numeric" in server.asked[0].partition("WHERE")[2] and "infinity" not in server.asked[0].partition("WHERE")[2]
    )
    assert equal(Holding(("{1,2}",), ("{2}",)), "[1,2]", Column("k", "integer[]", "int4", array=True)) == ["[1,2]"]


def test_a_text_that_no_row_can_have_is_no_rows() -> None:
    assert (
        equal(Holding(("1",), error=psycopg.errors.InvalidTextRepresentation("x")), "x", Column("k", "jsonb", "jsonb"))
        == []
    )
