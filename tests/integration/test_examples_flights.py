"""The flights loader against a real Postgres, judged by pandas' own reading of the same files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import psycopg
import pytest

from cdc.errors import ConfigError, SourceError
from examples.common import Passwords, Server, connect, conninfo, drop_database, ensure_database, secrets_file
from examples.flights.load import OWNER, SCHEMA, SOURCES, data_folder, load

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def whole(server: Server) -> Iterator[psycopg.Connection]:
    """A database with everything loaded."""
    name = f"flights_test_{secrets.token_hex(4)}"
    try:
        load(server, name)
        with connect(conninfo(server, name, OWNER, Passwords.load().setup)) as conn:
            yield conn
    finally:
        drop_database(server, name)


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The name of a database that does not exist yet."""
    name = f"flights_test_{secrets.token_hex(4)}"
    yield name
    drop_database(server, name)


def frame(table: str) -> pd.DataFrame:
    """The package's file, read by pandas as the package itself reads it, but with exact floats.

    By default pandas reads one airport's longitude one bit off.
    """
    file = next(source.file for source in SOURCES if source.table == table)
    return pd.read_csv(data_folder() / file, float_precision="round_trip")


def value(conn: psycopg.Connection, query: str) -> Any:
    row = conn.execute(query).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.table)
def test_counts_and_nulls_are_the_files(whole: psycopg.Connection, source: Any) -> None:
    expected = frame(source.table)
    assert value(whole, f"SELECT count(*) FROM {source.table}") == len(expected) == source.rows
    for column in expected:
        nulls = value(whole, f'SELECT count(*) FROM {source.table} WHERE "{column}" IS NULL')
        assert nulls == expected[column].isna().sum(), f"{source.table}.{column}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.table)
def test_every_value_is_the_files(whole: psycopg.Connection, source: Any) -> None:
    expected = frame(source.table)
    order = "flight_id" if source.table == "flights" else ", ".join(_key(whole, source.table))
    columns = ", ".join(f'"{column}"' for column in expected)
    rows = whole.execute(f"SELECT {columns} FROM {source.table} ORDER BY {order}").fetchall()
    if source.table != "flights":  # flight_id is the line of the file: the order must be the file's without sorting
        key = _key(whole, source.table)
        expected = expected.sort_values(key, key=lambda s: s.str.encode("utf-8"), ignore_index=True)
        rows.sort(key=lambda row: [str(row[list(expected).index(name)]).encode() for name in key])
    actual = pd.DataFrame(rows, columns=list(expected))
    for column in expected:
        if column == "time_hour":
            expected[column] = pd.to_datetime(expected[column], utc=True)
            actual[column] = pd.to_datetime(actual[column], utc=True)
        elif expected[column].dtype.kind in "if":
            actual[column] = actual[column].astype("float64")
            expected[column] = expected[column].astype("float64")
        else:
            actual[column] = actual[column].where(actual[column].notna(), None)
            expected[column] = expected[column].where(expected[column].notna(), None)
        different = ~((actual[column] == expected[column]) | (actual[column].isna() & expected[column].isna()))
        assert not different.any(), f"{source.table}.{column}: {actual[column][different].head()}"


def _key(conn: psycopg.Connection, table: str) -> list[str]:
    query = """SELECT a.attname FROM pg_index i
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
               WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY a.attnum"""
    return [row[0] for row in conn.execute(query, [table]).fetchall()]


def test_timestamps_mean_new_yorks_clock(whole: psycopg.Connection) -> None:
    for table in ("flights", "weather"):
        wrong = f"""SELECT count(*) FROM {table} WHERE time_hour AT TIME ZONE 'America/New_York'
                    IS DISTINCT FROM make_timestamp(year, month, day, hour, 0, 0)"""
        assert value(whole, wrong) == 0
        times = pd.to_datetime(frame(table)["time_hour"], utc=True)
        assert value(whole, f"SELECT min(time_hour), max(time_hour) FROM {table}") == (times.min(), times.max())


def test_integers_stay_integers_and_numerics_exact(whole: psycopg.Connection) -> None:
    types: dict[str, str] = dict(
        whole.execute(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_name = 'flights' AND table_schema = 'public'"
        ).fetchall()
    )
    assert {types[name] for name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")} == {"integer"}
    assert value(whole, "SELECT min(temp)::text FROM weather WHERE temp > 39.01") == "39.02"
    assert value(whole, "SELECT count(*) FROM weather WHERE pressure::text = '1000.0'") >= 5  # 1e3 in the file
    assert value(whole, "SELECT max(wind_speed)::text FROM weather") == "1048.36058"
    assert value(whole, "SELECT count(*) FROM weather WHERE wind_speed::text = '10.357019999999999'") > 0


# The counts of examples/flights/README.md: (columns, rows with a null in them, duplicates).
CANDIDATES = [
    ("flights", "year, month, day, carrier, flight", 0, 24),
    ("flights", "year, month, day, flight", 0, 32_610),
    ("flights", "year, month, day, dep_time, carrier, flight", 8_255, 0),
    ("flights", "time_hour, carrier, flight", 0, 0),
    ("flights", "year, month, day, carrier, flight, origin", 0, 0),
    ("weather", "origin, year, month, day, hour", 0, 3),
    ("weather", "origin, time_hour", 0, 0),
]


@pytest.mark.parametrize(("table", "columns", "nulls", "duplicates"), CANDIDATES)
def test_the_readmes_key_counts(
    whole: psycopg.Connection, table: str, columns: str, nulls: int, duplicates: int
) -> None:
    missing = " OR ".join(f"{column.strip()} IS NULL" for column in columns.split(","))
    assert value(whole, f"SELECT count(*) FROM {table} WHERE {missing}") == nulls
    # Rows beyond the first of their key; keys with a null compare as equal here, which only dep_time shows.
    groups = f"SELECT count(*) - 1 AS extra FROM {table} WHERE NOT ({missing}) GROUP BY {columns}"
    assert value(whole, f"SELECT sum(extra)::int FROM ({groups}) g") == duplicates


def test_declared_foreign_keys_hold_and_the_others_could_not(whole: psycopg.Connection) -> None:
    declared = {
        (row[0], row[1])
        for row in whole.execute(
            "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND convalidated"
        ).fetchall()
    }
    assert declared == {("flights", "airlines"), ("flights", "airports"), ("weather", "airports")}
    lost = {
        "planes": "SELECT count(*) FROM flights f LEFT JOIN planes p USING (tailnum)"
        " WHERE f.tailnum IS NOT NULL AND p.tailnum IS NULL",
        "nulls": "SELECT count(*) FROM flights WHERE tailnum IS NULL",
        "dest": "SELECT count(*) FROM flights f LEFT JOIN airports a ON a.faa = f.dest WHERE a.faa IS NULL",
        "weather": "SELECT count(*) FROM flights f LEFT JOIN weather w USING (origin, time_hour)"
        " WHERE w.origin IS NULL",
    }
    counts = {name: value(whole, query) for name, query in lost.items()}
    assert counts == {"planes": 50_094, "nulls": 2_512, "dest": 7_602, "weather": 1_556}
    undeclared = [
        "ALTER TABLE flights ADD FOREIGN KEY (tailnum) REFERENCES planes",
        "ALTER TABLE flights ADD FOREIGN KEY (dest) REFERENCES airports",
        "ALTER TABLE flights ADD FOREIGN KEY (origin, time_hour) REFERENCES weather",
    ]
    for statement in undeclared:
        with pytest.raises(psycopg.errors.ForeignKeyViolation), whole.transaction():
            whole.execute(statement)


def test_a_second_run_changes_nothing_not_even_what_people_changed(server: Server, database: str) -> None:
    first = load(server, database, rows=300)
    assert [table.copied for table in first] == [16, 1_458, 3_322, 300, 300]
    with connect(conninfo(server, database, OWNER, Passwords.load().setup)) as conn:
        conn.execute("UPDATE flights SET dep_delay = 999 WHERE flight_id = 1")
        conn.execute("DELETE FROM flights WHERE flight_id = 2")
        before = conn.execute("SELECT xmin::text, f.* FROM flights f ORDER BY flight_id").fetchall()
        conn.commit()
        again = load(server, database, rows=300)
        assert [table.copied for table in again] == [0] * 5
        assert conn.execute("SELECT xmin::text, f.* FROM flights f ORDER BY flight_id").fetchall() == before


@pytest.mark.parametrize("before", [0, 100])
def test_a_later_run_loads_the_rest_beside_rows_that_people_added(server: Server, database: str, before: int) -> None:
    load(server, database, rows=before)
    new = """INSERT INTO flights (year, month, day, sched_dep_time, sched_arr_time, carrier, flight, origin, dest,
                                  distance, hour, minute, time_hour)
             VALUES (2014, 1, 1, 500, 800, 'UA', 1, 'JFK', 'SFO', 2586, 5, 0, '2014-01-01 05:00-05')
             RETURNING flight_id"""
    with connect(conninfo(server, database, OWNER, Passwords.load().setup)) as conn:
        assert value(conn, new) == 336_777
        conn.commit()
        assert load(server, database, rows=250)[-1] == ("flights", 250 - before, 250)
        assert value(conn, "SELECT count(*), min(flight_id), max(flight_id) FROM flights") == (251, 1, 336_777)
        assert value(conn, new.replace("'UA', 1,", "'UA', 2,")) == 336_778


def test_an_interrupted_load_leaves_nothing_and_can_be_repeated(
    server: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("examples.flights.load.mark", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(server, database, rows=10)
    monkeypatch.undo()
    assert load(server, database, rows=10)[0] == ("airlines", 16, 16)


def test_roles_have_no_more_rights_than_they_need(server: Server, whole: psycopg.Connection) -> None:
    row = whole.execute(
        "SELECT rolreplication, rolsuper, rolcreatedb, rolcreaterole, rolbypassrls"
        " FROM pg_roles WHERE rolname = 'headwater'"
    ).fetchone()
    assert row == (True, False, False, False, False)
    name = whole.info.dbname
    with connect(conninfo(server, name, "headwater", Passwords.load().source)) as replica:
        assert value(replica, "SELECT count(*) FROM airlines") == 16
        for statement in ("DELETE FROM airlines", "CREATE TABLE t (i int)", "ALTER TABLE flights ADD x int"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), replica.transaction():
                replica.execute(statement)
    owner = value(whole, "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = 'flights_owner'")
    assert owner is False


def test_the_schema_is_complete_enough_for_joins(whole: psycopg.Connection) -> None:
    assert SCHEMA.is_file()
    for condition in ("carrier = 'HA'", "tailnum = 'N14228'", "dest = 'ANC'", "origin = 'JFK' AND time_hour = now()"):
        plan = "\n".join(row[0] for row in whole.execute(f"EXPLAIN SELECT * FROM flights WHERE {condition}").fetchall())
        assert "Index" in plan, plan


def test_passwords_are_made_once_and_kept_private(tmp_path: Path) -> None:
    environ = {"HEADWATER_HOME": str(tmp_path)}
    first = Passwords.load(environ)
    assert Passwords.load(environ) == first
    assert first.source != first.setup
    assert first.source not in repr(first)
    assert secrets_file(environ).stat().st_mode & 0o777 == 0o600
    given = Passwords.load({**environ, "HEADWATER_SOURCE_PASSWORD": "given"})
    assert (given.source, given.setup) == ("given", first.setup)


def test_clear_errors(server: Server, database: str) -> None:
    with pytest.raises(SourceError, match="can't be used"):
        connect("host=127.0.0.1 port=1 dbname=x")
    with pytest.raises(ConfigError, match="HEADWATER_POSTGRES_PORT"):
        Server.from_environment({"HEADWATER_POSTGRES_PORT": "lots"})
    with pytest.raises(ConfigError, match="negative"):
        load(server, database, rows=-1)


def test_the_second_ensure_database_keeps_everything(server: Server, database: str) -> None:
    passwords = Passwords.load(os.environ)
    info = ensure_database(server, database, OWNER, passwords=passwords)
    with connect(info) as conn:
        conn.execute("CREATE TABLE kept (i int)")
    assert ensure_database(server, database, OWNER, passwords=passwords) == info
    with connect(info) as conn:
        assert value(conn, "SELECT count(*) FROM kept") == 0


def test_what_was_there_before_keeps_its_rights(server: Server, database: str) -> None:
    """Somebody's own database and role of that name: applications connect by PUBLIC's right, a tool replicates."""
    role, passwords = f"owner_{database}", Passwords.load(os.environ)
    with connect(conninfo(server, "postgres"), autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN REPLICATION CREATEDB PASSWORD '{passwords.setup}'")
        conn.execute(f"CREATE DATABASE {database} OWNER {role}")
        rights = (
            "SELECT rolreplication, rolcreatedb, rolcanlogin, has_database_privilege('public', datname, 'CONNECT'),"
            " has_database_privilege('public', datname, 'TEMPORARY')"
            f" FROM pg_roles, pg_database WHERE rolname = '{role}' AND datname = '{database}'"
        )
        try:
            assert value(conn, rights) == (True,) * 5
            ensure_database(server, database, role, passwords=passwords)
            assert value(conn, rights) == (True,) * 5
        finally:
            drop_database(server, database)
            conn.execute(f"DROP ROLE {role}")


def test_an_existing_roles_password_is_never_replaced(server: Server, database: str) -> None:
    """Whatever uses the role now, a running connector say, would be locked out."""
    role, other = f"owner_{database}", Passwords(Passwords.load().source, "another one")
    ensure_database(server, database, role, passwords=Passwords.load())
    try:
        with pytest.raises(SourceError, match="its password is another one"):
            ensure_database(server, database, role, passwords=other)
        connect(conninfo(server, database, role, Passwords.load().setup)).close()
    finally:
        drop_database(server, database)
        with connect(conninfo(server, "postgres"), autocommit=True) as conn:
            conn.execute(f"DROP ROLE {role}")
