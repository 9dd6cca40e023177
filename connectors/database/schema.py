"""The helper schema: a heartbeat row, a signal table, the list of captured tables, and what runners leave there."""

from __future__ import annotations

from psycopg import sql

from cdc.formats import SOURCE
from connectors.actions import Action, statements
from connectors.database.life import living
from connectors.database.number import check_number, numbered
from connectors.database.timeline import noted_timeline, noting
from connectors.names import Names
from connectors.postgres import Connection, explained


def plan_schema(connection: Connection, names: Names) -> list[Action]:
    """Actions that create what is missing of the helper schema."""
    with explained(f"reading schema {names.schema}"):
        row = connection.execute(
            "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", [names.schema]
        ).fetchone()
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)",
            [names.schema],
        )
        there = {name for (name,) in tables}
    actions = []
    if row is None or not row[0]:
        create = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(names.schema))
        what = f"creating schema {names.schema}"
        actions.append(Action("schema", names.schema, "create", None, "schema", statements(what, create)))
    for table, purpose, ddl in _tables(names):
        if table not in there:
            name = names.qualified(table)
            run = statements(f"creating table {name}", *ddl)
            actions.append(Action("table", name, f"create ({purpose})", None, "table", run))
    if names.witness in there:
        actions += _unnoted(connection, names)
    if names.captured in there:
        actions += _newer_columns(connection, names)
        if check_number(connection, names) is None:
            name = names.qualified(names.captured)
            run = statements(f"numbering {name}", numbered(names))
            actions.append(Action("table", name, f"note its format ({SOURCE})", None, "comment", run))
    return actions


def _unnoted(connection: Connection, names: Names) -> list[Action]:
    """The timeline, where an older version has made the witness table."""
    if noted_timeline(connection, names) is not None:
        return []
    name = names.qualified(names.witness)
    run = statements(f"noting the timeline in {name}", noting(names))
    return [Action("table", name, "note the timeline that is followed", None, "timeline", run)]


def _newer_columns(connection: Connection, names: Names) -> list[Action]:
    """What a list of captured tables that an older version has made lacks."""
    with explained(f"reading the columns of {names.captured}"):
        rows = connection.execute(
            "SELECT attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            [names.schema, names.captured],
        )
        there = {name for (name,) in rows}
    if {"condition", "sweep", "identity", "gap", "left_at", "begins", "read_through"} <= there:
        return []
    name = names.qualified(names.captured)
    alter = sql.SQL(
        "ALTER TABLE {} ADD COLUMN IF NOT EXISTS condition text,"
        " ADD COLUMN IF NOT EXISTS sweep boolean NOT NULL DEFAULT false,"
        " ADD COLUMN IF NOT EXISTS identity jsonb, ADD COLUMN IF NOT EXISTS gap jsonb,"
        " ADD COLUMN IF NOT EXISTS left_at timestamptz, ADD COLUMN IF NOT EXISTS begins jsonb,"
        " ADD COLUMN IF NOT EXISTS read_through jsonb"
    ).format(names.identifier(names.captured))
    # When a table was whole first is not known: by now it is, and what is read from now on is read again.
    by_now = sql.SQL(
        "UPDATE {} c SET read_through = jsonb_build_object('lsn', pg_current_wal_insert_lsn()::text,"
        " 'topic', c.begins ->> 'topic') WHERE c.snapshot = 'done' AND c.gap IS NULL AND c.read_through IS NULL"
    ).format(names.identifier(names.captured))
    run = statements(f"adding columns to {name}", alter, by_now)
    columns = "condition, sweep, identity, gap, left_at, begins, read_through"
    return [Action("table", name, "add columns (re-snapshots, what tables are)", None, columns, run)]


# A table's name, what it is for, and the statements that make it.
_Table = tuple[str, str, list[sql.Composed]]


def _tables(names: Names) -> list[_Table]:
    """In the order in which they are made."""
    return [_heartbeat(names), _signal(names), _marker(names), _captured(names), _witness(names), _life(names)]


def _heartbeat(names: Names) -> _Table:
    table = names.identifier(names.heartbeat)
    create = sql.SQL(
        "CREATE TABLE IF NOT EXISTS {} (id int PRIMARY KEY CHECK (id = 1), beat bigint NOT NULL,"
        " at timestamptz NOT NULL)"
    ).format(table)
    row = sql.SQL("INSERT INTO {} VALUES (1, 0, now()) ON CONFLICT DO NOTHING").format(table)
    return names.heartbeat, "heartbeat: keeps the slot moving while the captured tables are idle", [create, row]


def _signal(names: Names) -> _Table:
    create = sql.SQL(
        "CREATE TABLE IF NOT EXISTS {} (id varchar(255) PRIMARY KEY, type varchar(64) NOT NULL, data text)"
    ).format(names.identifier(names.signal))
    return names.signal, "signals: watermarks of incremental snapshots", [create]


def _marker(names: Names) -> _Table:
    table = names.identifier(names.marker)
    create = sql.SQL("CREATE TABLE IF NOT EXISTS {} (id int PRIMARY KEY CHECK (id = 1))").format(table)
    row = sql.SQL("INSERT INTO {} VALUES (1) ON CONFLICT DO NOTHING").format(table)
    return names.marker, "marker: its snapshot record tells the position of the initial snapshot", [create, row]


def _captured(names: Names) -> _Table:
    create = sql.SQL(
        "CREATE TABLE IF NOT EXISTS {} (table_name text PRIMARY KEY, snapshot text NOT NULL"
        " CHECK (snapshot IN ('initial', 'wanted', 'requested', 'done')), signal_id text,"
        " changed_at timestamptz NOT NULL DEFAULT now(), condition text,"
        " sweep boolean NOT NULL DEFAULT false, identity jsonb, gap jsonb, left_at timestamptz,"
        " begins jsonb, read_through jsonb)"
    ).format(names.identifier(names.captured))
    return names.captured, "captured tables and the state of their snapshots", [create, numbered(names)]


def _witness(names: Names) -> _Table:
    table = names.identifier(names.witness)
    create = sql.SQL(
        "CREATE TABLE IF NOT EXISTS {} (runner text PRIMARY KEY, token uuid NOT NULL"
        " DEFAULT gen_random_uuid(), count bigint NOT NULL DEFAULT 0, at timestamptz NOT NULL"
        " DEFAULT now())"
    ).format(table)
    row = sql.SQL("INSERT INTO {} (runner) VALUES ('') ON CONFLICT DO NOTHING").format(table)
    purpose = "witness: numbers of runners, by which a database put back to a copy is noticed"
    return names.witness, purpose, [create, row, noting(names)]


def _life(names: Names) -> _Table:
    create = sql.SQL(
        "CREATE UNLOGGED TABLE IF NOT EXISTS {} (id int PRIMARY KEY CHECK (id = 1), number uuid NOT NULL"
        " DEFAULT gen_random_uuid())"
    ).format(names.identifier(names.life))
    purpose = "life: a number that a crash of the server takes away, for tokens of writes"
    return names.life, purpose, [create, living(names)]


def drop_schema(connection: Connection, names: Names) -> None:
    """Drop this pipeline's tables and function; the schema too when no other pipeline uses it.

    Raises:
        SourceError: Postgres refused.
    """
    with explained(f"dropping what is in schema {names.schema}"), connection.transaction():
        there = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [names.schema]).fetchone()
        if there is None:
            return
        for table in names.tables:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(names.identifier(table)))
        for function, arguments in ((names.truncate_function, ""), (names.token_function, "boolean")):
            drop = sql.SQL("DROP FUNCTION IF EXISTS {}({})").format(names.identifier(function), sql.SQL(arguments))
            connection.execute(drop)
        left = connection.execute(
            "SELECT FROM pg_depend d JOIN pg_namespace n ON n.oid = d.refobjid"
            " WHERE d.refclassid = 'pg_namespace'::regclass AND n.nspname = %s LIMIT 1",
            [names.schema],
        ).fetchone()
        if left is None:
            connection.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(names.schema)))
