"""Dead letters on their way to Kafka: what no sink could take, keyed, with the reason, before the batch may commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from confluent_kafka import KafkaException, Producer

from cdc.errors import KafkaError
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline

# A batch waits for its letters; past this the task fails and the batch is replayed, so that no letter is lost.
FLUSH_SECONDS = 30.0
# A letter holds the record and its reason, so it may be a little larger than any record.
MORE_BYTES = 65_536
# Header of a tombstone: see cdc/letters/book.py.
THROUGH = "through"


def letters_config(pipeline: Pipeline) -> dict[str, Any]:
    """What ``send`` and ``clear`` need to know, as plain data that travels to executors; holds secrets."""
    return {
        "topic": pipeline.dead_letter_topic,
        "client": {**pipeline.kafka.client(), "message.max.bytes": pipeline.kafka.max_message_bytes + MORE_BYTES},
        "values": pipeline.policy.dead_letters.values,
    }


@lru_cache(maxsize=4)
def _producer(settings: bytes) -> Producer:
    # It lives as long as the process. What keeps it from the brokers is told by whoever sends: its own lines, one for
    # each attempt to connect, would be among those of `run`, which may be JSON.
    own = {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4", "log_level": 0}
    return Producer({**orjson.loads(settings), **own})


def send(config: Mapping[str, Any], letters: Sequence[DeadLetter]) -> None:
    """Publish letters and wait until the brokers have them all.

    Args:
        config: of ``letters_config``; unless it says ``values: False``, with the documents.
        letters: what to publish; none is a no-op that opens no connection.

    Raises:
        KafkaError: not all letters were acknowledged in time; the batch must not commit.
    """
    if not config.get("values", True):
        letters = [letter.without_values() for letter in letters]
    publish(config, [(letter.record_key(), letter.to_json(), None) for letter in letters])


def clear(config: Mapping[str, Any], cleared: Mapping[bytes, int]) -> None:
    """Publish tombstones of letters.

    Args:
        config: as ``send`` takes it.
        cleared: record key -> the letter's offset in the topic; one that has come since stands.

    Raises:
        KafkaError: not all were acknowledged in time; those that were not still stand.
    """
    publish(config, [(key, None, through) for key, through in cleared.items()])


def publish(config: Mapping[str, Any], records: Sequence[tuple[bytes, bytes | None, int | None]]) -> None:
    """Write records (key, value, what a tombstone means) to the letters' topic and wait until the brokers have all.

    Raises:
        KafkaError: as ``send``.
    """
    if not records:
        return
    producer = _producer(orjson.dumps(dict(config["client"]), option=orjson.OPT_SORT_KEYS))
    failed: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    try:
        for key, value, through in records:
            headers: list[tuple[str, str | bytes | None]] = [] if through is None else [(THROUGH, str(through))]
            producer.produce(config["topic"], key=key, value=value, on_delivery=delivered, headers=headers)
            producer.poll(0)
        unsent = producer.flush(FLUSH_SECONDS)
    except (BufferError, KafkaException) as error:
        raise KafkaError(f"dead letters could not be written to {config['topic']}: {error}") from error
    if unsent or failed:
        raise KafkaError(
            f"{unsent + len(failed)} dead letters were not acknowledged by {config['topic']}: {failed[:1]}",
            means="the batch is not committed and will be tried again",
        )
