"""Signals to a running Debezium connector, and what it tells of its snapshots."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as CoreError

from cdc.errors import KafkaUnavailable
from cdc.log.client import PARTITION_EOF, SECONDS, Kafka
from cdc.log.opening import opened
from cdc.log.refusals import denied, translate, untaken
from cdc.log.registry import encoding_of
from cdc.log.topic_ids import ids_of
from cdc.pipeline import Pipeline
from connectors.debezium import pattern

# Statuses of a table's incremental snapshot that mean that all of its rows were sent.
COMPLETE = {"SUCCEEDED", "EMPTY"}


def send_snapshot_signal(kafka: Kafka, pipeline: Pipeline, tables: Mapping[str, str | None]) -> str:
    """Ask for an incremental snapshot of some tables: in chunks by key, while streaming goes on.

    Args:
        kafka: the brokers.
        pipeline: whose connector is asked.
        tables: ``schema.table``, which the publication must send already; each with a condition on its rows, in SQL,
            or None for all of them.

    Returns:
        The signal's id.

    Raises:
        KafkaError: they refused it (terminal).
        KafkaUnavailable: the brokers did not take it in time (transient); send again, a repeat does no harm.
    """
    signal_id = f"headwater-{uuid.uuid4()}"
    data: dict[str, Any] = {
        "type": "INCREMENTAL",
        "data-collections": [pattern([table]) for table in sorted(tables)],
        "additional-conditions": [
            # In parentheses: Debezium puts it behind an AND, and it may hold an OR.
            {"data-collection": pattern([table]), "filter": f"({condition})"}
            for table, condition in sorted(tables.items())
            if condition is not None
        ],
    }
    _send(kafka, pipeline, {"id": signal_id, "type": "execute-snapshot", "data": data})
    return signal_id


def send_stop_signal(kafka: Kafka, pipeline: Pipeline, tables: Iterable[str]) -> None:
    """Take tables out of the incremental snapshot that is under way; nothing happens when none is.

    A table that has another shape by now can't be gone on with: Debezium has its query from the beginning.

    Raises:
        KafkaError: they refused it (terminal).
        KafkaUnavailable: the brokers did not take it in time (transient); send again, a repeat does no harm.
    """
    data = {"type": "INCREMENTAL", "data-collections": [pattern([table]) for table in sorted(tables)]}
    _send(kafka, pipeline, {"id": f"headwater-{uuid.uuid4()}", "type": "stop-snapshot", "data": data})


def _send(kafka: Kafka, pipeline: Pipeline, signal: Mapping[str, Any]) -> None:
    value = json.dumps(signal)
    producer = opened(Producer, {**kafka.settings, "enable.idempotence": True})
    failed: list[CoreError] = []
    what = f"the snapshot signal was not taken by {pipeline.signal_topic}"
    producer.produce(
        pipeline.signal_topic,
        key=pipeline.kafka.topic_prefix,  # Debezium ignores signals with another key
        value=value,
        on_delivery=lambda error, _: failed.append(error) if error else None,
    )
    unsent = producer.flush(SECONDS)
    if failed:
        raise untaken(what, failed, kafka.bootstrap, kafka.heard)
    if unsent:
        refusal = kafka.heard.refusal(what, kafka.bootstrap)
        raise refusal or KafkaUnavailable(f"{what}: no answer", fix="run `headwater apply FILE` again")


@dataclass
class Heard:
    """What the notifications said so far.

    Attributes:
        rows: table -> rows scanned, as far as told.
        statuses: signal id (or ``initial``) -> table -> ``SUCCEEDED``, ``EMPTY``, ``SQL_EXCEPTION`` ….
        ended: signal ids (and ``initial``) whose snapshot has ended.
        current: the table being read now.
        attempts: how often the initial snapshot was begun until it was complete; more than one leaves rows behind.
        chunks: how many were read of incremental snapshots; one that does not go on stands still.
        forgotten: what was said first is gone: how often the initial snapshot was begun is not known any more.
    """

    rows: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, dict[str, str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    current: str | None = None
    attempts: int = 0
    chunks: int = 0
    forgotten: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether the initial snapshot may have left rows behind that were deleted between two attempts: of an attempt
        that nobody remembers, too."""
        return self.attempts > 1 or self.forgotten

    def hear(self, note: Mapping[str, Any]) -> None:
        """Take in one notification; unknown ones are ignored. Pure."""
        data = note.get("additional_data") or {}
        initial = note.get("aggregate_type") == "Initial Snapshot"
        of = "initial" if initial else str(note.get("id"))
        kind = note.get("type")
        if initial and of in self.ended:
            return  # told at every restart that there is nothing more to do
        if kind == "STARTED" and initial:  # an interrupted initial snapshot begins again from nothing
            self.statuses.pop(of, None)
            self.attempts += 1
        elif kind == "IN_PROGRESS":
            self.current = data.get("current_collection_in_progress")
            self.chunks += 1
        elif kind == "TABLE_SCAN_COMPLETED":
            table = str(data.get("scanned_collection"))
            self.statuses.setdefault(of, {})[table] = str(data.get("status"))
            self.rows[table] = int(data.get("total_rows_scanned") or 0)
        elif kind == "COMPLETED" or (kind == "ABORTED" and not initial):
            self.ended.add(of)


class Notifications:
    """Reads a pipeline's notifications from the beginning, then on.

    Args:
        kafka: the brokers.
        pipeline: whose connector.
    """

    def __init__(self, kafka: Kafka, pipeline: Pipeline) -> None:
        self.heard = Heard()
        self.caught_up = False
        self._next: int | None = None  # of what is read next; None before anything was
        self._begins: int | None = None  # the first offset that is there
        self._encoding = encoding_of(pipeline.source.reader())
        self._kafka, self._topic = kafka, pipeline.notification_topic
        self.consumer = kafka.consumer()
        self.consumer.assign([TopicPartition(pipeline.notification_topic, 0, OFFSET_BEGINNING)])

    def close(self) -> None:
        """Close the consumer."""
        self.consumer.close()

    def read(self, seconds: float) -> Heard:
        """Take in what arrives within ``seconds``.

        Raises:
            KafkaError: it may not be read (terminal).
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._take(left)
        return self.heard

    def catch_up(self, seconds: float = SECONDS) -> Heard:
        """Take in everything that is there now: as long as it goes on, however much that is.

        Args:
            seconds: how long nothing may come.

        Raises:
            KafkaError: it may not be read (terminal).
            KafkaUnavailable: nothing came for so long (transient); what was read until then stays read.
            RegistryError: the schema registry can't be asked (RegistryUnavailable: transient).
        """
        # Where it has been before, the client tells of the end no more, unless something has come.
        end = None if self._next is None else self._kafka.ends({self._topic: 1})[self._topic][0]
        deadline = time.monotonic() + seconds
        self.caught_up = False
        while not (self.caught_up or (end is not None and self._next is not None and self._next >= end)):
            if self._take(0.2):
                deadline = time.monotonic() + seconds
            elif time.monotonic() > deadline:
                raise KafkaUnavailable(
                    "Debezium's notifications could not be read in time", fix="run the same command again"
                )
        return self.heard

    def _take(self, seconds: float) -> bool:
        """Take in one message, if one comes; whether one did."""
        message = self.consumer.poll(seconds)
        if message is None:
            return False
        error = message.error()
        if error is not None and error.code() != PARTITION_EOF:
            if denied(error):
                what = f"Debezium's notifications could not be read from {self._topic}"
                raise translate(what, KafkaException(error), self._kafka.bootstrap)
            return False
        at = message.offset() or 0
        if self._begins is None:
            # The topic keeps a week, and an end that says nothing but where it is tells of an emptied one.
            self._begins = at
            self.heard.forgotten = self._begins > 0
        self._next = at if error is not None else at + 1
        if error is not None:
            self.caught_up = True
            return True
        with suppress(ValueError):  # not Debezium's: somebody else writes into this topic
            self.heard.hear(self._encoding.loads(message.value() or b"{}"))
        return True


class Listening:
    """Notifications for who asks again and again: each time it is read on from where the last question ended.

    Args:
        kafka: the brokers.
        pipeline: whose connector.
    """

    def __init__(self, kafka: Kafka, pipeline: Pipeline) -> None:
        self._kafka, self._pipeline = kafka, pipeline
        self._notifications: Notifications | None = None
        self._of: str | None = None  # Kafka's id of the topic that it reads

    def close(self) -> None:
        """Close what was opened; the next question reads from the beginning."""
        if self._notifications is not None:
            self._notifications.close()
            self._notifications = None

    def opened(self) -> Notifications:
        """What is to be read on; of a topic that was made anew, from its beginning.

        Raises:
            KafkaError: which topic it is can't be asked (KafkaUnavailable: transient).
        """
        topic, kafka = self._pipeline.notification_topic, self._kafka
        of = ids_of(kafka.admin, [topic], kafka.bootstrap, heard=kafka.heard, missing_ok=True).get(topic)
        if of != self._of:
            self.close()
        if self._notifications is None:
            self._notifications, self._of = Notifications(kafka, self._pipeline), of
        return self._notifications
