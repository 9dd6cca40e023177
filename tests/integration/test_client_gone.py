"""An application's writes on a real Postgres whose pipeline was dropped, or not applied yet."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator

import psycopg
import pytest
from headwater_client.psycopg import writing
from headwater_client.session import Tokens, begin, current, end

from examples.common import Passwords, Server, drop_database, ensure_database
from tests.support.gone import GONE, after_django

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def database(server: Server) -> Iterator[str]:
    name = f"gone_test_{secrets.token_hex(4)}"
    try:
        yield ensure_database(server, name, "flights_owner", passwords=Passwords.load())
    finally:
        drop_database(server, name)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    """In a request, with an empty table of one column."""
    mark = begin(Tokens())
    with psycopg.connect(database, autocommit=True) as made:
        made.execute("DROP TABLE IF EXISTS things; CREATE TABLE things (id int)")
        yield made
    end(mark)


def rows(database: str) -> list[int]:
    with psycopg.connect(database) as other:
        return [row[0] for row in other.execute("SELECT id FROM things ORDER BY id").fetchall()]


def test_a_pipeline_that_is_gone_takes_no_write_with_it(
    database: str, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), writing(connection, "gone") as cursor:
        cursor.execute("INSERT INTO things VALUES (1)")
    assert rows(database) == [1] and not current()
    assert "no token for what was written" in caplog.text


def test_the_token_of_one_that_is_there_is_remembered(database: str, connection: psycopg.Connection) -> None:
    connection.execute("CREATE SCHEMA headwater")
    connection.execute("CREATE FUNCTION headwater.token_shop(boolean) RETURNS text RETURN 'a-token'")
    with writing(connection, "shop") as cursor:
        cursor.execute("INSERT INTO things VALUES (1)")
    assert rows(database) == [1] and list(current()) == ["a-token"]


def test_a_transaction_that_has_failed_is_an_error_because_a_commit_would_be_none(
    database: str, connection: psycopg.Connection
) -> None:
    with pytest.raises(psycopg.errors.InFailedSqlTransaction), writing(connection, "gone") as cursor:
        cursor.execute("INSERT INTO things VALUES (1)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            cursor.execute("SELECT 1 / 0")
    assert rows(database) == []


def test_a_connection_that_is_lost_is_an_error(
    database: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(cursor: psycopg.Cursor, *_: object, **__: object) -> None:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr("headwater_client.psycopg.take_token", lost)
    with pytest.raises(psycopg.OperationalError), writing(connection, "gone") as cursor:
        cursor.execute("INSERT INTO things VALUES (1)")
    assert rows(database) == []


def test_django_writes_go_on_too(server: Server, database: str) -> None:
    info = psycopg.conninfo.conninfo_to_dict(database)
    told, warned = after_django(
        {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": str(info["dbname"]),
            "USER": str(info["user"]),
            "PASSWORD": str(info["password"]),
            "HOST": str(info["host"]),
            "PORT": str(info["port"]),
        }
    )
    assert told == GONE
    assert warned.count("no token for what was written") == 3
