"""Addresses of a Postgres catalogue: what Java's client takes, its Python fellow is told too, or it is refused."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine

from cdc.errors import ConfigError, HeadwaterError, SinkRefused, SinkUnavailable
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogues import postgres
from sinks.iceberg.catalogues.kinds import catalogue_of
from sinks.iceberg.catalogues.sql import SqlCatalogue
from sinks.iceberg.place import Place

# What libpq is told where the address does not say otherwise.
LIMITS = {
    "connect_timeout": "10",
    "tcp_user_timeout": "30000",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
}


def lake(uri: str) -> Any:
    return SimpleNamespace(catalog_uri=uri, warehouse="/w", namespace="n")


def told(uri: str) -> dict[str, Any]:
    """What libpq is told."""
    engine = create_engine(iceberg.pyiceberg_properties(lake(uri))["uri"])
    _, arguments = engine.dialect.create_connect_args(engine.url)
    return {name: value for name, value in arguments.items() if name != "context"}


@pytest.mark.parametrize(
    ("given", "java", "libpq"),
    [
        ("[::1]:5432/db", "[::1]:5432/db", {"host": "::1", "port": 5432}),
        ("[::1]/db", "[::1]:5432/db", {"host": "::1", "port": 5432}),
        ("h1:5432,h2:5433/db", "h1:5432,h2:5433/db", {"host": "h1,h2", "port": "5432,5433"}),
        ("h1,[::1]:5433/db", "h1:5432,[::1]:5433/db", {"host": "h1,::1", "port": "5432,5433"}),
        ("/db", "localhost:5432/db", {"host": "localhost", "port": 5432}),
    ],
)
def test_hosts_are_the_same_to_both_clients(given: str, java: str, libpq: dict[str, Any]) -> None:
    uri = f"jdbc:postgresql://{given}?user=me&password=a%40b"
    spark = iceberg.spark_properties(lake(uri))
    assert (spark["uri"], spark["jdbc.user"], spark["jdbc.password"]) == (f"jdbc:postgresql://{java}", "me", "a@b")
    assert told(uri) == LIMITS | libpq | {"dbname": "db", "user": "me", "password": "a@b"}


@pytest.mark.parametrize(
    ("given", "libpq"),
    [
        ("currentSchema=lake", {"options": "-csearch_path=lake"}),
        ("options=-ca%3Db&currentSchema=lake", {"options": "-ca=b -csearch_path=lake"}),
        ("ssl=true", {"sslmode": "verify-full"}),
        ("ssl=true&sslmode=require", {"sslmode": "require"}),
        ("ssl=false", {}),
        ("sslmode=verify-ca&sslrootcert=/a b.crt", {"sslmode": "verify-ca", "sslrootcert": "/a b.crt"}),
        ("targetServerType=primary&connectTimeout=5", {"target_session_attrs": "primary", "connect_timeout": "5"}),
        ("ApplicationName=lake&socketTimeout=30&tcpKeepAlive=true", {"application_name": "lake", "keepalives": "1"}),
        ("connect_timeout=5", {"connect_timeout": "5"}),
        ("tcpKeepAlive=false&tcp_user_timeout=0", {"keepalives": "0", "tcp_user_timeout": "0"}),
    ],
)
def test_options_of_javas_client_are_told_to_the_other_by_its_names(given: str, libpq: dict[str, str]) -> None:
    uri = f"jdbc:postgresql://h/db?{given}"
    assert told(uri) == LIMITS | libpq | {"host": "h", "port": 5432, "dbname": "db"}
    assert iceberg.spark_properties(lake(uri))["uri"] == f"jdbc:postgresql://h:5432/db?{given.replace(' ', '%20')}"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("//h:port/db", "no address of a Postgres database"),
        ("//h:99999/db", "no address of a Postgres database"),
        ("//::1:5432/db", "no address of a Postgres database"),
        ("db", "no address of a Postgres database"),
        ("//h/db?targetServerType=preferPrimary", "the option targetServerType=preferPrimary"),
        ("//h/db?socketFactory=a.B", "the option socketFactory"),
    ],
)
def test_what_not_both_can_be_told_is_refused_by_name(given: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as found:
        iceberg.spark_properties(lake(f"jdbc:postgresql:{given}"))
    assert found.value.fix


def test_javas_client_does_not_wait_without_an_end_to_be_let_in_and_never_gives_up_a_commit() -> None:
    """One whose answer has not come is sent once more by Iceberg, which takes it for failed then, and may remove what
    it has written."""
    told = iceberg.spark_properties(lake("jdbc:postgresql://h/db?loginTimeout=5"))
    assert (told["jdbc.loginTimeout"], told["jdbc.tcpKeepAlive"]) == ("60", "true")  # an address goes before them
    assert "loginTimeout=5" in told["uri"] and not any("socketTimeout" in name for name in told)


def test_a_file_has_no_limits_of_a_server(tmp_path: Path) -> None:
    told = iceberg.spark_properties(SimpleNamespace(catalog_uri=str(tmp_path / "c.db"), warehouse="/w", namespace="n"))
    assert [name for name in told if name.startswith("jdbc.")] == ["jdbc.schema-version", "jdbc.busy_timeout"]


@pytest.mark.parametrize("how", ["check", "open", "begun"])
def test_a_server_that_accepts_and_says_nothing_is_not_waited_for_without_an_end(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres._LIMITS, "connect_timeout", "2")  # the least that there is
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        made = catalogue_of(Place.of(lake(f"jdbc:postgresql://127.0.0.1:{server.getsockname()[1]}/db")))
        assert isinstance(made, SqlCatalogue)
        began = time.monotonic()
        with pytest.raises(SinkUnavailable, match="timeout"):
            ask(made, how, made.pyiceberg_properties())
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("how", ["check", "open", "begun"])
def test_what_the_client_refuses_is_no_foreign_exception(how: str) -> None:
    """`main` showed a traceback of SQLAlchemy's."""
    made = catalogue_of(Place.of(lake("jdbc:postgresql://127.0.0.1:1/db")))
    assert isinstance(made, SqlCatalogue)
    for bad in ("127.0.0.1:1/db?connect_timeout=a", "127.0.0.1:x/db"):
        properties = {"uri": f"postgresql+psycopg://{bad}", "warehouse": "/w"}
        with pytest.raises(SinkRefused, match="does not open"):
            ask(made, how, properties)
    with pytest.raises(HeadwaterError) as found:
        ask(made, how, made.pyiceberg_properties())
    assert found.value.code == "sink-unavailable"


def ask(made: SqlCatalogue, how: str, properties: dict[str, str]) -> None:
    if how == "begun":
        made.begun(properties)
    elif how == "check":
        made.check("hw_lake", properties)
    else:
        with made.open("hw_lake", properties):
            pass
