"""What to do about a login that Postgres refuses: what its words say, and not whoever asked."""

from __future__ import annotations

import psycopg
import pytest
from pydantic import SecretStr

from cdc.errors import SourceError, SourceRefused, SourceUnavailable
from cdc.pipeline import Source
from connectors.postgres import connect
from connectors.tables.catalogue import other_kind

SAID = 'connection to server at "127.0.0.1", port 1 failed: FATAL:  '


def refused(monkeypatch: pytest.MonkeyPatch, words: str, *, setup: bool) -> SourceError:
    error = told(monkeypatch, SAID + words, setup=setup)
    assert not error.transient
    return error


def told(monkeypatch: pytest.MonkeyPatch, message: str, *, setup: bool) -> SourceError:
    """What is made of libpq's message."""

    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(message)

    monkeypatch.setattr(psycopg, "connect", refuse)
    source = Source(
        host="127.0.0.1",
        port=1,
        database="shop",
        user="headwater",
        tables=("public.t",),
        setup_user="owner",
        setup_password=SecretStr("x"),
    )
    with pytest.raises(SourceError) as caught:
        connect(source, setup=setup)
    return caught.value


@pytest.mark.parametrize("setup", [True, False])
@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ('database "shop" does not exist', "correct source.database"),
        ('role "owner" is not permitted to log in', "ALTER ROLE … LOGIN"),
        ('no pg_hba.conf entry for host "10.0.0.1", user "owner", database "shop", no encryption', "pg_hba.conf"),
        ('permission denied for database "shop"\nDETAIL:  User does not have CONNECT privilege.', "GRANT CONNECT"),
    ],
)
def test_what_is_no_fault_of_a_password_is_not_put_down_to_it(
    monkeypatch: pytest.MonkeyPatch, words: str, fix: str, setup: bool
) -> None:
    """A wrong database's name asked for another source.setup_user and source.setup_password."""
    error = refused(monkeypatch, words, setup=setup)
    assert fix in error.fix and "password" not in error.fix


def test_a_wrong_password_names_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ('password authentication failed for user "owner"', 'role "owner" does not exist'):
        assert "correct source.setup_user and source.setup_password" in refused(monkeypatch, words, setup=True).fix
        assert "correct `source`" in refused(monkeypatch, words, setup=False).fix


AT = 'connection failed: connection to server at "::1", port 5432 failed: '


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            f"{AT}FATAL:  Passwort-Authentifizierung für Benutzer »owner« fehlgeschlagen\n",
            "Passwort-Authentifizierung für Benutzer »owner« fehlgeschlagen",
        ),
        (f'{AT}ВАЖНО:  база данных "shop" не существует', 'база данных "shop" не существует'),
        (
            f"{AT}FATAL:  keine Berechtigung für Datenbank »shop«\nDETAIL:  Benutzer hat das CONNECT-Privileg nicht.\n",
            "keine Berechtigung für Datenbank »shop« DETAIL: Benutzer hat das CONNECT-Privileg nicht.",
        ),
        (
            "Multiple connection attempts failed. All failures were:\n- host: 'h', port: '5432', hostaddr: '::1': "
            f"{AT}Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?\n\n"
            f"- host: 'h', port: '5432', hostaddr: '127.0.0.1': {AT}致命错误:  数据库 \"shop\" 不存在\n",
            '数据库 "shop" 不存在',
        ),
    ],
)
def test_a_server_that_speaks_another_language_is_not_to_be_started(
    monkeypatch: pytest.MonkeyPatch, message: str, words: str
) -> None:
    """Its lc_messages are not English; a refused login has no code."""
    error = told(monkeypatch, message, setup=True)
    assert isinstance(error, SourceRefused) and error.transient, "it may also be starting"
    assert error.what == f"Postgres answered, and refused 127.0.0.1:1/shop as owner (source.setup_user): {words}"
    assert "correct source.setup_user" in error.fix and "start the server" not in error.fix


@pytest.mark.parametrize(
    "words",
    [
        "the database system is starting up",
        "the database system is not yet accepting connections\nDETAIL:  Consistent recovery state is not reached.",
        "sorry, too many clients already",
        "remaining connection slots are reserved for roles with the SUPERUSER attribute",
    ],
)
def test_a_server_that_is_starting_is_neither_refusing_nor_to_be_started(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    error = told(monkeypatch, SAID + words, setup=False)
    assert type(error) is SourceUnavailable
    assert error.what.startswith("Postgres lets nobody in for now") and "start the server" not in error.fix


def test_who_is_not_there_is_to_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    error = told(monkeypatch, f"{AT}server closed the connection unexpectedly", setup=False)
    assert type(error) is SourceUnavailable and "does not answer" in error.what and "start the server" in error.fix


def test_a_sequence_is_no_view() -> None:
    assert other_kind("r") is None and other_kind(None) is None
    view, sequence = other_kind("v"), other_kind("S")
    assert view is not None and view[0] == "a view: its changes are not in the log" and "join them" in view[1]
    assert sequence == ("a sequence: its changes are not in the log", "leave it out")
