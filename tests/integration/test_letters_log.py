"""The letters' topic on a real broker: what comes between a look and its tombstone, values, records, transactions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from cdc.errors import KafkaError
from cdc.letters.deadletter import DeadLetter
from cdc.log.client import Kafka, Topic
from cdc.log.forgotten import forget_sinks, forget_written
from cdc.log.letter_log import LetterLog
from cdc.log.letters import letters_config, send
from cdc.pipeline import Pipeline, loads
from connectors.topics import dead_letter_topic
from deploy.local.endpoints import Endpoints
from operations.letters.waiting import RejectedWrites
from sinks.contract import Item, Outcome
from tests.support.sinks import VIEW, Subject

pytestmark = pytest.mark.stack
TEXT = """\
version: 1
name: {name}
source: {{database: d, user: u, tables: [public.t]}}
kafka: {{bootstrap: "{kafka}"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{v: {{root: t}}}}
sinks: {{cache: {{type: redis, url: "redis://127.0.0.1:1", view: v}}}}
policy: {{dead_letters: {{values: {values}}}}}
"""


@pytest.fixture
def pipeline(stack: Endpoints) -> Iterator[Pipeline]:
    name = f"t{secrets.token_hex(4)}"
    made = loads(TEXT.format(name=name, kafka=stack.kafka, values="true"), "p.yaml")
    kafka = Kafka(made)
    kafka.create(dead_letter_topic(made))
    yield made
    kafka.delete([made.dead_letter_topic])


def letter(key: str, reason: str = "no", **more: object) -> DeadLetter:
    one = DeadLetter("cache", "v", key, 8, reason, b'{"n":1}', at_ms=1, generation=1)
    return replace(one, **more)  # type: ignore[arg-type]


def keys(log: LetterLog) -> dict[str, str]:
    return {logged.letter.key: logged.letter.reason for _, logged in log.follow()}


def test_a_letter_that_comes_before_its_tombstone_stands_and_is_written_again(pipeline: Pipeline) -> None:
    config, log = letters_config(pipeline), LetterLog(pipeline)
    send(config, [letter("a"), letter("b")])
    assert keys(log) == {"a": "no", "b": "no"}
    seen = {key: logged.at for key, logged in log.book}
    send(config, [letter("a", "again")])  # after the look
    log.clear(seen)
    assert keys(log) == {"a": "again"}
    [(key, logged)] = list(log.book)
    assert logged.at > max(seen.values()) + 3 and not log.book.covered, "behind both tombstones: safe from compaction"
    whole = log.whole(logged.at)
    assert whole is not None and whole.document == b'{"n":1}' and whole.record_key() == key
    assert keys(LetterLog(pipeline)) == {"a": "again"}


def test_who_dies_before_it_is_written_again_leaves_it_to_the_next(pipeline: Pipeline) -> None:
    config, log = letters_config(pipeline), LetterLog(pipeline)
    send(config, [letter("a")])
    log.follow()
    seen = {key: logged.at for key, logged in log.book}
    send(config, [letter("a", "again")])
    log.write_covered_again = lambda: None  # type: ignore[method-assign]
    log.clear(seen)
    after = LetterLog(pipeline)
    assert keys(after) == {"a": "again"} and after.book.covered
    after.write_covered_again()
    assert keys(LetterLog(pipeline)) == {"a": "again"} and not after.book.covered


def test_without_a_topic_the_error_says_what_to_do(pipeline: Pipeline) -> None:
    unknown = loads(TEXT.format(name="tnosuch", kafka=pipeline.kafka.bootstrap, values="true"), "p.yaml")
    with pytest.raises(KafkaError, match="does not exist"):
        LetterLog(unknown).follow()
    forget_sinks(unknown, ["cache"])  # nothing to forget


def test_values_are_kept_out_of_the_topic(pipeline: Pipeline, subject: Subject) -> None:
    """A real server's words about a real conflict, which quote the value."""
    sink = subject.open()
    sink.setup()
    secret = "x-secret-4711"
    [answer] = sink.write(VIEW, [Item("1", 8, orjson.dumps({"n": secret}))])
    assert answer.outcome is Outcome.REJECTED and secret in str(answer.reason), "the server quotes no more?"
    one = letter("1", str(answer.reason), document=orjson.dumps({"n": secret}))
    text = TEXT.format(name=pipeline.name, kafka=pipeline.kafka.bootstrap, values="false")
    send(letters_config(loads(text, "p.yaml")), [one])
    raw = LetterLog(pipeline).raw(pipeline.dead_letter_topic, 0, 0)
    assert raw is not None and raw.value is not None and secret.encode() not in raw.value
    kept = DeadLetter.from_json(raw.value)
    assert kept.reason.startswith("400 document_parsing_exception, field [n]") and kept.document is None
    assert kept.document_bytes == len(orjson.dumps({"n": secret}))


def test_a_letter_of_more_than_the_topic_takes_is_cut(pipeline: Pipeline) -> None:
    """A broker counts what it gets: of what can't be compressed, all of it, and what stands around it."""
    text = TEXT.format(name=f"{pipeline.name}s", kafka=pipeline.kafka.bootstrap, values="true")
    small = loads(text.replace("kafka: {", "kafka: {max_message_bytes: 100000, "), "p.yaml")
    kafka, documents = Kafka(small), {"a": secrets.token_bytes(500_000), "b": secrets.token_hex(200_000).encode()}
    kafka.create(dead_letter_topic(small))
    try:
        send(letters_config(small), [letter(key, document=document) for key, document in documents.items()])
        log = LetterLog(small)
        for _, logged in log.follow():
            whole, document = log.whole(logged.at), documents[logged.letter.key]
            assert whole is not None and whole.document and document.startswith(whole.document)
            assert whole.document_bytes == len(document) and len(whole.document) > 50_000
        assert keys(log).keys() == documents.keys()
    finally:
        kafka.delete([small.dead_letter_topic])


def test_letters_of_what_is_gone_are_forgotten(pipeline: Pipeline) -> None:
    other = letter("a", sink="other")
    send(letters_config(pipeline), [letter("a"), letter("b"), letter("c", generation=2), letter("d", table="t"), other])
    forget_written(pipeline, "cache", 1, "v", iter("abcd"), iter("b"))
    left = LetterLog(pipeline)
    assert sorted((one.letter.sink, one.letter.key) for _, one in left.follow()) == [
        ("cache", "b"),
        ("cache", "c"),
        ("cache", "d"),
        ("other", "a"),
    ]
    forget_sinks(pipeline, ["cache"])
    left.follow()
    assert [one.letter for _, one in left.book] == [replace(other, document=None, document_bytes=7)]


def test_records_and_their_transactions_are_found_by_their_places(pipeline: Pipeline) -> None:
    topic, kafka = f"{pipeline.name}.public.t", Kafka(pipeline)
    kafka.create(Topic(topic, 1, 1, {}))
    try:
        producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap})
        for transaction in (7, 8):
            source = {"txId": transaction, "snapshot": "false"}
            producer.produce(topic, key=b'{"id":1}', value=orjson.dumps({"source": source}))
        assert producer.flush(30) == 0
        now = int(time.time() * 1000)
        at: dict[str, Any] = {"topic": topic, "partition": 0, "at_ms": now}
        send(
            letters_config(pipeline),
            [
                letter("a", offset=0, **at),
                letter("b", offset=1, **at),
                letter("c", offset=5, **at),
                letter("d", tx_id=9, at_ms=now),
                letter("e", offset=1, version=4, **at),
                letter("f", tx_id=9, at_ms=1),  # of a write that nobody waits for any more
            ],
        )
        places = {*((topic, 0, offset) for offset in (0, 1, 2, -1)), (f"{topic}.gone", 0, 0), (topic, 3, 0)}
        assert LetterLog(pipeline).raws(places).keys() == {(topic, 0, 0), (topic, 0, 1)}
        told = RejectedWrites(pipeline).told("cache", [1])
        assert {one.key: of for one, of in told} == {"a": 7, "b": 8, "c": None, "d": 9, "e": 8}
    finally:
        kafka.delete([topic])


def test_the_topic_is_read_from_a_moment_on(pipeline: Pipeline) -> None:
    producer, now = Producer({"bootstrap.servers": pipeline.kafka.bootstrap}), int(time.time() * 1000)

    def write(key: str, at_ms: int) -> None:
        one = letter(key, at_ms=at_ms)
        producer.produce(pipeline.dead_letter_topic, key=one.record_key(), value=one.to_json(), timestamp=at_ms)
        assert producer.flush(30) == 0

    for number in range(5):
        write(f"old{number}", now - 3_600_000 + number)
    log = LetterLog(pipeline, since_ms=now - 1_000)
    assert keys(log) == {}
    write("new", now)
    assert keys(log) == {"new": "no"}, "nothing was so new when it began"
    assert keys(LetterLog(pipeline, since_ms=now - 1_000)) == {"new": "no"}
    assert keys(LetterLog(pipeline, since_ms=now - 3_600_000 + 3)).keys() == {"old3", "old4", "new"}
    log.again()
    assert keys(log) == {"new": "no"} and len(keys(LetterLog(pipeline))) == 6
