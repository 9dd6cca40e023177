"""Removes what an interrupted initial snapshot left behind.

When the worker dies during the initial snapshot, Debezium begins it again at a later position, and streams from there.
Rows that the first attempt had read, and that were deleted before the second began, are then in the topics for good:
no later record of theirs ever comes. They are found by their position, which is not the last attempt's, and deleted:
with an event as Debezium writes it, and a tombstone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError as CoreError
from confluent_kafka import Message, Producer

from cdc.errors import KafkaUnavailable
from cdc.log.client import Kafka
from cdc.log.opening import opened
from cdc.log.records import SILENCE_SECONDS, records
from cdc.log.refusals import untaken
from cdc.outbox import is_outbox
from cdc.records.debezium_json import WRITTEN
from connectors.advisory_lock import changing
from connectors.connector import wait_ready
from connectors.marker import snapshot_position
from connectors.servers import Servers

STREAMED = (None, "false", "incremental")
# Of the producer of deletes.
OWN = {"enable.idempotence": True, "compression.type": "lz4"}
# After so long, beyond the time that a record has, there is a verdict on each.
VERDICT_SECONDS = 5.0


def sweep(servers: Servers, tables: Iterable[str]) -> dict[str, int]:
    """Delete the rows that only an earlier attempt of the initial snapshot has read.

    The connector is stopped meanwhile: a row that is inserted again must not be overtaken by our tombstone.

    Args:
        servers: of the pipeline, whose snapshot must be complete.
        tables: those that the initial snapshot read.

    Returns:
        Table -> rows deleted from its topic. Doing it again deletes nothing more.

    Raises:
        KafkaError: the marker's record is not there, or a delete was refused.
        KafkaUnavailable, RegistryUnavailable: no answer (transient).
        SourceUnavailable: another sweep, or an ``apply``, has the connector for long (transient).
    """
    tables = [table for table in tables if not is_outbox(servers.pipeline, table)]  # what was read is an event for ever
    with changing(servers):  # else another sweep would let the connector go on under this one
        servers.connect.stop(servers.connector)
        servers.connect.wait_stopped(servers.connector)
        try:
            position = snapshot_position(servers)
            topics = servers.kafka.describe([servers.pipeline.topic(table) for table in tables])
            out = {}
            for table in tables:
                topic = topics[servers.pipeline.topic(table)]
                out[table] = sum(_sweep(servers, topic.name, part, position) for part in range(topic.partitions))
            return out
        finally:
            servers.connect.resume(servers.connector)
            wait_ready(servers)


def _sweep(servers: Servers, topic: str, partition: int, position: int) -> int:
    ghosts: dict[bytes, dict[str, Any]] = {}
    kafka, encoding, like = servers.kafka, servers.encoding, b""
    for message in records(kafka, topic, partition):
        key, value = message.key(), message.value()
        if key is None:
            continue
        ghosts.pop(bytes(key), None)  # whatever was known of this row, there is something newer
        source = encoding.loads(value)["source"] if value else None
        if source is not None and is_ghost(source, position):
            ghosts[bytes(key)], like = source, bytes(value or b"")
    if ghosts:
        now_ms = int(time.time() * 1000)
        events = (
            (partition, key, encoding.dumps(delete_event(source, position, now_ms), like))
            for key, source in ghosts.items()
        )
        write_deletes(kafka, topic, events)
    return len(ghosts)


def is_ghost(source: dict[str, Any], position: int) -> bool:
    """Whether a record's ``source`` says that another attempt of the snapshot than the last has read it. Pure."""
    return source.get("snapshot") not in STREAMED and source.get("lsn") != position


def delete_event(source: dict[str, Any], position: int, now_ms: int) -> dict[str, Any]:
    """A delete as Debezium writes it, at the snapshot's position: newer than what was read before. Pure.

    The row was gone when the snapshot was made: so it is in every cut of a history, which begins with the snapshot, and
    by its time, the read's, later than no moment.
    """
    at = {**source, "snapshot": "false", "lsn": position, "sequence": f'[null,"{position}"]', WRITTEN: position - 1}
    at["txId"] = None  # the one that has read it is not the one that has deleted it
    return {"before": None, "after": None, "source": at, "transaction": None, "op": "d", "ts_ms": now_ms}


def write_deletes(kafka: Kafka, topic: str, events: Iterable[tuple[int, bytes, bytes]]) -> int:
    """Write delete events, each followed by its tombstone.

    Args:
        kafka: the brokers.
        topic: of the table.
        events: partition, key and event.

    Returns:
        how many.

    Raises:
        KafkaError: one was refused (terminal until that is corrected).
        KafkaUnavailable: one was not acknowledged (transient: do it again, those that are written stay).
    """
    failed: list[CoreError] = []

    def told(error: CoreError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = opened(Producer, {**kafka.settings, **OWN, "message.timeout.ms": int(SILENCE_SECONDS * 1000)})
    count = 0
    try:
        for partition, key, event in events:
            count += 1
            for value in (event, None):
                while True:
                    try:
                        producer.produce(topic, key=key, value=value, partition=partition, on_delivery=told)
                        break
                    except BufferError:
                        producer.poll(0.5)
            if failed:
                break
        unsent = producer.flush(SILENCE_SECONDS + VERDICT_SECONDS)
    finally:
        # The caller lets the connector go on, which may write such a row anew: nothing of ours may come behind that.
        # What had been sent can't be called back; a broker that stood still may take it yet, but has had it before what
        # the connector sends.
        producer.purge()
    if failed:
        raise untaken(f"deletes of rows that are gone, in topic {topic}", failed, kafka.bootstrap, kafka.heard)
    if unsent:
        raise KafkaUnavailable(
            f"topic {topic} did not acknowledge {unsent:,} deletes in {SILENCE_SECONDS:.0f} s",
            fix="run `headwater apply FILE --wait` again",
        )
    return count
