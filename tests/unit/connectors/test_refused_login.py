"""What to do about a login that Postgres refuses: what its words say, and not whoever asked."""

from __future__ import annotations

import psycopg
import pytest
from pydantic import SecretStr

from cdc.errors import SourceError, SourceRefused, SourceUnavailable
from cdc.pipeline import Source
from connectors.postgres import connect
from connectors.refused_login import AS_USER, login_error
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
        ('pg_hba.conf rejects connection for host "10.0.0.1", user "owner", database "shop"', "by the server's pg_hba"),
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
        (f'{AT}ÖLÜMCÜL (FATAL):  "shop" veritabanı mevcut değil', '"shop" veritabanı mevcut değil'),
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
        "canceling authentication due to timeout",
        "no more connections allowed (max_client_conn)",
        "query_wait_timeout",
        "client_login_timeout",
        "max clients reached",
        "server login has been failing, try again later (server_login_retry)",
        "pgbouncer cannot connect to server",
    ],
)
def test_a_server_that_is_starting_is_neither_refusing_nor_to_be_started(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    error = told(monkeypatch, SAID + words, setup=False)
    assert type(error) is SourceUnavailable
    assert error.what.startswith("Postgres lets nobody in for now") and "start the server" not in error.fix


@pytest.mark.parametrize("state", ["57P01", "57P02", "57P03", "53300", "08P01"])
def test_what_passes_is_known_by_its_code_where_there_is_one(state: str) -> None:
    """In German it was put down to whoever asked."""
    error = login_error(psycopg.errors.lookup(state)("die Verbindung wird beendet"), "h:1/shop as headwater", AS_USER)
    assert type(error) is SourceUnavailable
    assert error.what == "Postgres lets nobody in for now at h:1/shop as headwater: die Verbindung wird beendet"


def test_a_small_timeout_of_the_role_is_no_wrong_password() -> None:
    words = "storniere Anfrage wegen Zeitüberschreitung der Anfrage"
    error = login_error(psycopg.errors.lookup("57014")(words), "h:1/shop as headwater", AS_USER)
    assert type(error) is SourceUnavailable and words in error.what
    assert "ALTER ROLE … RESET statement_timeout" in error.fix and "password" not in error.fix


def test_what_else_a_session_is_not_set_up_for_is_refused() -> None:
    error = login_error(psycopg.errors.lookup("42501")("das Zertifikat (certificate) fehlt"), "h:1/shop", AS_USER)
    assert isinstance(error, SourceRefused) and error.fix == AS_USER


def test_who_is_not_there_is_to_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    error = told(monkeypatch, f"{AT}server closed the connection unexpectedly", setup=False)
    assert type(error) is SourceUnavailable and "does not answer" in error.what and "start the server" in error.fix


def test_a_sequence_is_no_view() -> None:
    assert other_kind("r") is None and other_kind(None) is None
    view, sequence = other_kind("v"), other_kind("S")
    assert view is not None and view[0] == "a view: its changes are not in the log" and "join them" in view[1]
    assert sequence == ("a sequence: its changes are not in the log", "leave it out")
