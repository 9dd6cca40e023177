"""Follows a promoted standby: goes on reading from it, where it is proved that nothing is lost and nothing undone.

What must hold, each by itself:

- *The same cluster, and a descendant.* The system identifier is the same, and the history of the new timeline says
  where it left the one that the runner has seen: at the switch.
- *Nothing that anybody saw is missing.* The runner's witness number is there, and its log went no further than the
  switch.
- *Nothing in the topics is undone.* The connector has read no further than the switch. Its offset is stored in the
  transaction that holds the records, so no record in Kafka is past it. Positions go on growing across the switch: the
  new timeline begins where the old one was left.
- *Nothing will be skipped.* The slot is the copy that Postgres kept of ours (synced, failover), not one made later.

The offset must be looked at while nobody moves it. The connector fails on a timeline that nobody has noted as followed
(connectors/timeline_gate.py), is stopped for the look, and goes on when the timeline is noted.

Docs: docs/decisions/promotion.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.errors import SourceChanged, SourceError
from cdc.pipeline import Pipeline
from cdc.polling import poll
from cdc.records.position import format_lsn
from connectors.advisory_lock import alone
from connectors.database.history import Moment
from connectors.database.slot import Slot, read_slot
from connectors.database.timeline import is_our_stop, note_stop, note_timeline, noted_timeline, read_history
from connectors.debezium import connector_name
from connectors.gaps.source_gaps import Remembered, changed
from connectors.names import Names
from connectors.offset import stored_lsn
from connectors.postgres import LOCK_SECONDS, Connection, explained
from connectors.rest import ConnectClient

REQUEST_SECONDS = 10.0
# A connector that runs reads from its slot within seconds; one that does not after a minute reads elsewhere.
ATTACHED_SECONDS = 60.0


def follow(
    connection: Connection, pipeline: Pipeline, remembered: Remembered, now: Moment, witness: tuple[str, int] | None
) -> None:
    """Follow the server to its timeline, or say why that can't be done.

    Killed anywhere, the timeline is not noted and the connector stands still, or it is noted and all was looked at.
    That the stop is a runner's is noted before it, so that the next one lets the connector go on.

    Args:
        connection: to the promoted server, as the replication role.
        pipeline: the loaded file.
        remembered: what the runner saw last, on the timeline before.
        now: where the server is.
        witness: (installation, number) as the database has it.

    Raises:
        SourceChanged: it can't be followed, and why (terminal).
        SourceUnavailable, ConnectUnavailable: a server does not answer (transient).
    """
    names = Names.of(pipeline)
    history = _history(pipeline, now)
    # The connector that one runner has let go on is no evidence for the next.
    with alone(
        connection, f"headwater {pipeline.source.slot}", "another runner that follows the same server", LOCK_SECONDS
    ):
        refuse_other_history(remembered, now, history, witness)
        looked, ours = noted_timeline(connection, names) == now.timeline, is_our_stop(connection, names)
        if looked and not ours:
            return  # another runner has looked at the connector before it went on
        switch = history[remembered.timeline]
        if not looked:
            refuse_slot(pipeline.source.slot, read_slot(connection, pipeline.source.slot), now, switch)
        client = ConnectClient(pipeline.connect, request_seconds=REQUEST_SECONDS)
        try:
            status = client.status(connector_name(pipeline))
            if status is None:
                raise _unfollowed(
                    now, f"there is no connector {connector_name(pipeline)}, so nobody knows how far it had read"
                )
            stays = status.connector in ("PAUSED", "STOPPED") and not ours  # as somebody wanted it
            if not looked:
                _look(connection, pipeline, client, now, switch, stays=stays)
            if not stays:
                _let_go_on(connection, pipeline, client, now, remembered.timeline)
        finally:
            client.close()


def _history(pipeline: Pipeline, now: Moment) -> dict[int, int]:
    try:
        with explained("reading the timeline's history"):
            return read_history(pipeline.source, now.timeline)
    except SourceError as error:
        if error.transient:
            raise
        raise _unfollowed(now, error.what) from error


def _look(
    connection: Connection, pipeline: Pipeline, client: ConnectClient, now: Moment, switch: int, *, stays: bool
) -> None:
    """Look at the connector while it stands still, and note the timeline; ``stays``: it is not to go on then."""
    name, names = connector_name(pipeline), Names.of(pipeline)
    if not stays:
        note_stop(connection, names, now.timeline, stopped=True)
    client.stop(name)
    client.wait_stopped(name)
    refuse_ahead(client.offset(name), now, switch)
    note_timeline(connection, names, now.timeline)


def _let_go_on(connection: Connection, pipeline: Pipeline, client: ConnectClient, now: Moment, before: int) -> None:
    """Let a connector that was looked at go on, and see that it reads here; else ``before`` is the timeline again."""
    name, names, slot = connector_name(pipeline), Names.of(pipeline), pipeline.source.slot
    client.resume(name)

    def attached() -> bool:
        found, told = read_slot(connection, slot), client.status(name)
        return bool(found and found.active) or (told is not None and told.failed)

    if not poll(attached, bool, ATTACHED_SECONDS):
        # First this: what it has read meanwhile is to be looked at before it may read here.
        note_timeline(connection, names, before)
        client.stop(name)
        raise _unfollowed(
            now, f"the connector runs, and does not read from slot {slot} here: it reaches another server"
        )
    note_stop(connection, names, now.timeline, stopped=False)


# -- the rules, pure ---------------------------------------------------------------------------------------------------


def refuse_other_history(
    remembered: Remembered, now: Moment, history: Mapping[int, int], witness: tuple[str, int] | None
) -> None:
    """Refuse a timeline that does not hold all that the runner has seen.

    Args:
        remembered: what it saw last.
        now: where the server is.
        history: where the timelines before this one were left.
        witness: (installation, number) as the database has it.

    Raises:
        SourceChanged: (terminal).
    """
    switch = history.get(remembered.timeline)
    if switch is None:
        raise _unfollowed(now, f"it does not come from timeline {remembered.timeline}")
    if remembered.wal_lsn > switch:
        raise _unfollowed(
            now,
            f"it has left timeline {remembered.timeline} at {format_lsn(switch)}, and the log went to"
            f" {format_lsn(remembered.wal_lsn)} before",
        )
    if witness is None or remembered.installation is None or witness[0] != remembered.installation:
        raise _unfollowed(now, "the database does not have the table in which this runner bore witness")
    if witness[1] < remembered.witness:
        raise _unfollowed(
            now, f"it does not know what this runner has written: {remembered.witness} times, it says {witness[1]}"
        )


def refuse_slot(name: str, slot: Slot | None, now: Moment, switch: int) -> None:
    """Refuse a slot that is not the copy of ours.

    Raises:
        SourceChanged: (terminal).
    """
    if slot is None:
        raise _unfollowed(now, f"slot {name} is not there: no standby had a copy of it")
    if not (slot.failover and slot.synced):
        raise _unfollowed(now, f"slot {name} is no copy of the slot that was read from")
    if slot.wal_status == "lost":
        raise _unfollowed(now, f"slot {name} is lost: Postgres has invalidated it")
    if (slot.confirmed_lsn or 0) > switch:
        raise _unfollowed(now, f"somebody has read from slot {name} here already")


def refuse_ahead(offset: Mapping[str, Any] | None, now: Moment, switch: int) -> None:
    """Refuse a connector that has read what the promoted server never had.

    Raises:
        SourceChanged: (terminal).
    """
    streamed = stored_lsn(offset)
    if streamed is None:
        raise _unfollowed(now, "the initial snapshot had not come to its end")
    if streamed > switch:
        raise _unfollowed(
            now,
            f"the connector has read up to {format_lsn(streamed)}, and this server had the log up to"
            f" {format_lsn(switch)} when it was promoted (synchronized_standby_slots keeps the connector behind)",
        )


def _unfollowed(now: Moment, why: str) -> SourceChanged:
    return changed(f"the server is on timeline {now.timeline} now, to which it can't be followed: {why}")
