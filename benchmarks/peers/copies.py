"""A copy of the flights in a database of its own: measuring must not disturb anybody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.peers.measuring import Settings
from benchmarks.peers.workload import Workload
from cdc.errors import StackError
from deploy.local.endpoints import Endpoints
from examples.common import connect, conninfo, drop_database
from examples.flights import load as flights

# How long a replication slot's reader may take to go away after it was told to.
TERMINATE_MS = 5000


@contextmanager
def copied(
    endpoints: Endpoints, settings: Settings, progress: Callable[[str], None] = lambda line: None
) -> Iterator[Workload]:
    """Make the copy with ``settings.flights`` flights; drop it afterwards, with every slot on it.

    The first of the example's; where it has fewer, the rest are copies of them with keys of their own.

    Raises:
        SourceError: Postgres can't be reached; the message says how to start it.
        StackError: a database of that name exists: somebody else's, or left by a run that was killed.
    """
    _refuse_existing(endpoints, settings.database)
    try:
        flights.load(endpoints, settings.database, settings.flights, progress)
        workload = Workload(endpoints, settings)
        try:
            multiply(workload, settings.flights)
            workload.settle()
            yield workload
        finally:
            workload.close()
    finally:
        drop(endpoints, settings.database)


def multiply(workload: Workload, rows: int) -> None:
    """Make copies of the flights until there are as many, in pieces that Debezium streams with bounded memory."""
    (there,) = workload.database.execute("SELECT count(*) FROM flights").fetchone() or (0,)
    columns = [
        str(row[0])
        for row in workload.database.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'flights'"
            " AND column_name <> 'flight_id' ORDER BY ordinal_position"
        )
    ]
    if there >= rows:
        return
    workload.database.execute("ALTER TABLE flights DROP CONSTRAINT IF EXISTS flights_natural_key")
    names = ", ".join(columns)
    step = 50_000
    while there < rows:
        count = min(step, rows - there, there)
        statement = (
            f"INSERT INTO flights (flight_id, {names}) SELECT flight_id + {there}, {names} FROM flights"  # noqa: S608
            f" WHERE flight_id BETWEEN 1 AND {count}"
        )
        workload.database.execute(statement.encode())
        there += count
    workload.settle()


def _refuse_existing(endpoints: Endpoints, database: str) -> None:
    with connect(conninfo(endpoints, "postgres"), autocommit=True) as server:
        if server.execute("SELECT FROM pg_database WHERE datname = %s", [database]).fetchone() is not None:
            raise StackError(
                f"the database {database} exists already",
                means="another benchmark runs, or one was killed; the database was left alone",
                fix=f"wait for it, or drop it: python -m benchmarks.peers --drop {database}",
            )


def drop(endpoints: Endpoints, database: str) -> None:
    """Drop a database with its replication slots; missing is fine.

    Raises:
        SourceError: Postgres can't be reached.
    """
    with connect(conninfo(endpoints, "postgres"), autocommit=True) as server:
        slots = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s"
        for slot, reader in server.execute(slots, [database]).fetchall():
            if reader is not None:
                server.execute("SELECT pg_terminate_backend(%s, %s)", [reader, TERMINATE_MS])
            server.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    drop_database(endpoints, database)
