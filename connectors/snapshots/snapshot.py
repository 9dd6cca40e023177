"""Waits for snapshots: until every row is in its topic, and deletes that were missed are made up for."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from cdc.errors import ConnectError, HeadwaterError, SourceError
from cdc.outbox import is_outbox, topics_of_table
from cdc.pipeline import Pipeline
from connectors.captured.captured import Captured, read_captured
from connectors.captured.changed import complete
from connectors.connector import RunningConnector, read_connector
from connectors.database.lost import end_lost
from connectors.marker_watch import has_skipped
from connectors.rest import failure
from connectors.servers import Servers, open_servers
from connectors.snapshots.cut_snapshot import sweep
from connectors.snapshots.missed_deletes import sweep_missed
from connectors.snapshots.progress import Progress, SnapshotMeter, TableProgress
from connectors.snapshots.requests import ask_rewritten, has_failed, is_complete, lost_requests, request
from connectors.snapshots.signals import COMPLETE, Heard, Listening, Notifications

PAUSE_SECONDS = 0.5
# How often it is looked whether a request was lost.
REISSUE_SECONDS = 5.0


def wait_snapshot(
    pipeline: Pipeline,
    progress: Callable[[Progress], None] = lambda now: None,
    seconds: float | None = None,
    only: Collection[str] = (),
) -> Progress:
    """Wait until every captured table's rows are in its topic and streaming has begun.

    A table in which missed deletes can't be looked for keeps none of the others from being complete.

    Args:
        pipeline: the loaded file; ``apply`` must have run.
        progress: called about twice a second.
        seconds: give up after this long; None for never.
        only: the tables of which it is wanted; others in which missed deletes can't be looked for are left, as they
            are. Empty for all.

    Returns:
        The last progress; ``done`` unless the time was over.

    Raises:
        ConnectError: the connector failed, is not there, or could not read a table (terminal).
        TableChanged: something has happened to a table while it was read again (terminal).
        SourceError: nothing was applied yet, or missed deletes of a table can't be looked for (terminal).
    """
    with open_servers(pipeline) as servers:
        notifications = Notifications(servers.kafka, pipeline)
        try:
            return Waiting(servers, notifications, progress, only).wait(seconds)
        finally:
            notifications.close()


def unfinished(servers: Servers, listening: Listening | None = None) -> set[str]:
    """Captured tables whose rows are not all in Kafka yet; notes those that have become complete.

    Args:
        servers: of the pipeline.
        listening: of who asks often; without it all that Debezium has told is read.

    Raises:
        ConnectError: the connector failed, is not there, or could not read a table (terminal).
    """
    entries = {t: entry for t, entry in read_captured(servers.setup, servers.names).items() if entry.state != "done"}
    if not entries:
        return set()
    notifications = Notifications(servers.kafka, servers.pipeline) if listening is None else listening.opened()
    try:
        waiting = Waiting(servers, notifications, lambda now: None)
        return set(entries) - waiting.finished(notifications.catch_up(), entries, clean=False)
    finally:
        if listening is None:
            notifications.close()


class Waiting:
    """A wait for all snapshots that are not finished now.

    Args:
        servers: of the pipeline.
        notifications: of its connector.
        progress: called about twice a second.
        only: as ``wait_snapshot``.
    """

    def __init__(
        self,
        servers: Servers,
        notifications: Notifications,
        progress: Callable[[Progress], None],
        only: Collection[str] = (),
    ) -> None:
        self.servers, self.notifications, self.progress, self.only = servers, notifications, progress, only
        self.left: set[str] = set()  # that can't be swept, and are none of ``only``
        self.swept: dict[str, int] = {}
        self.last = Progress((), done=False)
        self.meters: dict[str, SnapshotMeter] = {}
        self.topics: dict[str, Collection[str]] = {}
        self.partitions: dict[str, int] = {}

    def wait(self, seconds: float | None) -> Progress:
        """Wait for them; argument, result and errors as ``wait_snapshot``."""
        servers = self.servers
        entries = read_captured(servers.setup, servers.names)
        if not entries:
            raise SourceError("nothing is captured yet", fix="run `headwater apply FILE`")
        meters = {table: SnapshotMeter(servers, entry) for table, entry in entries.items() if entry.state != "done"}
        self.meters = meters
        self.topics = {table: topics_of_table(servers.pipeline, table) for table in meters}
        named = [topic for of in self.topics.values() for topic in of]
        self.partitions = {topic.name: topic.partitions for topic in servers.kafka.describe(named).values()}
        heard = self.notifications.catch_up()
        deadline = None if seconds is None else time.monotonic() + seconds
        look = time.monotonic() + REISSUE_SECONDS
        while True:
            entries = read_captured(servers.setup, servers.names)
            open_ones = {t: entries[t] for t in meters if t in entries and entries[t].state != "done"}
            self._measure(heard, open_ones, self.finished(heard, open_ones, clean=True))
            if self.last.done and not self.left:
                end_lost(servers.setup, servers.names)
            if self.last.done or (deadline is not None and time.monotonic() > deadline):
                return self.last
            if time.monotonic() > look:
                self._ask_again(open_ones)
                look = time.monotonic() + REISSUE_SECONDS
            heard = self.notifications.read(PAUSE_SECONDS)

    def _measure(self, heard: Heard, entries: Mapping[str, Captured], finished: set[str], sweeps: int = 0) -> None:
        """Measure every table, and tell of them.

        Args:
            heard: from Debezium.
            entries: of the tables that were not done before.
            finished: those of them that are now.
            sweeps: tables whose missed deletes are looked for next.
        """
        done = set(self.meters) - set(entries) | finished
        ends = self.servers.kafka.ends(self.partitions)
        tables = (
            meter.measure(
                [end for topic in self.topics[table] for end in ends.get(topic, {}).values()],
                heard,
                done=table in done,
                swept=self.swept.get(table),
                read=table in entries and is_read(heard, entries[table]),
            )
            for table, meter in sorted(self.meters.items())
        )
        self.last = Progress(tuple(tables), done >= set(self.meters), heard.chunks, sweeps)
        self.progress(self.last)

    def _ask_again(self, entries: dict[str, Captured]) -> None:
        """Send what was never sent, or was lost, once more."""
        running = read_connector(self.servers.connect, self.servers.connector)
        if running is None or running.status is None or not running.status.running:
            return
        lost = lost_requests(self.servers, entries, running, self.notifications.catch_up)
        lost |= {table for table, entry in entries.items() if entry.state == "wanted"}
        if lost:
            request(self.servers, {table: entries[table].condition for table in lost})

    def finished(self, heard: Heard, entries: dict[str, Captured], *, clean: bool) -> set[str]:
        """Tables whose rows, and no others, are in Kafka; notes them as done, and stops at a snapshot that failed.

        ``clean``: remove what an interrupted attempt left behind, and rows whose deletes were missed; without it such
        tables are not finished.

        Raises:
            ConnectError: the connector failed, is not there, has skipped the initial snapshot, or could not read a
                table (terminal).
            SourceError, KafkaError: missed deletes of a table can't be looked for (terminal).
        """
        running = self._running()
        done = {table for table, entry in entries.items() if entry.state == "initial" and running.streaming}
        if done and has_skipped(self.servers.kafka, self.servers.pipeline, running):
            raise ConnectError(
                f"Debezium has skipped the initial snapshot of {', '.join(sorted(done))}",
                means="it ended before its first record and was started again; rows that do not change are in no topic",
                fix="`headwater apply FILE --wait` lets it begin anew",
            )
        if done and heard.interrupted:
            if not clean:
                done = set()
            elif any(read_captured(self.servers.setup, self.servers.names)[table].state != "done" for table in done):
                self._measure(heard, entries, set())  # what was told last is older than that they are read
                sweep(self.servers, sorted(done))
        done -= ask_rewritten(self.servers, [entries[table] for table in done])
        refuse_failed(heard, entries)
        read = {t for t, entry in entries.items() if entry.state == "requested" and is_complete(heard, entry)}
        again = {table for table in read if entries[table].sweep}
        done |= read - again
        done = self._complete(entries, done)
        # All at once: looking for missed deletes may stop the connector.
        if again and clean and again == {table for table, entry in entries.items() if entry.sweep}:
            sweeps = sum(not is_outbox(self.servers.pipeline, table) for table in again)
            self._measure(heard, entries, done, sweeps)  # a sweep may take long, and tells of its own table alone
            done |= self._sweep(entries, again)
        return done

    def _sweep(self, entries: Mapping[str, Captured], tables: Iterable[str]) -> set[str]:
        """Look for the missed deletes of tables; those that are complete then.

        Raises:
            SourceError, KafkaError: one of those that are waited for can't be looked at; the others are complete.
        """
        found = sweep_missed(self.servers, sorted(tables), self._tell)
        swept = {table: rows for table, rows in found.items() if isinstance(rows, int)}
        self.swept |= swept
        done = self._complete(entries, swept)
        for table, error in found.items():
            if isinstance(error, HeadwaterError):
                if not self.only or table in self.only:
                    raise error
                self.left.add(table)
                self.meters.pop(table, None)
        return done

    def _complete(self, entries: Mapping[str, Captured], tables: Iterable[str]) -> set[str]:
        """Note tables as complete; those that somebody has asked for again meanwhile are not, and are waited for."""
        servers, seen = self.servers, [entries[table] for table in tables]
        return complete(servers.setup, servers.names, servers.pipeline.source.publication, seen) if seen else set()

    def _running(self) -> RunningConnector:
        servers = self.servers
        running = read_connector(servers.connect, servers.connector)
        if running is None:
            raise ConnectError(f"there is no connector {servers.connector}", fix="run `headwater apply FILE`")
        if running.status is not None and running.status.failed:
            raise failure(servers.connector, running.status)
        return running

    def _tell(self, table: str, done: int, total: int) -> None:
        """Tell how far the sweep of a table is; those that were swept before it stay told."""
        now = TableProgress(table, done, max(done, total), done=False, sweeping=True, read=True)
        others = tuple(other for other in self.last.tables if other.table != table)
        self.last = replace(self.last, tables=(*others, now))
        self.progress(self.last)


def is_read(heard: Heard, entry: Captured) -> bool:
    """Debezium has said that it has read a table, also in an initial snapshot that goes on with others. Pure."""
    if entry.state == "initial":
        return heard.statuses.get("initial", {}).get(entry.table) in COMPLETE
    return is_complete(heard, entry)


def refuse_failed(heard: Heard, entries: dict[str, Captured]) -> None:
    """Stop at a table that Debezium could not read. Pure.

    Raises:
        ConnectError: names it (terminal).
    """
    for table, entry in entries.items():
        if has_failed(heard, entry):
            raise ConnectError(
                f"Debezium could not read table {table}: {heard.statuses[entry.signal_id or ''][table]}",
                means="its topic lacks rows",
                fix="read the worker's log, remove the cause, then `headwater apply FILE`, which asks again",
            )


__all__ = ["Progress", "TableProgress", "unfinished", "wait_snapshot"]
