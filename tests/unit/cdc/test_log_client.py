"""No client of ours makes a topic by asking for it, or by writing into it: brokers do that unless they are told not to.

The brokers are librdkafka's own stand-in, inside the client, which makes topics as Kafka's do by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import KafkaError as CoreError

from cdc.errors import KafkaUnavailable
from cdc.log.client import Kafka
from cdc.log.letters import letters_config
from cdc.log.refusals import untaken
from cdc.pipeline import Pipeline, loads
from connectors.snapshots import cut_snapshot
from connectors.snapshots.cut_snapshot import write_deletes
from tests.support.plain_file import plain_file

GONE = "p.public.t"


@pytest.fixture
def pipeline() -> Pipeline:
    return loads(plain_file(options="test.mock.num.brokers: 1"))


@pytest.fixture
def kafka(pipeline: Pipeline) -> Kafka:
    return Kafka(pipeline, seconds=2.0)


def test_the_brokers_of_this_test_make_what_is_asked_for(kafka: Kafka) -> None:
    careless = Producer({**kafka.settings, "allow.auto.create.topics": "true"})
    careless.list_topics(GONE, timeout=5)
    assert GONE in careless.list_topics(timeout=5).topics


def test_to_wait_until_a_topic_is_gone_does_not_make_it_anew(kafka: Kafka) -> None:
    kafka._wait(GONE, there=False)
    assert kafka.beginning([""]) == []
    with pytest.raises(KafkaUnavailable, match=r"p\.public\.t did not appear in 2 s"):
        kafka._wait(GONE, there=True)
    assert kafka.beginning([""]) == []


def test_brokers_that_go_away_meanwhile_are_told_as_such(pipeline: Pipeline) -> None:
    away = Kafka(loads(plain_file()), seconds=0.3)
    with pytest.raises(KafkaUnavailable, match=r"looking for topic p\.public\.t: Kafka does not answer"):
        away._wait(GONE, there=False)


def test_who_is_impatient_asks_once_and_with_the_same_client(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[float]()

    def listed(one: Kafka, _name: str | None = None) -> dict[str, Any]:
        asked.append(one.seconds)
        raise KafkaUnavailable("no answer")

    monkeypatch.setattr(Kafka, "_listed", listed)
    quick = kafka.impatient(0.5)
    with pytest.raises(KafkaUnavailable):
        quick.partitions([GONE])
    assert asked == [0.5] and quick.admin is kafka.admin
    with pytest.raises(KafkaUnavailable):
        kafka.partitions([GONE])
    assert asked == [0.5, 2.0, 2.0, 2.0], "it may be a leader that moves"


def test_partitions_are_counted_without_a_question_for_each_topic(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their settings were read besides, of 500 tables each half a minute."""
    careless = Producer({**kafka.settings, "allow.auto.create.topics": "true"})
    careless.list_topics("there", timeout=5)
    monkeypatch.setattr(Kafka, "_listed", lambda _: careless.list_topics(timeout=5).topics)
    monkeypatch.setattr(kafka, "admin", None)
    assert kafka.partitions(["there", GONE]) == {"there": 4}


@pytest.mark.parametrize("which", ["the pipeline's", "letters"])
def test_what_is_written_makes_no_topic(pipeline: Pipeline, kafka: Kafka, which: str) -> None:
    settings: dict[str, Any] = kafka.settings if which != "letters" else letters_config(pipeline)["client"]
    failed: list[Any] = []
    producer = Producer({**settings, "message.timeout.ms": 500})
    producer.produce(GONE, b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(5)
    assert [error is not None for error in failed] == [True]
    assert producer.list_topics(timeout=5).topics == {}


def test_what_is_read_makes_no_topic(kafka: Kafka) -> None:
    consumer: Consumer = kafka.consumer()
    consumer.list_topics(GONE, timeout=5)
    assert consumer.list_topics(timeout=5).topics == {}
    consumer.close()


def away(**options: Any) -> Kafka:
    """Brokers that do not answer."""
    made = Kafka(loads(plain_file()), seconds=0.3)
    made.settings = {**made.settings, **options}
    return made


def test_deletes_that_brokers_did_not_take_in_time_may_be_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_snapshot, "SILENCE_SECONDS", 0.5)
    for options in ({}, {"message.timeout.ms": 300_000}, {"delivery.timeout.ms": 300_000}):
        with pytest.raises(KafkaUnavailable, match=r"in topic p\.public\.t: Kafka does not answer"):
            write_deletes(away(**options), GONE, [(0, b"key", b"event")])


class Slow:
    """A producer whose brokers acknowledge nothing."""

    queued = 0

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def produce(self, *_: Any, **__: Any) -> None:
        Slow.queued += 1

    def flush(self, seconds: float) -> int:
        assert self.settings["message.timeout.ms"] < seconds * 1000, "each record has its verdict by then"
        return Slow.queued

    def purge(self) -> None:
        Slow.queued = 0


def test_no_delete_is_on_its_way_once_its_writer_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector goes on then, and may write the row anew: a delete that came later, for as long as five minutes,
    took it from every sink."""
    monkeypatch.setattr(cut_snapshot, "Producer", Slow)
    with pytest.raises(KafkaUnavailable, match=r"p\.public\.t did not acknowledge 2 deletes"):
        write_deletes(away(), GONE, [(0, b"key", b"event")])
    assert Slow.queued == 0

    def ending() -> Iterator[tuple[int, bytes, bytes]]:
        yield 0, b"key", b"event"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_deletes(away(), GONE, ending())
    assert Slow.queued == 0


def test_of_several_reasons_the_one_that_lasts_is_told() -> None:
    passing, lasting = CoreError(CoreError._MSG_TIMED_OUT), CoreError(CoreError.TOPIC_AUTHORIZATION_FAILED)
    told = untaken("writing", [passing, lasting, passing], "here")
    assert not told.transient and "the right to" in str(told.fix)
    assert untaken("writing", [passing], "here").transient
