"""What a database or a role sets for its sessions (ALTER … SET) changes nothing of what we read."""

from __future__ import annotations

import base64

import pytest
from psycopg import sql

from connectors.apply import apply
from connectors.snapshots.snapshot import wait_snapshot
from tests.support.source import SourceDatabase, eventually
from truth.rows import snapshot

pytestmark = pytest.mark.stack

# Each is a setting that some administrator has; together they broke the snapshot, the stream, and our own statements.
ODD = {
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "DateStyle": "SQL, DMY",
    "default_transaction_read_only": "on",
    "lock_timeout": "3s",
    "statement_timeout": "2s",
    "idle_in_transaction_session_timeout": "3s",
}
ROW = "'1 year 2 months 3 days', 'hello'"
SPAN, BYTES = "P1Y2M3DT0H0M0S", base64.b64encode(b"hello").decode()


def surprise(source: SourceDatabase) -> None:
    with source.connect("superuser") as connection:
        newer = {"transaction_timeout": "4s"} if connection.info.server_version >= 170000 else {}
        for name, value in {**ODD, **newer}.items():
            alter = sql.SQL("ALTER DATABASE {} SET {} = {}")
            names = sql.Identifier(source.name), sql.Identifier(name.lower()), sql.Literal(value)
            connection.execute(alter.format(*names))
            if name in ("IntervalStyle", "bytea_output"):
                alter = sql.SQL("ALTER ROLE {} SET {} = {}")
                connection.execute(alter.format(sql.Identifier(source.replicator), *names[1:]))


def test_the_connector_reads_the_same_whatever_its_sessions_are_set_to(source: SourceDatabase) -> None:
    """Intervals came as PT0S, a bytea of two letters empty, and one of five ended the connector's task."""
    source.execute(
        "CREATE TABLE t (id int PRIMARY KEY, span interval, bits bytea)",
        f"INSERT INTO t VALUES (1, {ROW})",
        "CREATE TABLE seen (name text, value text, PRIMARY KEY (name, value))",
        "GRANT INSERT, SELECT ON seen TO PUBLIC",
    )
    surprise(source)
    tell = (
        "INSERT INTO public.seen SELECT name, setting FROM pg_settings"
        " WHERE name ~ '^(lock|statement|transaction|idle.*)_timeout|default.*read_only' ON CONFLICT DO NOTHING"
    )
    pipeline = source.pipeline("public.t", connect={"options": {"heartbeat.action.query": tell}})
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    with source.connect() as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"INSERT INTO t VALUES (2, {ROW})")
    topic = pipeline.topic("public.t")
    assert eventually(lambda: len(source.latest(topic)) == 2, 30)
    found = {(row["id"], row["span"], row["bits"]) for row in source.latest(topic).values() if row}
    assert found == {(1, SPAN, BYTES), (2, SPAN, BYTES)}
    assert eventually(lambda: bool(source.rows("SELECT FROM seen")), 30)
    told = source.rows("SELECT name, value FROM seen ORDER BY 1")
    assert {name: value for name, value in told if value not in ("0", "off")} == {}, told
    with snapshot(pipeline.source) as connection:  # a comparison takes longer than the administrator lets others
        limits = connection.execute("SELECT name, setting FROM pg_settings WHERE name ~ '^(st|tr|idle).*_timeout'")
        assert {value for _, value in limits.fetchall()} == {"0"}
