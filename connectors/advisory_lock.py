"""One at a time, over all machines: who makes or removes what a pipeline has in the database, Kafka and Connect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psycopg

from cdc.errors import SourceUnavailable
from cdc.polling import poll
from connectors.postgres import Connection, explained
from connectors.servers import Servers

# Who is at it waits for Connect to stop and to start a connector, for two minutes each at the most.
ALONE_SECONDS, LOOK_SECONDS = 300.0, 0.5
# A machine that has gone away without a word keeps its lock until the server asks for it: after two hours, as it
# comes. (What ends the wait at our end is ``connectors.postgres.DEAD_NETWORK``.)
ASKED_FOR = """
SELECT set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),
       set_config('tcp_keepalives_count', '3', false)
"""
KEY = "hashtextextended(%s, 0)"
HOLDER = f"""
SELECT l.pid, coalesce(host(a.client_addr), 'its own machine'), a.backend_start::timestamptz(0)
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32 | l.objid::bigint) = {KEY}
"""  # noqa: S608 (a constant)


def changing(servers: Servers) -> AbstractContextManager[None]:
    """What ``apply``, ``drop`` and ``resnapshot`` do, and what needs a connector that stands still: one at a time.

    Who has it already may take it again, over the same connection.
    """
    lock = f"headwater apply {servers.pipeline.source.slot}"
    return alone(servers.setup, lock, "another `apply`, `drop`, `resnapshot` or sweep of this pipeline")


@contextmanager
def alone(connection: Connection, name: str, what: str, seconds: float = ALONE_SECONDS) -> Iterator[None]:
    """Hold a lock of the database's, which goes with the connection.

    Args:
        connection: kept by the caller until the end of the block.
        name: of the lock.
        what: who else may hold it: ``another apply of this pipeline``.
        seconds: how long to wait for it.

    Raises:
        SourceUnavailable: somebody else has it for longer (transient), or Postgres does not answer.
    """

    def taken() -> bool:
        row = connection.execute(f"SELECT pg_try_advisory_lock({KEY})", [name]).fetchone()
        return bool(row and row[0])

    with explained(f"waiting for {what}"):
        connection.execute(ASKED_FOR)
        if not poll(taken, bool, seconds, LOOK_SECONDS):
            raise _busy(what, seconds, connection.execute(HOLDER, [name]).fetchone())
    try:
        yield
    finally:
        with suppress(psycopg.Error):  # it went with the connection
            connection.execute(f"SELECT pg_advisory_unlock({KEY})", [name])


def _busy(what: str, seconds: float, holder: Any) -> SourceUnavailable:
    who = f" (from {holder[1]}, since {holder[2]}, backend {holder[0]} of Postgres)" if holder else ""
    return SourceUnavailable(
        f"{what} is at work{who}; it was waited for {seconds:.0f} s",
        means="two at once would undo each other's work; what this one waited to do was not begun",
        fix="wait until it has ended, or end it"
        + (f" (SELECT pg_terminate_backend({holder[0]}))" if holder else "")
        + ", then run the same command again",
    )
