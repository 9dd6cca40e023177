"""No client of ours makes a topic by asking for it, or by writing into it: brokers do that unless they are told not to.

The brokers are librdkafka's own stand-in, inside the client, which makes topics as Kafka's do by default.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from cdc.errors import KafkaUnavailable
from cdc.log.client import Kafka
from cdc.log.letters import letters_config
from cdc.pipeline import Pipeline, loads

FILE = """\
version: 1
name: p
source: {host: 127.0.0.1, port: 1, database: d, user: u, tables: [public.t]}
kafka: {bootstrap: "127.0.0.1:1", options: {test.mock.num.brokers: 1}}
connect: {url: "http://127.0.0.1:1"}
views: {t: {root: t}}
sinks: {cache: {type: redis, url: "redis://127.0.0.1:1", view: t}}
"""
GONE = "p.public.t"


@pytest.fixture
def pipeline() -> Pipeline:
    return loads(FILE)


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
    away = Kafka(loads(FILE.replace(", options: {test.mock.num.brokers: 1}", "")), seconds=0.3)
    with pytest.raises(KafkaUnavailable, match=r"looking for topic p\.public\.t: Kafka does not answer"):
        away._wait(GONE, there=False)


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
