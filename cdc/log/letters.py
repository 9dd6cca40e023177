"""Dead letters on their way to Kafka: what no sink could take, keyed, with the reason, before the batch may commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from confluent_kafka import KafkaException, Producer

from cdc.deadletter import DeadLetter
from cdc.errors import KafkaError

# A batch waits for its letters; past this the task fails and the batch is replayed, so that no letter is lost.
FLUSH_SECONDS = 30.0


@lru_cache(maxsize=4)
def _producer(settings: bytes) -> Producer:
    return Producer({**orjson.loads(settings), "enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4"})


def send(config: Mapping[str, Any], letters: Sequence[DeadLetter]) -> None:
    """Publish letters and wait until the brokers have them all.

    Args:
        config: ``{"topic": name, "client": librdkafka settings}``.
        letters: what to publish; none is a no-op that opens no connection.

    Raises:
        KafkaError: not all letters were acknowledged in time; the batch must not commit.
    """
    if not letters:
        return
    producer = _producer(orjson.dumps(dict(config["client"]), option=orjson.OPT_SORT_KEYS))
    failed: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    try:
        for letter in letters:
            producer.produce(config["topic"], key=letter.record_key(), value=letter.to_json(), on_delivery=delivered)
            producer.poll(0)
        unsent = producer.flush(FLUSH_SECONDS)
    except (BufferError, KafkaException) as error:
        raise KafkaError(f"dead letters could not be written to {config['topic']}: {error}") from error
    if unsent or failed:
        raise KafkaError(
            f"{unsent + len(failed)} dead letters were not acknowledged by {config['topic']}: {failed[:1]}",
            means="the batch is not committed and will be tried again",
        )
