"""Gives the slot up, so that the database's disk does not fill: what ``policy.wal_at_limit: release`` asks for.

The changes that the slot would have given are lost to the pipeline, and nobody may go on past that gap: the slot is
gone while the connector's offset stays, which every runner and ``apply`` refuse by name (``connectors/gaps``), and
Debezium too, at its next start. ``headwater resnapshot FILE --all`` makes the slot anew and reads all tables again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from cdc.errors import ConnectError, SourceError
from cdc.pipeline import Pipeline
from cdc.polling import poll
from connectors.connector import read_connector
from connectors.database.slot import drop_slot, read_slot
from connectors.debezium import connector_name
from connectors.postgres import Connection, connect, explained
from connectors.rest import ConnectClient

# A task that is well ends within seconds. Where Kafka Connect itself is what stands still, nobody can wait for it: the
# disk fills meanwhile.
STOP_SECONDS = 20.0
# A walsender whose client is gone, or hangs, lets go when it is told to; one that is told so again and again is some
# other client's, which comes back each time.
ENDING_SECONDS = 5.0
ATTEMPTS = 5


@dataclass(frozen=True)
class Released:
    """A slot that was given up; plain values, kept as JSON.

    Attributes:
        slot: its name.
        at: epoch seconds.
        retained_bytes: WAL that it made Postgres keep.
        full_bytes: that it might have kept.
        confirmed_lsn: what was committed after this position is in no log, unless the connector had read it.
    """

    slot: str
    at: float
    retained_bytes: int
    full_bytes: int
    confirmed_lsn: int | None


def release(pipeline: Pipeline, full_bytes: int) -> bool:
    """Stop the connector if it can be had, and drop the slot, if it still keeps as much.

    Killed anywhere it can be done again, by this process or by another one.

    Args:
        pipeline: the loaded file.
        full_bytes: what the slot may keep; it is looked at once more before anything is done.

    Returns:
        Whether the slot is gone.

    Raises:
        SourceUnavailable: Postgres does not answer (transient).
        SourceError: the slot belongs to something else, or Postgres refused.
    """
    name = pipeline.source.slot
    with connect(pipeline.source) as connection:
        slot = read_slot(connection, name)
        if slot is None:
            return True
        if slot.plugin != "pgoutput" or slot.database != pipeline.source.database:
            raise SourceError(
                f"slot {name} decodes database {slot.database} with {slot.plugin}: it belongs to something else",
                means="it was not dropped",
                fix="choose another source.slot",
            )
        if slot.wal_status != "lost":
            if (slot.behind_bytes or 0) < full_bytes:
                return False
            # In this order: a connector that is told to stop while its slot is there ends in good order.
            _stop(pipeline)
            _end_readers(connection, name)
            return True
        # The other way round for one that Postgres has invalidated: connectors/database/slot.py, drop_lost_slot.
        drop_slot(connection, name)
    _stop(pipeline)
    return True


def in_first_snapshot(pipeline: Pipeline) -> bool:
    """Whether the connector was in the middle of its first snapshot; not, when Kafka Connect does not answer."""
    try:
        with ConnectClient.impatient(pipeline.connect) as client:
            running = read_connector(client, connector_name(pipeline))
    except ConnectError:
        return False
    return running is not None and running.in_snapshot


def _stop(pipeline: Pipeline) -> None:
    # One that is away, or does not get on, finds no slot when it comes back, and fails.
    with suppress(ConnectError), ConnectClient.impatient(pipeline.connect) as client:
        client.stop(connector_name(pipeline))
        client.wait_stopped(connector_name(pipeline), STOP_SECONDS)


def _end_readers(connection: Connection, name: str) -> None:
    """Drop the slot under whoever still reads from it.

    Raises:
        SourceError: it is still in use.
    """
    for attempt in range(ATTEMPTS):
        slot = read_slot(connection, name)
        if slot is not None and slot.active:
            with explained(f"ending the session that reads from slot {name}"):
                connection.execute("SELECT pg_terminate_backend(%s)", [slot.pid])
            poll(lambda: read_slot(connection, name), lambda now: now is None or not now.active, ENDING_SECONDS, 0.05)
        try:
            drop_slot(connection, name, 0.0)
            return
        except SourceError:
            if attempt == ATTEMPTS - 1:
                raise
