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
    """Make the copy with the first ``settings.flights`` flights; drop it afterwards, with every slot on it.

    Raises:
        SourceError: Postgres can't be reached; the message says how to start it.
        StackError: a database of that name exists: somebody else's, or left by a run that was killed.
    """
    _refuse_existing(endpoints, settings.database)
    try:
        flights.load(endpoints, settings.database, settings.flights, progress)
        workload = Workload(endpoints, settings)
        try:
            workload.settle()
            yield workload
        finally:
            workload.close()
    finally:
        drop(endpoints, settings.database)


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
