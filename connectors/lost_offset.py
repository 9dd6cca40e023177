"""Notices that Kafka Connect has lost how far the connector had read, while the pipeline's tables are captured.

Connect keeps that in a topic of its worker's. Where it was emptied, or made anew, Debezium takes the pipeline for a new
one: it reads every table in an initial snapshot, and streams from there. What was deleted since it had read last is in
no log then, and those rows would stay in every sink. Two things tell:

- *The offset itself*: there is none, or one of an initial snapshot, though tables were read whole before.
- *The initial snapshot's position* (``marker.py``), once that snapshot has ended: it is later than where the log was
  when a table was complete for the first time. ``resnapshot --all`` notes that changes are lost (``database/lost.py``)
  and reads and sweeps all tables; from then on that position is known.

Docs: docs/decisions/gaps.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg

from cdc.errors import LogGap, SourceError
from cdc.log.client import Kafka
from cdc.pipeline import Pipeline
from cdc.records.position import format_lsn
from connectors.captured import Captured, read_captured
from connectors.database.lost import Lost, read_lost
from connectors.marker import read_position
from connectors.names import Names
from connectors.postgres import ANSWER_SECONDS, Connection, connect, within

READ_AGAIN = "`headwater resnapshot FILE --all`, then `headwater run FILE`"
# Their rows are read by another initial snapshot, and what folds, windows and matches have counted of the former one
# counts no more (spark/events/stateful.py).
_AND_EVENTS = (
    f"{READ_AGAIN}; sinks with folds, windows or matches over events then want `headwater rebuild FILE SINK --auto`"
)
MEANS = "rows that were deleted after that are in no log, and would stay in every sink"
# Snapshots that somebody asks a streaming connector for: it has its place.
ASKED_FOR = ("INCREMENTAL", "BLOCKING")


def read_whole(captured: Mapping[str, Captured]) -> list[str]:
    """Tables of which all rows were in their topics once. Pure."""
    return sorted(t for t, entry in captured.items() if entry.state == "done" or entry.read_through is not None)


def refuse_lost_offset(offset: Mapping[str, Any] | None, captured: Mapping[str, Captured]) -> None:
    """Refuse a connector that knows no place in the source's log, or begins with a first snapshot once more. Pure.

    Args:
        offset: as Connect tells it; None if it knows none.
        captured: the list of captured tables, read after it: ``apply`` lets a first snapshot begin anew by noting that
            there before.

    Raises:
        LogGap: tables were read whole before (terminal).
    """
    if offset is not None and str(offset.get("snapshot", ASKED_FOR[0])).upper() in ASKED_FOR:
        return
    if read := read_whole(captured):
        named = ", ".join(read[:3]) + (f" and {len(read) - 3} more" if len(read) > 3 else "")
        now = "knows no place of it" if offset is None else "is in an initial snapshot again"
        raise LogGap(
            f"Kafka Connect has lost how far the connector had read: it {now}, and {named} were captured before",
            means=MEANS,
            fix=_AND_EVENTS,
        )


def refuse_second_snapshot(position: int | None, captured: Mapping[str, Captured], lost: Iterable[Lost]) -> None:
    """Refuse to go on behind an initial snapshot that was made once more. Pure.

    Args:
        position: of the initial snapshot's last attempt; None if it has not begun.
        captured: the list of captured tables.
        lost: what is known to be lost.

    Raises:
        LogGap: a table was complete before it, and nobody has read the tables again since (terminal).
    """
    before = min((e.read_through for e in captured.values() if e.read_through is not None), default=None)
    if position is None or before is None or position <= before or any(one.hides(position) for one in lost):
        return
    raise LogGap(
        f"Debezium has made its initial snapshot once more, at {format_lsn(position)}; the tables were complete at"
        f" {format_lsn(before)}: Kafka Connect had lost how far it had read",
        means=MEANS,
        fix=_AND_EVENTS,
    )


def refuse_read_twice(
    kafka: Kafka, pipeline: Pipeline, connection: Connection, captured: Mapping[str, Captured]
) -> None:
    """As ``refuse_second_snapshot``, of what Kafka and the database say.

    Args:
        kafka: the brokers.
        pipeline: the loaded file.
        connection: to the database.
        captured: the list of captured tables.

    Raises:
        LogGap: the initial snapshot was made once more (terminal).
        KafkaError: the marker's topic can't be read (KafkaUnavailable: transient).
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    if any(entry.read_through is not None for entry in captured.values()):
        lost = read_lost(connection, Names.of(pipeline))
        refuse_second_snapshot(read_position(kafka, pipeline), captured, lost)


def check_snapshot(pipeline: Pipeline, position: int) -> None:
    """Ask the database whether an initial snapshot is a second one; says nothing while it does not answer.

    Args:
        pipeline: the loaded file.
        position: of the initial snapshot's last attempt.

    Raises:
        LogGap: it is (terminal).
    """
    names = Names.of(pipeline)
    try:
        with connect(pipeline.source) as connection, within(connection, ANSWER_SECONDS):
            captured, lost = read_captured(connection, names), read_lost(connection, names)
    except (SourceError, psycopg.Error):  # down, or it refuses: the sinks go on with what the log holds
        return
    refuse_second_snapshot(position, captured, lost)
