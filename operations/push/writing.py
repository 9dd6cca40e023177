"""Events as records of a topic: one for each document, keyed by it, with an id by which a repetition is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from confluent_kafka import KafkaException, Producer

from cdc.errors import ConfigError, HeadwaterError, KafkaError, KafkaUnavailable
from cdc.json_text import elements, members
from cdc.log.client import Kafka, Topic
from cdc.log.letters import MORE_BYTES
from cdc.log.opening import opened
from cdc.pipeline import Pipeline
from operations.push.carrier import Lease
from operations.push.envelope import Batch
from operations.push.verdict import Verdict, verdict

# Until all records of a batch are acknowledged; less than a lease lasts (webhook.py), with a look at the topic before.
WRITE_SECONDS, LOOK_SECONDS = 10.0, 3.0
# Header of each record: the same when it is written again.
ID = "headwater-id"
# Of what is told to everybody: `reset` and `ready` of no document. Not null, which a compacted topic would refuse.
NOBODY = b""


class Record(NamedTuple):
    """One record.

    Attributes:
        id: by which a repetition is known.
        key: the document's; empty for one that goes to every partition.
        value: JSON, as an event of a webhook's body.
    """

    id: str
    key: bytes
    value: bytes


@dataclass(frozen=True)
class TopicPlace:
    """A topic, and how its brokers are reached.

    Attributes:
        name: the topic's.
        pipeline: whose brokers they are.
        client: settings of a client: what makes one topic differ from another, besides its name.
    """

    name: str
    pipeline: Pipeline = field(compare=False, repr=False)
    client: Mapping[str, Any] = field(repr=False)

    def open(self) -> Writing:
        """See ``Destination``."""
        return Writing(self)


def topic_of(pipeline: Pipeline, name: str) -> TopicPlace:
    """A topic of a pipeline's brokers."""
    most = pipeline.kafka.max_message_bytes + MORE_BYTES
    return TopicPlace(name, pipeline, {**pipeline.kafka.client(), "message.max.bytes": most})


def records(batch: Batch, message: str) -> Iterator[Record]:
    """A batch as records, in its order. Pure.

    Args:
        batch: of any events.
        message: its id; events that have no cursor of their own have ids by it.
    """
    for number, one in enumerate(batch.events):
        of_a_document = one.name in ("match", "change")
        # The cursor of a `ready` is that of the entry before it, and of each `ready` that came at the same place.
        id_ = one.cursor if one.cursor and of_a_document else f"{message}.{number}"
        if one.name != "snapshot":
            key = _key(one.parts()) if of_a_document else NOBODY
            yield Record(id_, key, _value(one.name, one.data, one.cursor))
            continue
        for count, document in enumerate(elements(one.parts()["documents"])):
            yield Record(f"{id_}.{count}", _key(members(document)), _value("snapshot", document.encode(), None))


def _key(parts: Mapping[str, str]) -> bytes:
    key: str = orjson.loads(parts["key"])
    return key.encode()


def _value(event: str, data: bytes, cursor: str | None) -> bytes:
    return orjson.dumps({"event": event, "data": orjson.Fragment(data), "cursor": cursor})


class Writing:
    """Writes to one topic; makes it first, if it is not there.

    Args:
        place: which.
    """

    def __init__(self, place: TopicPlace) -> None:
        self._place = place
        self._producer: Producer | None = None
        self._partitions = 0

    def carry(self, batch: Batch, message: str, attempt: int, lease: Lease) -> Verdict:
        """See ``Carrier``: taken once the brokers have all of it."""
        try:
            return self._write(self._ready(), batch, message, attempt)
        except (KafkaError, ConfigError, KafkaException, BufferError) as error:
            self.close()
            why = error.what if isinstance(error, HeadwaterError) else f"topic {self._place.name}: {error}"
            return verdict(None, why, attempt=attempt)

    def close(self) -> None:
        """Let go of what was not acknowledged: it is written again by whoever comes next. Idempotent."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _ready(self) -> Producer:
        if self._producer is None:
            self._partitions = self._made().partitions
            own = {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4", "log_level": 0}
            patience = {"message.timeout.ms": int(WRITE_SECONDS * 1000)}
            self._producer = opened(Producer, {**self._place.client, **own, **patience})
        return self._producer

    def _made(self) -> Topic:
        """The topic as it is; made as the pipeline's others are when it is not there.

        Raises:
            KafkaError: refused. KafkaUnavailable: no answer (transient).
        """
        pipeline, name = self._place.pipeline, self._place.name
        kafka = Kafka(pipeline, LOOK_SECONDS)
        config = {"cleanup.policy": "delete", "max.message.bytes": str(self._place.client["message.max.bytes"])}
        wanted = Topic(name, pipeline.kafka.partitions, pipeline.kafka.replication_factor, config)
        if name not in kafka.describe([name]):
            kafka.create(wanted)
        found = kafka.describe([name])
        if name not in found:
            raise KafkaUnavailable(f"topic {name} is not there yet", fix="wait")
        return found[name]

    def _write(self, producer: Producer, batch: Batch, message: str, attempt: int) -> Verdict:
        failed: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        for one in records(batch, message):
            headers: list[tuple[str, str | bytes | None]] = [(ID, one.id)]
            parts = range(self._partitions) if one.key == NOBODY else (-1,)  # -1: by the key
            try:
                for part in parts:
                    producer.produce(self._place.name, one.value, one.key, part, on_delivery=delivered, headers=headers)
            except KafkaException as error:  # a client refuses by itself what is too large
                failed.append(error.args[0])
        left = producer.flush(WRITE_SECONDS + 1)
        if not left and not failed:
            return Verdict("delivered")
        if not left and all(error.name() == "MSG_SIZE_TOO_LARGE" for error in failed):
            return Verdict("refused", f"{len(failed)} records are larger than the topic takes")
        self.close()
        why = failed[0].str() if failed else "no answer in time"
        return verdict(None, f"topic {self._place.name}: {why}", attempt=attempt)
