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

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import psycopg

from cdc.errors import DecodeError, KafkaError, LogGap, RegistryError, SourceError
from cdc.log.client import Kafka
from cdc.log.records import records
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.records.change import Op
from cdc.records.encoding import Encoding
from cdc.records.history import EARLY_US
from cdc.records.position import format_lsn
from connectors.captured.captured import Captured, read_captured
from connectors.database.lost import Lost, read_lost
from connectors.debezium import beat_topic, marker_topic
from connectors.marker import last_attempt, read_position
from connectors.names import Names
from connectors.postgres import ANSWER_SECONDS, Connection, connect, within
from connectors.servers import Servers

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


def streamed_through(values: Iterable[bytes | None], encoding: Encoding, before: int | None) -> tuple[int, int]:
    """Up to which commit the log has all that was committed, by the heartbeat row's records: whoever wrote one had
    written all of the transactions before it, whatever he remembers of that. Pure.

    Args:
        values: of the records, in their order.
        encoding: of the source.
        before: where a second initial snapshot stands: what was streamed behind it tells nothing; None for none.

    Returns:
        The commit's LSN in bytes, and a moment (µs since 1970) before the first commit behind it; zeros if no record
        tells.

    Raises:
        DecodeError: a value is not an event of Debezium (terminal).
        RegistryError: the schema registry can't be asked (RegistryUnavailable: transient).
    """
    newest = 0, 0
    for value in values:
        try:
            event = None if value is None else encoding.loads(value)
            if event is None or event["op"] != Op.UPDATE.value:
                continue
            commit, at_us = orjson.loads(event["source"]["sequence"])[0], int(event["source"]["ts_ms"]) * 1000
            # The first transaction behind a snapshot knows of no commit before it.
            if commit is not None and (before is None or int(commit) < before):
                newest = max(newest, (int(commit), at_us - EARLY_US))
        except (ValueError, KeyError, TypeError) as error:
            raise DecodeError(f"the heartbeat row's record is not an event of Debezium: {error!r}") from error
    return newest


def read_up_to(servers: Servers, captured: Mapping[str, Captured]) -> tuple[int, int]:
    """Up to which commit the log has all of a connector whose offset was lost, as ``streamed_through``.

    Zeros where it is not certain: the records are gone (they stay for a day), or an older version has made the list of
    captured tables, by which a second initial snapshot is known.

    Args:
        servers: of the pipeline.
        captured: the list of captured tables.

    Raises:
        KafkaUnavailable, RegistryUnavailable: no answer (transient).
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    through = [captured[table].read_through for table in read_whole(captured)]
    whole = min((lsn for lsn in through if lsn is not None), default=None)
    if whole is None or None in through:
        return 0, 0
    lost = read_lost(servers.setup, servers.names)
    encoding = encoding_of(servers.pipeline.source.reader())

    def values(topic: str) -> Iterator[bytes | None]:
        return (message.value() for message in records(servers.kafka, topic, 0))

    try:
        attempts = [last_attempt([value], encoding) for value in values(marker_topic(servers.pipeline))]
        second = [at for at in attempts if at is not None and at > whole and not any(one.hides(at) for one in lost)]
        return streamed_through(values(beat_topic(servers.pipeline)), encoding, min(second, default=None))
    except (KafkaError, DecodeError, RegistryError) as error:
        if error.transient:
            raise
        return 0, 0  # somebody else's records, or none: nobody knows, and the way out stays open
