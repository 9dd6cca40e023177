"""Reads tables, or some of their rows, again, while changes go on flowing.

Debezium's incremental snapshot reads in chunks by key. Each chunk lies between two watermarks in the log, and a row
that the log changes between them is left to the log: so the newest record of every key is the newest state, whatever is
written meanwhile. What is deleted is not read: deletes that were missed are looked for afterwards
(``missed_deletes.py``).

With all tables this is also the way out of a gap: the slot is made anew, the connector goes on from its beginning, and
what happened in between is read and swept.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc.errors import ConfigError, LogGap, SlotLost, SourceError, SourceUnavailable
from cdc.pipeline import Pipeline
from cdc.records.position import format_lsn
from cdc.saying import Say, to_nobody
from connectors.actions import run_all
from connectors.actual import find_changes, find_gaps, observe
from connectors.advisory_lock import changing
from connectors.captured.captured import Captured, leave_unswept, read_captured, want_again
from connectors.captured.topic_begins import Begins
from connectors.connector import RunningConnector, read_connector, start_again, wait_ready
from connectors.database.grants import plan_grants
from connectors.database.history import read_moment
from connectors.database.lost import note_lost
from connectors.database.owners import refuse_foreign
from connectors.database.schema import plan_schema
from connectors.database.slot import Slot, drop_lost_slot, drop_slot, read_slot
from connectors.database.timeline import noted_timeline
from connectors.failover import wanted
from connectors.gaps.lost_offset import READ_AGAIN, read_up_to, refuse_lost_offset, refuse_read_twice
from connectors.gaps.renamed import refuse_renamed
from connectors.gaps.source_gaps import (
    refuse_empty,
    refuse_future,
    refuse_gap,
    refuse_other,
    refuse_other_database,
    refuse_unfollowed,
)
from connectors.offset import moved, stored_lsn
from connectors.plan import prepare
from connectors.postgres import explained
from connectors.rest import UNPUBLISHED
from connectors.servers import Servers, open_servers
from connectors.snapshots.absent_keys import refuse_keys
from connectors.snapshots.conditions import check_condition
from connectors.snapshots.requests import has_failed, hear, request
from connectors.snapshots.signals import send_stop_signal
from connectors.snapshots.snapshot import unfinished
from connectors.tables.catalogue import near_misses, read_catalogue

CREATE = "SELECT lsn - '0/0'::pg_lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
CREATE_FAILOVER = "SELECT lsn - '0/0'::pg_lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput', failover => true)"


@dataclass(frozen=True)
class Wish:
    """What is to be read again.

    Attributes:
        tables: ``schema.table``; empty for all captured ones.
        condition: SQL on their rows; None for all rows.
        sweep: look for missed deletes afterwards.
    """

    tables: Sequence[str]
    condition: str | None = None
    sweep: bool = True


def resnapshot(pipeline: Pipeline, wish: Wish, told: Say = to_nobody) -> list[str]:
    """Ask for tables to be read again; ``connectors.snapshots.snapshot.wait_snapshot`` waits for them, and sweeps.

    Doing it again while it is under way, or was interrupted, goes on.

    Args:
        pipeline: the loaded file; it must have been applied.
        wish: what.
        told: called with a line for what was done.

    Returns:
        The tables.

    Raises:
        ConfigError: a table that is not captured, or that has a gap and is not in the file, or a condition that is
            none; nothing was asked for.
        SlotLost, LogGap: only reading all tables again gets well from this.
        SourceChanged: the database is another one.
        SourceUnavailable: an ``apply`` or ``drop`` of the same pipeline takes long (transient).
        HeadwaterError: a server refused, or does not answer; run it again.
    """
    # Alone from the first look on: beside an `apply` the slot could be replaced that it was making, and of two that
    # found one gap the second replaced the slot that the first had closed it with. Nor is a connector started that a
    # sweep has stopped.
    with open_servers(pipeline) as servers, changing(servers):
        refuse_foreign(servers.setup, servers.names)
        captured = read_captured(servers.setup, servers.names)
        slot = read_slot(servers.source, pipeline.source.slot)
        running = read_connector(servers.connect, servers.connector)  # after the slot, which must not overtake it
        if running is not None:
            refuse_renamed(pipeline, running.config)
            refuse_other_database(pipeline.name, pipeline.source.database, running.config, slot)
            refuse_empty(slot, running.offset, captured)
        if not captured or running is None:
            raise SourceError("nothing is captured yet", fix="run `headwater apply FILE --wait`")
        tables = chosen(wish, captured)
        find_changes(servers, captured)  # refuses those that are not there
        unswept = refuse_keys(read_catalogue(servers.setup, tables), sweep=wish.sweep)
        if wish.condition is not None:
            for table in tables:
                check_condition(servers.source, table, wish.condition)
        gap = _gap(servers, slot, running, captured)
        if gap is not None and (wish.tables or wish.condition is not None):
            raise gap
        run_all(servers, plan_schema(servers.setup, servers.names), lambda action: None)
        _put_right(servers, captured, wish, told)
        if gap is None:
            _start(servers, running)
            captured = _settled(servers)
            open_ones = _to_ask(captured, tables, wish)
            if swept := _not_to_sweep(captured, wish):
                leave_unswept(servers.setup, servers.names, swept)
                told(f"{', '.join(swept)}: being read again already; missed deletes are left alone")
        else:
            told(f"{gap.what}: the slot is made anew, and every table is read again")
            open_ones = tables
        lost = None if gap is None else _lost_behind(servers, running, captured)
        _note(servers, open_ones, replace(wish, sweep=wish.sweep or gap is not None), unswept, lost)
        if wish.condition is None:
            Begins(open_ones).note(servers)
        if gap is not None:
            told(f"slot {pipeline.source.slot} now begins at {format_lsn(make_slot_anew(servers))}")
        wait_ready(servers)
        request(servers, _wanted(read_captured(servers.setup, servers.names)))
        return tables


def read_anew(pipeline: Pipeline, wanted: Mapping[str, str], sweep: Collection[str] = ()) -> None:
    """Ask for tables whose shape is another one by now, or for some of their rows; what was under way is broken off.

    ``connectors.snapshots.snapshot.wait_snapshot`` waits for them. Doing it again asks again.

    Args:
        pipeline: the loaded file; it must have been applied.
        wanted: table -> SQL on its rows; empty for all of them.
        sweep: those of them in which missed deletes are looked for afterwards, where that can be done.

    Raises:
        SourceUnavailable: the initial snapshot still reads one of them (transient).
        HeadwaterError: a server refused, or does not answer.
    """
    with open_servers(pipeline) as servers:
        captured = {
            table: entry for table, entry in read_captured(servers.setup, servers.names).items() if table in wanted
        }
        first = sorted(table for table, entry in captured.items() if entry.state == "initial")
        if first:
            raise SourceUnavailable(f"the first snapshot still reads {', '.join(first)}")
        if pipeline.source.setup_user:  # the right to read may have been taken away since the first snapshot
            grants = plan_grants(servers.setup, pipeline.source.user, servers.names, sorted(captured))
            run_all(servers, grants, lambda action: None)
        unswept = refuse_keys(read_catalogue(servers.setup, sorted(sweep)), sweep=False) if sweep else set[str]()
        if begun := [table for table, entry in captured.items() if entry.state == "requested"]:
            send_stop_signal(servers.kafka, pipeline, begun)
        for table, entry in captured.items():
            open_one = entry.state != "done"
            # What was to be read before, and was not, still is.
            whole = not wanted[table] or (open_one and entry.condition is None)
            condition = None if whole else wanted[table]
            if not whole and open_one and entry.condition:
                condition = f"({entry.condition}) OR ({condition})"
            swept = (open_one and entry.sweep) or (table in sweep and table not in unswept)
            want_again(servers.setup, servers.names, [table], condition, sweep=swept)
            if whole:
                Begins([table]).note(servers)
        wait_ready(servers)
        request(servers, _wanted(read_captured(servers.setup, servers.names)))


def chosen(wish: Wish, captured: Mapping[str, Captured]) -> list[str]:
    """The tables that are meant. Pure.

    Raises:
        ConfigError: one is not captured; names what looks like it.
    """
    for table in wish.tables:
        if table not in captured:
            close = " or ".join(near_misses(table, captured))
            raise ConfigError(
                f"table {table} is not captured{f' (did you mean {close}?)' if close else ''}",
                means="nothing was asked for",
                fix=f"name tables as schema.table; captured are {', '.join(sorted(captured))}",
            )
    return sorted(set(wish.tables) or captured)


def _put_right(servers: Servers, captured: Mapping[str, Captured], wish: Wish, told: Say) -> None:
    """Mend the gaps of the file's captured tables, as ``apply`` does, and no more.

    The file may be an older one than was applied last, or only saved: what another one captures stays, and what nobody
    has applied yet does not come. Tables that are gone stay listed, with their gap, until ``apply``.

    Raises:
        ConfigError: a table that is named has a gap, and the file does not have it; nothing was asked for.
    """
    gaps = find_gaps(captured, find_changes(servers, captured))
    if not gaps:
        return
    actual = observe(servers)
    tables = {name: table for name, table in actual.catalogue.tables.items() if name in captured}
    for table in sorted((gaps.keys() & set(wish.tables)) - tables.keys()):
        raise ConfigError(
            f"table {table} {'; '.join(gaps[table].reasons)}, and is not in this file",
            means="another file captures it; nothing was asked for",
            fix="run this with the file that was applied last",
        )
    if not (mended := sorted(gaps.keys() & tables.keys())):
        return
    told(f"{', '.join(mended)}: not the table that was captured; put right first")
    facts = {name: fact for name, fact in actual.facts.items() if name in tables}
    ours = replace(actual, catalogue=replace(actual.catalogue, tables=tables), facts=facts)
    first, _, _ = prepare(servers, ours, adds_only=True)
    run_all(servers, first, lambda action: None)


def _gap(
    servers: Servers, slot: Slot | None, running: RunningConnector, captured: Mapping[str, Captured]
) -> SlotLost | LogGap | None:
    """The gap that a new slot closes, if there is one."""
    now = read_moment(servers.source)
    refuse_other(running.config, now)
    refuse_future(now, running.offset)
    refuse_unfollowed(noted_timeline(servers.source, servers.names), now)
    if (lost := _lost_offset(servers, running, captured)) is not None:
        return lost
    if running.offset is None and slot is None:
        raise SourceError("nothing was read yet", fix="run `headwater apply FILE --wait`")
    try:
        refuse_gap(servers.pipeline.source.slot, slot, running.offset)
    except (SlotLost, LogGap) as gap:
        if not running.streaming:  # nothing is complete: only a first snapshot can begin again
            raise
        return gap
    status = running.status
    if running.streaming and status is not None and status.failed and UNPUBLISHED.search(status.trace):
        return LogGap(
            f"slot {servers.pipeline.source.slot} holds changes from when there was no publication",
            means="this Postgres can't decode them, and the connector fails at the first of them for ever",
            fix=READ_AGAIN,
        )
    return None


def _lost_offset(servers: Servers, running: RunningConnector, captured: Mapping[str, Captured]) -> LogGap | None:
    """The gap that Connect has left which has lost the connector's offset."""
    try:
        refuse_lost_offset(running.offset, captured)
        refuse_read_twice(servers.kafka, servers.pipeline, servers.setup, captured)
    except LogGap as gap:
        return gap
    return None


def _lost_behind(servers: Servers, running: RunningConnector, captured: Mapping[str, Captured]) -> tuple[int, int]:
    """Behind which position, and moment (µs since 1970), commits are in no topic because of a gap; 0 for not known."""
    if _lost_offset(servers, running, captured) is not None:
        return read_up_to(servers, captured)
    read = running.offset or {}
    return stored_lsn(read) or 0, int(read.get("ts_usec") or 0)


def _note(
    servers: Servers, tables: Collection[str], wish: Wish, unswept: Collection[str], lost: tuple[int, int] | None
) -> None:
    """Note which tables are to be read again, and what is lost; both, or neither.

    Of a table that is wanted nobody says that it was read before, which tells of an offset that Connect has lost; and a
    second initial snapshot is no gap any more once a loss is noted. A kill between the two would hide one or the other.

    Args:
        servers: of the pipeline.
        tables: that are to be read.
        wish: how.
        unswept: those of them in which missed deletes can't be looked for.
        lost: behind what commits are in no topic; None where none is missing.
    """
    with explained("updating the list of captured tables"), servers.setup.transaction():
        if lost is not None:
            note_lost(servers.setup, servers.names, *lost)
        for sweep in (True, False):
            now = [table for table in tables if sweep == (wish.sweep and table not in unswept)]
            want_again(servers.setup, servers.names, now, wish.condition, sweep=sweep)


def _start(servers: Servers, running: RunningConnector) -> None:
    """Start a connector that a killed sweep has left stopped, or that has failed."""
    status = running.status
    if status is not None and (status.failed or status.connector in ("PAUSED", "STOPPED")):
        start_again(servers.connect, servers.connector)
    wait_ready(servers)


def _settled(servers: Servers) -> dict[str, Captured]:
    """The list of captured tables: what has become complete is done, what Debezium could not read is wanted again."""
    heard = hear(servers)
    for entry in read_captured(servers.setup, servers.names).values():
        if entry.state == "requested" and has_failed(heard, entry):
            want_again(servers.setup, servers.names, [entry.table], entry.condition, sweep=entry.sweep)
    unfinished(servers)
    return read_captured(servers.setup, servers.names)


def _to_ask(captured: Mapping[str, Captured], tables: Sequence[str], wish: Wish) -> list[str]:
    """Those tables that are not being read again already.

    Raises:
        SourceUnavailable: one is being read for other reasons, or under another condition (transient).
    """
    out = []
    for table in tables:
        entry = captured[table]
        under_way = entry.state in ("wanted", "requested") and (entry.sweep or entry.gap is not None)
        if entry.state == "done":
            out.append(table)
        elif not under_way or entry.condition not in (None, wish.condition):
            raise SourceUnavailable(
                f"table {table} is being read already{f' where {entry.condition}' if entry.condition else ''}",
                means="nothing was asked for",
                fix="`headwater apply FILE --wait` waits for that; then run this again",
            )
    return out


def _not_to_sweep(captured: Mapping[str, Captured], wish: Wish) -> list[str]:
    """Those tables that are being read again, and swept afterwards, which is not wished any more: it may be that they
    can't be swept. Pure.

    Only of those that are named: of a reading of all, which closes a gap, the same command goes on.
    """
    return sorted(
        table
        for table in set(wish.tables)
        if not wish.sweep and captured[table].sweep and captured[table].condition == wish.condition
    )


def _wanted(captured: Mapping[str, Captured]) -> dict[str, str | None]:
    return {table: entry.condition for table, entry in captured.items() if entry.state == "wanted"}


def make_slot_anew(servers: Servers) -> int:
    """Replace the slot, and let the connector go on from the new one's beginning; its position.

    Killed anywhere, the slot is gone or stands past what the connector has read: still a gap, and done again.

    Raises:
        SourceError: somebody else uses the slot, or Postgres refused.
        ConnectError: Connect refused.
    """
    name = servers.pipeline.source.slot
    drop_lost_slot(servers.source, name)
    servers.connect.stop(servers.connector)
    servers.connect.wait_stopped(servers.connector)
    drop_slot(servers.source, name)
    failover = wanted(servers.pipeline, servers.source.info.server_version)
    with explained(f"creating slot {name}", fix="end long transactions (see pg_stat_activity), then run this again"):
        row = servers.source.execute(CREATE_FAILOVER if failover else CREATE, [name]).fetchone()
    assert row is not None
    lsn = int(row[0])
    now = moved(servers.connect.offset(servers.connector) or {}, lsn, time.time())
    servers.connect.alter_offset(servers.connector, now, {"server": servers.pipeline.kafka.topic_prefix})
    servers.connect.resume(servers.connector)
    return lsn
