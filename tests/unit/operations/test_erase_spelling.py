"""The key of a row that is to be erased, as its table writes it: another spelling was found nowhere, and "ERASED"."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, RowInSource
from cdc.pipeline import Pipeline
from operations.erase import spelling, subject
from operations.erase.subject import Subject
from tests.support.erase_cases import subject as row_of

UUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


class Postgres:
    """Answers with the texts that Postgres has for these values; as a pipeline's source."""

    def __init__(self, *answers: tuple[str, bool] | Exception) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def execute(self, query: Any) -> Any:
        self.asked.append(query.as_string(None))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(fetchone=lambda: answer)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Names a row of a table with such key columns: what its key is then, and the lines that were said."""

    def name(key: str, postgres: Postgres, *columns: Column) -> tuple[str, list[str]]:
        @contextmanager
        def snapshot(_: Any) -> Any:
            yield postgres

        table = Table("public", "t", columns, tuple(one.name for one in columns))
        catalogue = cast(Catalogue, SimpleNamespace(tables={"public.t": table}))
        monkeypatch.setattr(spelling, "snapshot", snapshot)
        monkeypatch.setattr(subject, "source_catalogue", lambda _: catalogue)
        pipeline = cast(Pipeline, SimpleNamespace(source=SimpleNamespace(outbox=None), views={}))
        lines = list[str]()
        return Subject.of(pipeline, "t", key, lines.append).key, lines

    return name


def column(kind: str, base: str = "", **more: Any) -> Column:
    return Column("id", kind, base or kind, **more)


MONEY = column("numeric(10,2)", "numeric", precision=10, scale=2)
MOMENT = column("timestamp with time zone", "timestamptz")


@pytest.mark.parametrize(
    ("typed", "text", "key", "kind"),
    [
        (UUID.upper(), UUID, UUID, column("uuid")),
        ("1.0", "1.00", "1.00", MONEY),
        ("0042", "42", "42", column("integer", "int4")),
        ("t", "t", "true", column("boolean", "bool")),
        ("2013-01-01 11:00+01", "2013-01-01 10:00:00+00", "2013-01-01T10:00:00Z", MOMENT),
        ("1", "1", "1.0", column("double precision", "float8")),
        ("a", "a  ", "a  ", column("character(3)", "bpchar")),
    ],
)
def test_a_key_in_another_spelling_is_taken_as_the_table_writes_it(
    given: Any, typed: str, text: str, key: str, kind: Column
) -> None:
    postgres = Postgres((text, True))
    assert given(typed, postgres, kind) == (key, [f"the table writes that key as {key}"])
    assert f"given::{kind.type_name} AS" in postgres.asked[0] and f"'{typed}'::text" in postgres.asked[0]


def test_of_a_key_that_is_spelled_as_the_tables_own_nothing_is_said(given: Any) -> None:
    assert given(UUID, Postgres((UUID, True)), column("uuid")) == (UUID, [])
    parts = column("text"), Column("line", "bigint", "int8")
    assert given(r"a\|b|7", Postgres(("a|b", True), ("7", True)), *parts) == (r"a\|b|7", [])
    assert given(r"a\|b|07", Postgres(("a|b", True), ("7", True)), *parts)[0] == r"a\|b|7"


@pytest.mark.parametrize(
    "refusal",
    [
        psycopg.errors.InvalidTextRepresentation('invalid input syntax for type uuid: "x"\nLINE 1: …'),
        psycopg.errors.CheckViolation('value for domain public.even violates check constraint "even_check"'),
    ],
)
def test_what_postgres_does_not_take_as_the_keys_type_is_refused(given: Any, refusal: Exception) -> None:
    with pytest.raises(
        ConfigError, match=r"public\.t\.id is uuid, which the given key is not: (invalid|value)"
    ) as error:
        given("x", Postgres(refusal), column("uuid"))
    assert "LINE" not in error.value.what and error.value.means == "nothing was looked for"


@pytest.mark.parametrize(
    ("typed", "cut", "kind"),
    [
        ("1.005", "1.01", MONEY),
        ("abcd", "abc", column("character varying(3)", "varchar")),
        ("2020-01-01 10:00", "2020-01-01", column("date")),
    ],
)
def test_a_key_that_a_cast_would_make_another_rows_is_refused(given: Any, typed: str, cut: str, kind: Column) -> None:
    with pytest.raises(ConfigError, match="cut or rounded"):
        given(typed, Postgres((cut, False)), kind)


def test_whole_numbers_are_in_digits_whatever_the_server_reads(given: Any) -> None:
    postgres = Postgres()
    for typed in ("0x10", "1_000", "x", ""):
        with pytest.raises(ConfigError, match="is bigint, which the given key is not"):
            given(typed, postgres, column("bigint", "int8"))
    assert not postgres.asked


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (column("bytea"), "nobody can tell"),
        (column("text[]", "text", array=True), "nobody can tell"),
        (column("public.citext", "citext"), "nobody can tell"),
        (column("text", collated=True), "texts that differ"),
        (column("numeric"), "may be spelled otherwise"),
        (column("interval"), "are one interval"),
        (column("bpchar"), "blanks at its end do not count"),
        (column("public.code", "bpchar", unpadded=True), "blanks at its end do not count"),
    ],
)
def test_where_nobody_can_tell_how_the_row_wrote_it_that_is_said(given: Any, kind: Column, why: str) -> None:
    key, lines = given("1", Postgres(("1", True)), kind)
    assert key == "1" and [why in line for line in lines] == [True], lines


def test_days_that_postgres_does_not_read_as_documents_write_them_stay(given: Any) -> None:
    for typed in ("-0043-03-15T00:00:00Z", "+10000-01-01T10:00:00.5Z"):
        assert given(typed, Postgres(), MOMENT) == (typed, [])


def test_of_a_float_only_zero_has_two_spellings(given: Any) -> None:
    assert given("1.5", Postgres(("1.5", True)), column("real", "float4")) == ("1.5", [])
    key, [line] = given("0.0", Postgres(("0", True)), column("double precision", "float8"))
    assert key == "0.0" and "0 and -0 are one float" in line


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The source of a row: the ids of the rows that Postgres takes for it."""
    ids = list[str]()

    @contextmanager
    def connected(_: Any) -> Any:
        yield SimpleNamespace(execute=lambda _: SimpleNamespace(fetchone=lambda: (False,)))

    monkeypatch.setattr(subject, "connect", connected)
    monkeypatch.setattr(subject, "snapshot", connected)
    monkeypatch.setattr(subject, "equal_keys", lambda _connection, _view, _key: ids)
    return ids


def test_a_row_that_lives_and_writes_the_key_otherwise_is_refused(tmp_path: Path, source: list[str]) -> None:
    """`ERASED` it was: nobody had a record of the given id, and the row was found by its own alone."""
    lines = list[str]()
    row = replace(row_of(tmp_path, "ab"), say=lines.append)
    row.refuse_present()
    source.append("ab ")
    with pytest.raises(RowInSource, match="whose key is equal, in another spelling") as error:
        row.refuse_present()
    assert "with the key as that row wrote it" in str(error.value.fix) and "ab" not in error.value.what
    assert lines == ["public.persons has a row whose key is equal to the given one, and writes it as ab "]


def test_a_row_that_lives_is_refused(tmp_path: Path, source: list[str]) -> None:
    source.append("7")
    with pytest.raises(RowInSource, match=r"^the row of public\.persons is in the source"):
        row_of(tmp_path, "7").refuse_present()
