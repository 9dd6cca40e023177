"""Snapshots that are asked of Debezium: which, by what signal, and what it tells of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta

from connectors.actions import Action
from connectors.actual import Actual
from connectors.captured.captured import Captured, mark, want_again
from connectors.captured.changed import complete
from connectors.captured.rewritten import rewritten
from connectors.connector import RunningConnector, wait_ready
from connectors.servers import Servers
from connectors.snapshots.cut_snapshot import sweep
from connectors.snapshots.signals import COMPLETE, Heard, Notifications, send_snapshot_signal

# A signal is seen within a second and begins at once; one that nobody works on after this long was lost.
LOST_SECONDS = 60


def plan_snapshot(servers: Servers, actual: Actual, noted: set[str]) -> list[Action]:
    """One signal for all tables whose rows are still to be asked for, or whose request was lost."""
    if actual.fresh:
        return []
    asked = {entry.table for entry in actual.captured.values() if entry.state == "wanted"}
    asked |= lost_requests(servers, actual.captured, actual.connector)
    missing: dict[str, str | None] = {table: actual.captured[table].condition for table in asked}
    missing |= dict.fromkeys(noted)  # read for the first time, or because of a gap: whole
    missing = {table: condition for table, condition in missing.items() if table in actual.catalogue.tables}
    if not missing:
        return []

    def run(servers: Servers) -> None:
        wait_ready(servers)
        request(servers, missing)

    of = tuple(sorted(missing))
    return [Action("snapshot", ", ".join(of), "send a signal for an incremental snapshot", None, "requested", run, of)]


def request(servers: Servers, tables: Mapping[str, str | None]) -> None:
    """Send a signal for tables, each with a condition on its rows or None, to a connector that runs; note it."""
    signal_id = send_snapshot_signal(servers.kafka, servers.pipeline, tables)
    mark(servers.setup, servers.names, tables, "requested", signal_id)


def plan_sweep(servers: Servers, actual: Actual) -> list[Action]:
    """Remove what an interrupted initial snapshot left behind, if nobody has waited for its end (which does it too)."""
    initial = sorted(entry.table for entry in actual.captured.values() if entry.state == "initial")
    initial = [table for table in initial if table in actual.catalogue.tables]
    if not initial or actual.connector is None or not actual.connector.streaming or actual.slot is None:
        return []
    if not hear(servers).interrupted:
        return []

    def run(servers: Servers) -> None:
        sweep(servers, initial)
        again = ask_rewritten(servers, [actual.captured[table] for table in initial])
        seen = [actual.captured[table] for table in initial if table not in again]
        complete(servers.setup, servers.names, servers.pipeline.source.publication, seen)

    detail, of = "remove what an interrupted snapshot left", tuple(initial)
    return [Action("snapshot", ", ".join(of), detail, "interrupted", "done", run, of)]


def ask_rewritten(servers: Servers, entries: Collection[Captured]) -> set[str]:
    """Ask for those tables again that were written anew while a first snapshot was read, which may have missed them.

    Args:
        servers: of the pipeline; its connector streams.
        entries: tables that the first snapshot has read.

    Returns:
        Those that were asked for: they are not complete.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
        KafkaError: the signal could not be sent; the next ``apply`` sends it.
    """
    again = rewritten(servers.setup, entries)
    if again:
        want_again(servers.setup, servers.names, again, None, sweep=False)
        request(servers, dict.fromkeys(again))
    return again


def hear(servers: Servers) -> Heard:
    """What Debezium has told of its snapshots up to now."""
    notifications = Notifications(servers.kafka, servers.pipeline)
    try:
        return notifications.catch_up()
    finally:
        notifications.close()


def lost_requests(
    servers: Servers,
    captured: Mapping[str, Captured],
    connector: RunningConnector | None,
    hearing: Callable[[], Heard] | None = None,
) -> set[str]:
    """Tables that were asked for a while ago, and that Debezium neither works on nor has finished; ``hearing`` gives
    what it has told, to who reads on anyway."""
    requested = [entry for entry in captured.values() if entry.state == "requested"]
    old = [e for e in requested if datetime.now(UTC) - e.changed_at > timedelta(seconds=LOST_SECONDS)]
    if not old or (connector is not None and connector.in_incremental_snapshot):
        return set()
    heard = hear(servers) if hearing is None else hearing()
    return {entry.table for entry in old if not is_complete(heard, entry)}


def is_complete(heard: Heard, entry: Captured) -> bool:
    """Debezium has said that all rows of a requested table were sent."""
    return heard.statuses.get(entry.signal_id or "", {}).get(entry.table) in COMPLETE


def has_failed(heard: Heard, entry: Captured) -> bool:
    """Debezium has said that it could not read a requested table."""
    return heard.statuses.get(entry.signal_id or "", {}).get(entry.table, "SUCCEEDED") not in COMPLETE
