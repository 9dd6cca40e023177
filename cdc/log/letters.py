"""Dead letters on their way to Kafka: what no sink could take, keyed, with the reason, before the batch may commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import orjson
from confluent_kafka import KafkaError as CoreError
from confluent_kafka import KafkaException, Producer

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.letters.deadletter import DeadLetter
from cdc.log.opening import Heard, opened
from cdc.log.refusals import translate, untaken
from cdc.pipeline import Pipeline

# A batch waits for its letters; past this the task fails and the batch is replayed, so that no letter is lost.
FLUSH_SECONDS = 30.0
# A letter holds the record and its reason, so it may be a little larger than any record.
MORE_BYTES = 65_536
# What Kafka adds to a record and to the batch that it is in: about a hundred.
WRAPPING_BYTES = 1_024
# Header of a tombstone: see cdc/letters/book.py.
THROUGH = "through"


def letters_config(pipeline: Pipeline) -> dict[str, Any]:
    """What ``send`` and ``clear`` need to know, as plain data that travels to executors; holds secrets."""
    kafka = pipeline.kafka
    config = letters_to(pipeline.dead_letter_topic, kafka.client(), kafka.max_message_bytes)
    return config | {"values": pipeline.policy.dead_letters.values}


def letters_to(topic: str, client: Mapping[str, Any], max_message_bytes: int) -> dict[str, Any]:
    """The same without a pipeline, values included.

    Args:
        topic: of the letters.
        client: librdkafka's settings.
        max_message_bytes: of the records that letters are made of.
    """
    return {"topic": topic, "client": {**client, "message.max.bytes": max_message_bytes + MORE_BYTES}}


@lru_cache(maxsize=4)
def _heard(_settings: bytes) -> Heard:
    return Heard()


@lru_cache(maxsize=4)
def _producer(settings: bytes) -> Producer:
    # It lives as long as the process. What keeps it from the brokers is told by whoever sends: its own lines, one for
    # each attempt to connect, would be among those of `run`, which may be JSON.
    own = {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4", "log_level": 0}
    return opened(Producer, {**orjson.loads(settings), **own, "error_cb": _heard(settings)})


def send(config: Mapping[str, Any], letters: Sequence[DeadLetter]) -> None:
    """Publish letters and wait until the brokers have them all.

    Args:
        config: of ``letters_config``; unless it says ``values: False``, with the documents.
        letters: what to publish; none is a no-op that opens no connection.

    Raises:
        KafkaError: they were refused; the batch must not commit.
        KafkaUnavailable: not all were acknowledged in time (transient); the same.
    """
    if not config.get("values", True):
        letters = [letter.without_values() for letter in letters]
    publish(config, [_record(config, letter) for letter in letters])


def _record(config: Mapping[str, Any], letter: DeadLetter) -> tuple[bytes, bytes, None]:
    """A letter as it goes into the topic: one that the topic does not take would stop all that it is about."""
    key = letter.record_key()
    return key, letter.to_json(config["client"]["message.max.bytes"] - WRAPPING_BYTES - len(key)), None


def clear(config: Mapping[str, Any], cleared: Mapping[bytes, int]) -> None:
    """Publish tombstones of letters.

    Args:
        config: as ``send`` takes it.
        cleared: record key -> the letter's offset in the topic; one that has come since stands.

    Raises:
        KafkaError, KafkaUnavailable: as ``send``; those that were not acknowledged still stand.
    """
    publish(config, [(key, None, through) for key, through in cleared.items()])


def publish(config: Mapping[str, Any], records: Sequence[tuple[bytes, bytes | None, int | None]]) -> None:
    """Write records (key, value, what a tombstone means) to the letters' topic and wait until the brokers have all.

    Raises:
        KafkaError, KafkaUnavailable: as ``send``.
    """
    if not records:
        return
    try:
        _publish(config, records)
    except KafkaError:
        # What it still holds is written again by whoever tries again, with another one: in this one it would pile up
        # for as long as the brokers are away; and one that they have shut out stays so.
        _producer.cache_clear()
        raise


def _publish(config: Mapping[str, Any], records: Sequence[tuple[bytes, bytes | None, int | None]]) -> None:
    settings = orjson.dumps(dict(config["client"]), option=orjson.OPT_SORT_KEYS)
    producer, heard = _producer(settings), _heard(settings)
    failed: list[CoreError] = []

    def delivered(error: CoreError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    try:
        for key, value, through in records:
            headers: list[tuple[str, str | bytes | None]] = [] if through is None else [(THROUGH, str(through))]
            produce = partial(
                producer.produce, config["topic"], key=key, value=value, on_delivery=delivered, headers=headers
            )
            try:
                produce()
            except BufferError:  # they are more than it holds at a time
                producer.flush(FLUSH_SECONDS)
                produce()
            producer.poll(0)
        unsent = producer.flush(FLUSH_SECONDS)
    except BufferError as error:
        raise _unanswered(config, len(producer), heard) from error
    except KafkaException as error:
        raise translate(_what(config), error, config["client"]["bootstrap.servers"], heard) from error
    if failed:
        raise untaken(_what(config), failed, config["client"]["bootstrap.servers"], heard)
    if unsent:
        raise _unanswered(config, unsent, heard)
    heard.forget()


def _what(config: Mapping[str, Any]) -> str:
    return f"dead letters could not be written to {config['topic']}"


def _unanswered(config: Mapping[str, Any], count: int, heard: Heard) -> KafkaError:
    refusal = heard.refusal(_what(config), config["client"]["bootstrap.servers"])
    return refusal or KafkaUnavailable(
        f"{count} dead letters were not acknowledged by {config['topic']} in {FLUSH_SECONDS:.0f} s",
        means="the batch is not committed and will be tried again",
        fix="start the brokers, or correct kafka.bootstrap and kafka.options",
    )
