"""docs/runbooks.md: the same rows in another database of the same cluster, under the name that the file has."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from cdc.pipeline import Connect, load
from connectors.rest import ConnectClient
from operations.recapture import FILE
from operations.state.folder import register_of
from tests.support.scenario import Scenario
from tests.support.servers import Servers
from tests.support.source import eventually

pytestmark = [pytest.mark.stack, pytest.mark.slow]

SLOTS = "SELECT active FROM pg_replication_slots WHERE database = '{}'"


def test_a_database_that_was_put_in_the_place_of_another_is_captured_anew(
    local_stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who names it is refused by every verb, and nothing is changed: `recapture` removed a generation before, and left
    a note. With the old capture dropped, but not what readers see, `recapture` captures it; how sinks are built then
    is test_runbook_upgrade.py's."""
    scenario = Scenario(local_stack, tmp_path, sinks=("cache",))
    old = f"{scenario.name}_old"
    try:
        scenario.prepare()
        for name, value in scenario.environment().items():
            monkeypatch.setenv(name, value)
        register = register_of(load(scenario.file), "cache")
        register.move(register.create("asked for", own=True).number, "ready")
        before = [entry.number for entry in register.entries()]
        swap(scenario, old)
        for verb in (("plan",), ("apply",), ("resnapshot", "--all"), ("recapture", "--yes"), ("drop", "--yes")):
            said = scenario.run_error(*verb)
            assert f"its slot decodes {old}" in said and "--topics --keep-sinks" in said, said
        assert [entry.number for entry in register.entries()] == before
        assert not (tmp_path / "state" / scenario.name / FILE).exists()
        new = scenario.file.read_text()
        scenario.file.write_text(new.replace(f"database: {scenario.name}", f"database: {old}"))
        scenario.run("drop", "--topics", "--keep-sinks", "--yes")
        assert server(scenario, SLOTS.format(old)) == []
        assert [entry.number for entry in register.entries()] == before
        scenario.file.write_text(new)
        scenario.readable(allowed=True)
        assert json.loads(scenario.run("recapture", "--yes", "--json"))["equal"]
        assert server(scenario, SLOTS.format(scenario.name)) == [(True,)]
        assert [entry.stage for entry in register.entries()] == ["living"]
        assert "nothing to change" in scenario.run("plan")
    finally:
        scenario.close()
        server(scenario, f'DROP DATABASE IF EXISTS "{old}" WITH (FORCE)')


def swap(scenario: Scenario, old: str) -> None:
    """Put a copy, with all that is ours in it, into the place of the database that is captured."""
    connect = ConnectClient(Connect(url=scenario.stack.endpoints.connect_url))
    try:
        connect.stop(f"headwater-{scenario.name}")
    finally:
        connect.close()
    name = scenario.name
    assert eventually(lambda: server(scenario, SLOTS.format(name)) == [(False,)], 60)
    others = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    server(scenario, others)
    server(scenario, f'ALTER DATABASE "{name}" RENAME TO "{old}"')
    server(scenario, f'CREATE DATABASE "{name}" TEMPLATE "{old}" OWNER shop_owner')


def server(scenario: Scenario, statement: str) -> list[tuple[object, ...]]:
    """One statement of the superuser's; what it answers."""
    endpoints = scenario.stack.endpoints
    with psycopg.connect(
        host=endpoints.postgres_host,
        port=endpoints.postgres_port,
        user=endpoints.postgres_superuser,
        password=endpoints.postgres_password,
        dbname="postgres",
        autocommit=True,
    ) as connection:
        answered = connection.execute(statement.encode())
        return answered.fetchall() if answered.description else []
