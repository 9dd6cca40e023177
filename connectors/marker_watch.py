"""Waits for the initial snapshot's position (connectors/marker.py), and notices when another attempt begins.

Rows of a transaction that was open during the snapshot can bear log positions from before it although they are newer
(docs/decisions/positions.md). Every decoder must know the snapshot's LSN to tell; it is in the log, next to the data.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from tenacity import Retrying, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from cdc.errors import HeadwaterError, KafkaError, KafkaRefused, RegistryUnavailable
from cdc.log.client import Kafka
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.polling import last_answer
from cdc.waits import waiting_for
from connectors.captured.captured import Captured
from connectors.connector import RunningConnector
from connectors.debezium import marker_topic
from connectors.marker import last_attempt, read_position

# Debezium reads the tables in an order of its own: the marker may come after a large one.
PATIENCE_SECONDS = 300.0


def read_snapshot_lsn(pipeline: Pipeline, patience: float = PATIENCE_SECONDS) -> int:
    """LSN of the initial snapshot's last attempt, in bytes; waits for the first while the snapshot runs.

    Raises:
        KafkaError: there is no such record after ``patience`` seconds; or there was one, and it is gone (terminal).
        HeadwaterError: Kafka or the schema registry did not answer for as long (transient).
    """
    transient = retry_if_exception(
        lambda error: isinstance(error, HeadwaterError) and error.transient and not isinstance(error, KafkaRefused)
    )  # a login that is refused is told at once: `run` waits for it by itself
    asking = Retrying(
        stop=stop_after_delay(patience),
        wait=wait_fixed(1.0),
        retry=transient | retry_if_result(lambda found: found is None),
        retry_error_callback=last_answer,
    )
    with waiting_for(f"Kafka: topic {marker_topic(pipeline)}, which does not tell the initial snapshot's position yet"):
        found = asking(_position, Kafka(pipeline), pipeline)
    if found is not None:
        return found
    raise KafkaError(
        f"topic {marker_topic(pipeline)} does not tell the position of the initial snapshot after {patience:.0f} s",
        means="the snapshot has not begun, or the connector has failed",
        fix="run `headwater apply FILE --wait` and look at what it says about the connector",
    )


def _position(kafka: Kafka, pipeline: Pipeline) -> int | None:
    """The position; None before there is one."""
    topic = marker_topic(pipeline)
    found = read_position(kafka, pipeline)
    if found is None and (begins := kafka.ends({topic: 1}, first=True)[topic][0]):
        raise _lost(topic, begins)
    return found


def refuse_lost_marker(
    kafka: Kafka,
    pipeline: Pipeline,
    first: Mapping[str, Mapping[int, int]],
    connector: RunningConnector | None,
    captured: Mapping[str, Captured],
) -> None:
    """Refuse to go on without a position that was there once, and that nobody writes again.

    Args:
        kafka: the brokers.
        pipeline: the loaded file.
        first: first offsets, topic -> partition -> offset. Compaction keeps a key's newest record and never moves them.
        connector: as it is; one that is still in its first snapshot may be about to write the position.
        captured: the list of captured tables; while one is ``initial`` nobody has seen a first snapshot's end.

    Raises:
        KafkaError: the marker's topic tells no position, and begins later than at 0 or, though the first snapshot has
            ended, at 0 (terminal).
    """
    topic = marker_topic(pipeline)
    begins = first.get(topic, {}).get(0, 0)
    if begins:
        over = connector is None or connector.streaming
    else:
        # One that is empty is as it was made, by `apply` at first; or by somebody who has deleted the one before.
        ended = all(entry.state != "initial" for entry in captured.values())
        over = topic in first and ended and connector is not None and connector.streaming
    if over and read_position(kafka, pipeline) is None:
        raise _lost(topic, begins)


def has_skipped(kafka: Kafka, pipeline: Pipeline, connector: RunningConnector | None) -> bool:
    """Whether a connector streams that has never read the tables: its initial snapshot was skipped.

    Connect keeps an empty offset of a notification that Debezium sends before its first record. If the task ends then,
    it takes that, started again, for the end of the snapshot, and every topic stays empty.

    Raises:
        KafkaError: Kafka does not answer (transient).
    """
    if connector is None or not connector.streaming:
        return False
    topic = marker_topic(pipeline)
    if topic not in kafka.describe([topic]):
        return False  # that is another trouble
    return not kafka.ends({topic: 1}, first=True)[topic][0] and read_position(kafka, pipeline) is None


def _lost(topic: str, begins: int) -> KafkaError:
    what, how = f"what was before offset {begins} is deleted", "the topic had a retention, or somebody deleted records"
    if not begins:
        what, how = "it begins at 0, and does not hold it", "somebody deleted the topic, and it was made again"
    return KafkaError(
        f"topic {topic} has lost the position of the initial snapshot: {what}",
        means=f"{how}; without it old and new can't be told apart",
        fix="`headwater drop FILE --topics`, then `headwater apply FILE`",
    )


class MarkerWatch:
    """Notices that the initial snapshot was interrupted and has begun again, while sinks fill from the first attempt.

    Args:
        pipeline: the loaded file.
        position: of the attempt that is known.
    """

    def __init__(self, pipeline: Pipeline, position: int) -> None:
        self.position = position
        self._unread: list[bytes | None] = []
        self._encoding = encoding_of(pipeline.source.reader())
        self._consumer = Kafka(pipeline).consumer()
        self._consumer.assign([TopicPartition(marker_topic(pipeline), 0, OFFSET_BEGINNING)])

    def newer(self) -> int | None:
        """The position of a later attempt than the one that is known, once; asks for nothing, waits for nothing.

        Raises:
            DecodeError: somebody else writes into the marker's topic (terminal).
        """
        while (message := self._consumer.poll(0)) is not None:
            if message.error() is None:
                self._unread.append(message.value())
        try:
            found = last_attempt(self._unread, self._encoding)
        except RegistryUnavailable:  # asked again the next time
            return None
        self._unread = []
        if found is None or found <= self.position:
            return None
        self.position = found
        return found

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
