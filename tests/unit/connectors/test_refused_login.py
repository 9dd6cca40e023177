"""What to do about a login that Postgres refuses: what its words say, and not whoever asked."""

from __future__ import annotations

import psycopg
import pytest
from pydantic import SecretStr

from cdc.errors import SourceError
from cdc.pipeline import Source
from connectors.postgres import connect
from connectors.tables.catalogue import other_kind

SAID = 'connection to server at "127.0.0.1", port 1 failed: FATAL:  '


def refused(monkeypatch: pytest.MonkeyPatch, words: str, *, setup: bool) -> SourceError:
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(SAID + words)

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
    assert not caught.value.transient
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


def test_a_sequence_is_no_view() -> None:
    assert other_kind("r") is None and other_kind(None) is None
    view, sequence = other_kind("v"), other_kind("S")
    assert view is not None and view[0] == "a view: its changes are not in the log" and "join them" in view[1]
    assert sequence == ("a sequence: its changes are not in the log", "leave it out")
