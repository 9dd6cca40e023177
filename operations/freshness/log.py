"""The source's side of a wait: transactions' fates, how far the slot is, and where that is in the topics.

One connection to Postgres and one client of Kafka, kept open, used by one thread; while tables are being read, one
reader of Debezium's notifications too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg

from cdc.errors import HeadwaterError
from cdc.log.client import Kafka
from cdc.log.ends import Offsets
from cdc.log.topic_ids import ids_of
from cdc.outbox import by_topic, topics_of_tables
from cdc.pipeline import Pipeline
from cdc.token import History
from connectors.captured.captured import Captured, read_captured
from connectors.captured.changed import differences, look_at
from connectors.database.slot import Slot, read_slot
from connectors.database.write_tokens import Standing, beat, read_history, read_standing
from connectors.ledger import LedgerEntry
from connectors.names import Names
from connectors.postgres import ANSWER_SECONDS, Connection, connect, within
from connectors.servers import open_servers
from connectors.snapshots.signals import Listening
from connectors.snapshots.snapshot import unfinished

# How many partitions a topic has changes when somebody changes it.
TOPICS_SECONDS = 30.0
# Between two touches of the heartbeat row while somebody waits. Each is a commit of one row; the write that is waited
# for is confirmed with the next event that Debezium gets, which in a database at rest would be seconds away.
BEAT_SECONDS = 0.1
# Between two questions how far the snapshots are.
SNAPSHOT_SECONDS = 2.0
# Brokers that do not answer within this time hold everybody up who waits for anything else.
KAFKA_SECONDS = 5.0
# Nor may they hold up, by longer than this, who looks at the slot: what they are asked there is asked again soon.
QUICK_SECONDS = 2.0


@dataclass(frozen=True)
class Look:
    """The source at one moment.

    Attributes:
        history: of the database; None if it is a standby, or bears no witness.
        standing: transactions, the log's end, the slot; all asked after ``history`` and over the same connection.
        at: epoch seconds, taken before anything was asked: what was committed by then is in ``standing``.
    """

    history: History | None
    standing: Standing
    at: float


class SourceLog:
    """Postgres and Kafka, as far as a wait needs them.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self._names = pipeline, Names.of(pipeline)
        self._connection: Connection | None = None
        self._kafka = Kafka(pipeline, seconds=KAFKA_SECONDS)
        self._counts: dict[str, int] = {}
        self._counted = self._beaten = self._snapshots_at = float("-inf")
        self._finished: set[tuple[str, datetime]] = set()
        # There is one for each chunk of each table: with a billion rows too many to be read anew at each question.
        self._listening = Listening(self._kafka, pipeline)

    def close(self) -> None:
        """Close what was opened."""
        self._listening.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def look(self, transactions: Collection[int]) -> Look:
        """Ask Postgres.

        Raises:
            SourceUnavailable: no answer (transient).
            SourceError: it refuses.
        """
        try:
            with self._asked() as connection:
                at = time.time()
                history = read_history(connection, self._names)
                if history is None:
                    return Look(None, Standing({}, 0, None), at)
                return Look(history, read_standing(connection, self.pipeline.source.slot, transactions), at)
        except (HeadwaterError, psycopg.Error):
            self.close()  # the next one may be to another server
            raise

    def beat(self) -> None:
        """Touch the heartbeat row, unless that was just done.

        Raises:
            SourceUnavailable: no answer (transient).
        """
        if time.monotonic() - self._beaten < BEAT_SECONDS:
            return
        self._beaten = time.monotonic()
        try:
            with self._asked() as connection:
                beat(connection, self._names)
        except HeadwaterError:
            self.close()
            raise

    def slot(self) -> Slot | None:
        """The slot; None if there is none.

        Raises:
            SourceUnavailable: no answer (transient).
        """
        try:
            with self._asked() as connection:
                return read_slot(connection, self.pipeline.source.slot)
        except HeadwaterError:
            self.close()
            raise

    def reading(self) -> list[str]:
        """Captured tables whose rows are still being read.

        Raises:
            SourceUnavailable, KafkaUnavailable: no answer (transient).
        """
        with self._asked() as connection:
            captured = read_captured(connection, self._names)
        busy = {table: entry for table, entry in captured.items() if entry.state != "done"}
        return sorted(busy.keys() - self._read(busy))

    def entry(self, confirmed_lsn: int, topics: Collection[str], *, quick: bool = False) -> LedgerEntry:
        """The log's ends now, for what the slot had confirmed before.

        It is silent of tables whose rows are still being read, or of which changes are missing: they were not, or will
        not be, in the part of the log that the slot has confirmed.

        Args:
            confirmed_lsn: what the slot had confirmed.
            topics: whose ends.
            quick: brokers are asked once, and not for long: who asks will ask again.

        Raises:
            SourceUnavailable, KafkaUnavailable: no answer (transient).
        """
        silent = self._silent()
        kafka = self._kafka.impatient(QUICK_SECONDS) if quick else self._kafka
        self._count(topics, kafka)
        wanted = {topic: self._counts[topic] for topic in topics if topic in self._counts and topic not in silent}
        # The ids last: a topic that is made anew after the look at its ends then has another one.
        ends = kafka.ends(wanted, written=True)  # connectors/ledger.py says why
        ids = ids_of(kafka.admin, wanted, kafka.bootstrap, heard=kafka.heard)
        return LedgerEntry(confirmed_lsn, ends, silent, ids)

    def both_ends(self, topics: Collection[str]) -> tuple[Offsets, Offsets]:
        """The ends of what is written into topics, and then those of what may be read of it; asked once.

        Raises:
            KafkaUnavailable: no answer (transient).
        """
        wanted = {topic: self._counts[topic] for topic in topics if topic in self._counts}
        kafka = self._kafka.impatient(QUICK_SECONDS)
        written = kafka.ends(wanted, written=True)
        return written, kafka.ends(wanted)

    def written(self) -> Offsets:
        """The ends of what is written into captured tables' topics, also by transactions under way; asked once.

        Raises:
            SourceUnavailable, KafkaUnavailable: no answer (transient).
        """
        with self._asked() as connection:
            topics = topics_of_tables(self.pipeline, read_captured(connection, self._names))
        kafka = self._kafka.impatient(QUICK_SECONDS)
        self._count(topics, kafka)
        wanted = {topic: self._counts[topic] for topic in topics if topic in self._counts}
        return kafka.ends(wanted, written=True)

    def letters_end(self) -> int:
        """The end of the letters' topic; none is written after it that was sent before this call.

        Raises:
            KafkaUnavailable: no answer (transient).
        """
        return sum(self._kafka.ends({self.pipeline.dead_letter_topic: 1})[self.pipeline.dead_letter_topic].values())

    def _count(self, topics: Collection[str], kafka: Kafka) -> None:
        """Ask how many partitions topics have, of all that were asked for: now and then, and where some are new. It is
        one question, however many they are."""
        if not set(topics) <= self._counts.keys() or time.monotonic() - self._counted > TOPICS_SECONDS:
            self._counts = kafka.partitions({*topics, *self._counts})
            self._counted = time.monotonic()

    def _silent(self) -> dict[str, str]:
        publication = self.pipeline.source.publication
        with self._asked() as connection:
            captured = read_captured(connection, self._names)
            # Also what `run` has not noted yet, or is not there to note.
            changes = differences(captured, look_at(connection, publication, captured), publication)
        gaps = {table for table, entry in captured.items() if entry.gap is not None} | changes.keys()
        found = {table: f"changes of table {table} are missing in its topic" for table in gaps}
        busy = {table: entry for table, entry in captured.items() if entry.state != "done"}
        read = self._read(busy)
        found |= {table: _still_read(table, entry.state) for table, entry in busy.items() if table not in read}
        return by_topic(self.pipeline, found)

    def _read(self, busy: Mapping[str, Captured]) -> set[str]:
        """Tables of which all rows are in the log though nobody has noted it: asked of Debezium's notifications, which
        takes a moment, so not at each look. What was found holds for that state of the table."""
        if not busy:
            self._listening.close()
        elif time.monotonic() - self._snapshots_at > SNAPSHOT_SECONDS:
            with open_servers(self.pipeline) as servers:
                left = unfinished(servers, self._listening)
            self._finished |= {(table, one.changed_at) for table, one in busy.items() if table not in left}
            self._snapshots_at = time.monotonic()
        return {table for table, one in busy.items() if (table, one.changed_at) in self._finished}

    @contextmanager
    def _asked(self) -> Iterator[Connection]:
        connection = self._connected()
        with within(connection, ANSWER_SECONDS):
            yield connection

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.pipeline.source)
        return self._connection


def _still_read(table: str, state: str) -> str:
    if state != "initial":
        return f"table {table} is still being read"
    # One that was begun twice has left rows, and only who waits for its end removes them.
    return f"table {table} is still being read (if that was interrupted: `headwater apply FILE --wait` ends it)"
