"""Time that goes on in a stream that stands still: moments through which a flow has read its log.

Debezium writes the heartbeat's row every few seconds; its change comes through the WAL like any other, with the time of
its commit. Once it can be read, and the flow has committed all that its topics held when it could, nothing from before
that moment is still to come. The flow's clocks then go on by as much as has passed since the last event
(``spark.events.clocks.Clocks.safe``): what is due by time alone, an absence, is told without an event.

Only what is *told* depends on it, never what counts: that the log alone decides (docs/decisions/windows.md).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.errors import HeadwaterError
from cdc.log.ends import LogEnds, Offsets, reached
from cdc.log.opening import opened
from cdc.log.registry import encoding_of
from spark.disk.checkpoint import committed_offsets
from spark.flow import Flow

_log = logging.getLogger(__name__)

# A moment counts when the row has been written once more, so much later: what was committed at the same time is in
# transactions of Kafka's that have ended for all partitions by then.
BEHIND_MS = 1_000
# Between two looks; a heartbeat comes every ten seconds.
PAUSE = 1.0
# Heartbeats that are looked at after a start.
RECENT = 64
_MILLI = 1_000


@dataclass(frozen=True)
class Beats:
    """Where heartbeats are.

    Attributes:
        topic: of the heartbeat's row; it has one partition.
        bootstrap: Kafka brokers.
        client: librdkafka-style options.
        registry: of ``FlowSpec``.
    """

    topic: str
    bootstrap: str
    client: Mapping[str, str]
    registry: Mapping[str, str] | None

    def consumer(self) -> Consumer:
        """A reader that begins with recent ones.

        Raises:
            KafkaException: the brokers do not answer (transient).
            ConfigError: librdkafka does not take the options (terminal).
        """
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "headwater-ticks", "enable.auto.commit": False}
        settings |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "log_level": 0}
        consumer = opened(Consumer, {**self.client, **settings})
        low, high = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=5)
        consumer.assign([TopicPartition(self.topic, 0, max(low, high - RECENT))])
        return consumer

    def moments(self, values: Iterable[bytes | None]) -> list[int]:
        """When the row was written (milliseconds), of its records' values."""
        loads, found = encoding_of(self.registry).loads, []
        for value in values:
            with suppress(ValueError, KeyError, TypeError):
                found.append(int(loads(value or b"")["source"]["ts_ms"]))
        return found


class Moments:
    """What is known of the time: the newest moment, and one that all partitions have been written through."""

    def __init__(self) -> None:
        self._seen: list[int] = []

    def add(self, moments: Iterable[int]) -> int | None:
        """Take heartbeats; the newest moment of which a later one is the proof, if there is any."""
        self._seen = sorted({*self._seen, *moments})[-RECENT:]
        proved = [one for one in self._seen if one <= self._seen[-1] - BEHIND_MS]
        return proved[-1] if proved else None


class Ticker(threading.Thread):
    """Tells a flow how far the time has gone, as long as its query runs.

    Args:
        flow: the flow; its topics are those of events.
        query: it.
        beats: where heartbeats are.
        tell: given each moment (microseconds since 1970) that the flow has read its log through.
    """

    def __init__(self, flow: Flow, query: StreamingQuery, beats: Beats, tell: Callable[[int], None]) -> None:
        super().__init__(name=f"headwater-ticks-{flow.title}", daemon=True)
        self._flow, self._query, self._beats, self._tell = flow, query, beats, tell
        self._told = 0

    def run(self) -> None:
        """Look again and again; brokers that are away are the query's own trouble, and are asked again."""
        while self._active():
            try:
                self._follow()
            except (KafkaException, HeadwaterError, OSError) as error:
                _log.debug("ticks of %s: %s", self._flow.title, error)
                time.sleep(PAUSE)
            except Py4JError:
                return  # the virtual machine is going away

    def _active(self) -> bool:
        try:
            return bool(self._query.isActive)
        except Py4JError:
            return False

    def _follow(self) -> None:
        consumer, log = self._beats.consumer(), LogEnds(self._flow.reading.bootstrap, self._flow.reading.client)
        known, pending = Moments(), None
        try:
            while self._active():
                messages = consumer.consume(RECENT, timeout=PAUSE)
                moment = known.add(self._beats.moments(one.value() for one in messages if one.error() is None))
                if pending is None and moment is not None and moment > self._told and self._waits():
                    # After it could be read: so all that was committed before it is below these ends.
                    pending = moment, log.ends(sorted(self._flow.spec.topics))
                if pending is not None and self._has_read(pending[1]):
                    self._told, pending = pending[0], None
                    self._tell(self._told * _MILLI)
        finally:
            consumer.close()
            log.close()

    def _waits(self) -> bool:
        """Whether anything is kept that time alone could bring due: a batch for nothing costs as much as another."""
        progress: Any = self._query.lastProgress
        return progress is None or any(one.numRowsTotal for one in progress.stateOperators)

    def _has_read(self, ends: Offsets) -> bool:
        return reached(committed_offsets(self._flow.checkpoint)[1], ends)


def ticks(spark: SparkSession, flow: Flow) -> DataFrame:
    """The moments of a flow's next query as records without a topic; to be united with those of its log.

    What an earlier query of this folder was told is forgotten: its checkpoint has it, if that is still there.
    """
    jvm: Any = spark._jvm
    jvm.headwater.spark.Ticks.begin(str(flow.folder))
    source = spark.readStream.format("headwater.spark.Ticks").option("headwater.ticks", str(flow.folder))
    return source.load()


def teller(spark: SparkSession, flow: Flow) -> Callable[[int], None]:
    """What ``Ticker`` tells moments to."""
    jvm: Any = spark._jvm
    name = str(flow.folder)
    return lambda micros: jvm.headwater.spark.Ticks.tell(name, micros)
