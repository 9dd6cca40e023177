"""How far the snapshots are: rows per table, and when streaming has begun."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from psycopg import sql

from cdc.errors import ConnectError, SourceError
from cdc.pipeline import Pipeline
from connectors.captured import Captured, mark, read_captured
from connectors.connector import read_connector
from connectors.names import identifier
from connectors.plan import is_complete
from connectors.postgres import explained
from connectors.rest import failure
from connectors.servers import Servers, open_servers
from connectors.signals import COMPLETE, Heard, Notifications
from connectors.sweep import sweep

# Tables up to this estimated size are counted; larger ones show the planner's estimate, which costs nothing.
COUNT_ROWS = 2_000_000
PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class TableProgress:
    """One table's snapshot.

    Attributes:
        table: ``schema.table``.
        rows: records in its topic so far; rows scanned, once it is done.
        total: rows in the table when the wait began, or an estimate; None if not known.
        done: all of its rows are in the topic.
    """

    table: str
    rows: int
    total: int | None
    done: bool


@dataclass(frozen=True)
class Progress:
    """All snapshots of a pipeline that are not finished, and those that finished during this wait."""

    tables: tuple[TableProgress, ...]
    done: bool


def wait_snapshot(
    pipeline: Pipeline, progress: Callable[[Progress], None] = lambda now: None, seconds: float | None = None
) -> Progress:
    """Wait until every captured table's rows are in its topic and streaming has begun.

    Args:
        pipeline: the loaded file; ``apply`` must have run.
        progress: called about twice a second.
        seconds: give up after this long; None for never.

    Returns:
        The last progress; ``done`` unless the time was over.

    Raises:
        ConnectError: the connector failed, is not there, or could not read a table (terminal).
        SourceError: nothing was applied yet.
    """
    with open_servers(pipeline) as servers:
        notifications = Notifications(servers.kafka, pipeline)
        try:
            return _wait(servers, notifications, progress, seconds)
        finally:
            notifications.close()


def unfinished(servers: Servers) -> set[str]:
    """Captured tables whose rows are not all in Kafka yet; notes those that have become complete.

    Raises:
        ConnectError: the connector failed, is not there, or could not read a table (terminal).
    """
    entries = {t: entry for t, entry in read_captured(servers.setup, servers.names).items() if entry.state != "done"}
    if not entries:
        return set()
    notifications = Notifications(servers.kafka, servers.pipeline)
    try:
        return set(entries) - _finished(servers, notifications.catch_up(), entries, clean=False)
    finally:
        notifications.close()


def _wait(
    servers: Servers, notifications: Notifications, progress: Callable[[Progress], None], seconds: float | None
) -> Progress:
    captured = read_captured(servers.setup, servers.names)
    if not captured:
        raise SourceError("nothing is captured yet", fix="run `headwater apply FILE`")
    open_entries = {table: entry for table, entry in captured.items() if entry.state != "done"}
    totals = {table: _total(servers, table) for table in open_entries}
    topics = {table: servers.pipeline.topic(table) for table in open_entries}
    partitions = {topic.name: topic.partitions for topic in servers.kafka.describe(topics.values()).values()}
    heard = notifications.catch_up()
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        done = _finished(servers, heard, open_entries, clean=True)
        ends = servers.kafka.ends(partitions)
        tables = tuple(_table(t, totals[t], heard, ends.get(topics[t], {}), done=t in done) for t in sorted(topics))
        now = Progress(tables, done >= set(open_entries))
        progress(now)
        if now.done or (deadline is not None and time.monotonic() > deadline):
            return now
        heard = notifications.read(PAUSE_SECONDS)


def _finished(servers: Servers, heard: Heard, entries: dict[str, Captured], *, clean: bool) -> set[str]:
    """Tables whose rows, and no others, are in Kafka; notes them as done, and stops at a snapshot that failed.

    ``clean``: remove what an interrupted attempt left behind; without it such tables are not finished.
    """
    running = read_connector(servers.connect, servers.connector)
    if running is None:
        raise ConnectError(f"there is no connector {servers.connector}", fix="run `headwater apply FILE`")
    if running.status is not None and running.status.failed:
        raise failure(servers.connector, running.status)
    done = {table for table, entry in entries.items() if entry.state == "initial" and running.streaming}
    if done and heard.attempts > 1:
        if not clean:
            done = set()
        elif not all(read_captured(servers.setup, servers.names)[table].state == "done" for table in done):
            sweep(servers, sorted(done))
    for table, entry in entries.items():
        status = heard.statuses.get(entry.signal_id or "", {}).get(table)
        if status is not None and status not in COMPLETE:
            raise ConnectError(
                f"Debezium could not read table {table}: {status}",
                means="its topic lacks rows",
                fix="read the worker's log, remove the cause, then `headwater apply FILE`, which asks again",
            )
        if entry.state == "requested" and is_complete(heard, entry):
            done.add(table)
    if done:
        mark(servers.setup, servers.names, done, "done")
    return done


def _table(table: str, total: int | None, heard: Heard, ends: dict[int, int], *, done: bool) -> TableProgress:
    if done and table in heard.rows:
        return TableProgress(table, heard.rows[table], heard.rows[table], done=True)
    rows = sum(ends.values())
    return TableProgress(table, rows if total is None else min(rows, total), total, done=done)


def _total(servers: Servers, table: str) -> int | None:
    """Rows of a table: counted when small, estimated when large or never analysed."""
    with explained(f"counting rows of {table}"):
        row = servers.setup.execute(
            "SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s)", [_quoted(servers, table)]
        ).fetchone()
        if row is None:
            return None
        if row[0] > COUNT_ROWS:
            return int(row[0])
        if row[0] < 0:  # never analysed: it may be huge
            size = servers.setup.execute(
                "SELECT pg_relation_size(to_regclass(%s))", [_quoted(servers, table)]
            ).fetchone()
            if size is None or size[0] > COUNT_ROWS * 100:
                return None
        counted = servers.setup.execute(sql.SQL("SELECT count(*) FROM {}").format(identifier(table))).fetchone()
        return int(counted[0]) if counted else None


def _quoted(servers: Servers, table: str) -> str:
    return identifier(table).as_string(servers.setup)
