"""Matches sent to a webhook and to a topic by a process that is killed, on real servers: each once, by its id."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.log.client import Kafka, Topic
from operations.push.health import push_report
from operations.push.letters import WantedLetters, list_letters, send_letters
from operations.push.webhooks import Webhooks
from operations.standing.sending import sending_of
from operations.standing.watch import matching
from tests.support.receiver import SECRET, Receiver
from tests.support.sent_matches import Process, in_topic, matches_of, once, shown, written
from tests.support.servers import servers
from tests.support.sinks import VIEW, subject_on
from tests.support.source import eventually
from tests.support.standing import StandingWorld

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

PUSH = """, push: {{
  hook: {{url: "{url}", secret: {secret}, batch: 7}},
  big_only: {{topic: "{topic}", queries: [big], batch: 5}}}}"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, receiver: Receiver) -> Iterator[StandingWorld]:
    stack = servers()
    stack.up(["kafka"])
    with subject_on(stack, "redis") as cache, subject_on(stack, "opensearch") as search:
        more = PUSH.format(url=receiver.url, secret=SECRET, topic=f"{cache.name}-matches")
        made = StandingWorld(cache, search, tmp_path, more=more, kafka=stack.endpoints.kafka)
        try:
            yield made
        finally:
            made.close()
            Kafka(made.pipeline).delete([f"{cache.name}-matches"])


def matched(document: dict[str, Any]) -> set[str]:
    """Which of the queries a document must match."""
    return {name for name, so in (("big", document["n"] >= 50), ("word", document["t"] == "blue")) if so}


def told_once(records: list[tuple[str, Any]]) -> None:
    """Of each query and each version of a document at most one event."""
    named = [
        (data["key"], data["version"], query, data["cause"])
        for event, data in records
        if event == "match"
        for query in data["queries"]
    ]
    assert not [one for one, times in Counter(named).items() if times > 1]


def test_matches_come_to_a_webhook_and_a_topic_each_once_by_its_id_though_the_sender_is_killed(
    world: StandingWorld, receiver: Receiver
) -> None:
    chance, topic = random.Random(5), f"{world.cache.name}-matches"
    documents = {f"k{number}": {"n": number, "t": "blue"} for number in range(40, 60)}
    world.put("big", range={"n": {"gte": 50}})
    world.put("word", match={"t": "blue"})
    world.write(1, **documents)
    with closing(world.matching()) as matcher:
        matcher.until_idle()  # so that there is a snapshot
    process, versions = Process(world), count(2)

    def killed() -> int:
        process.kill()
        return 200

    def write(number: int) -> None:
        documents[f"k{number}"] = {"n": chance.randrange(100), "t": chance.choice(["blue", "red"])}
        world.write(next(versions), **{f"k{number}": documents[f"k{number}"]})

    try:
        receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()), 60)
        assert eventually(lambda: "ready" in {one.value["event"] for one in written(world.pipeline, topic)})
        for _ in range(2):
            receiver.answers.append(killed)
            for _ in range(15):
                write(chance.randrange(40, 60))
            receiver.until(lambda: not receiver.answers and process.ended, 60)
            process.start(writes=2)
            while not process.ended:
                write(chance.randrange(40, 60))
                time.sleep(0.1)
            process.start()
        truth = {key: matched(document) for key, document in documents.items() if matched(document)}
        assert eventually(lambda: matches_of((one.name, one.data) for one in receiver.taken()) == truth)
        truth = {key: {"big"} for key, names in truth.items() if "big" in names}
        assert eventually(lambda: in_topic(written(world.pipeline, topic)) == truth)
        assert eventually(lambda: {one["state"] for one in push_report(world.pipeline)} == {"delivering"})
    finally:
        process.kill()
    told_once([(one.name, one.data) for one in receiver.taken()])
    assert len({post.id for post in receiver.posts}) < len(receiver.posts), "a batch came again, with its id"
    records = written(world.pipeline, topic)
    assert len(once(records)) < len(records), "records came again, with their ids"
    told_once(shown(once(records)))
    assert {one.value["event"] for one in records} == {"reset", "snapshot", "ready", "match"}
    assert all(one.key == one.value["data"]["key"] for one in records if one.value["event"] in ("match", "snapshot"))
    assert {one.partition for one in records if one.key == ""} == {0, 1}, "everybody is told to forget"
    found = {(one["name"], one["view"], one["sends"], one["to"]) for one in push_report(world.pipeline)}
    assert found == {("hook", VIEW, "matches", "webhook"), ("big_only", VIEW, "matches", "topic")}


def test_a_record_that_a_topic_does_not_take_is_a_letter_and_is_written_later(world: StandingWorld) -> None:
    topic, kafka = f"{world.cache.name}-matches", Kafka(world.pipeline)
    kafka.create(Topic(topic, 1, 1, {"max.message.bytes": "3000"}))  # somebody's own, with another count of partitions
    world.put("big", range={"n": {"gte": 50}})
    running = SimpleNamespace(pipeline=world.pipeline, only=(), paused={})

    def keys() -> list[str]:
        return [one.key for one in written(world.pipeline, topic) if one.value["event"] == "match"]

    with matching(running), Webhooks(lambda: (world.pipeline, {"cache"}), print, sending_of):
        assert eventually(lambda: "ready" in {one.value["event"] for one in written(world.pipeline, topic)})
        world.write(1, large={"n": 60, "s": random.Random(1).randbytes(4_000).hex()})
        assert eventually(lambda: len(list_letters(world.pipeline, WantedLetters(["big_only"]))["letters"]) == 1)
        world.write(2, small={"n": 70})
        assert eventually(lambda: keys() == ["small"])
    report = send_letters(world.pipeline, WantedLetters(["big_only"]))
    assert report["left"] == 1 and "larger than the topic takes" in report["why"][0]["why"]
    kafka.alter(topic, {"max.message.bytes": "100000"})
    assert eventually(lambda: send_letters(world.pipeline, WantedLetters(["big_only"]))["left"] == 0)
    assert keys() == ["small", "large"]


@pytest.mark.fault
@pytest.mark.alone
@pytest.mark.sampled
def test_a_topic_whose_brokers_are_killed_gets_all_once_they_are_back(world: StandingWorld) -> None:
    stack, topic = servers(), f"{world.cache.name}-matches"
    world.put("big", range={"n": {"gte": 50}})
    running = SimpleNamespace(pipeline=world.pipeline, only=(), paused={})
    versions, documents = count(1), dict[str, dict[str, Any]]()

    def write(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            version = next(versions)
            documents[f"k{version % 20}"] = {"n": version % 100}
            world.write(version, **{f"k{version % 20}": documents[f"k{version % 20}"]})
            time.sleep(0.02)

    def report() -> dict[str, Any]:
        return next(one for one in push_report(world.pipeline) if one["name"] == "big_only")

    with matching(running), Webhooks(lambda: (world.pipeline, {"cache"}), print, sending_of):
        assert eventually(lambda: report()["state"] == "delivering")
        write(2)
        stack.kill("kafka")
        write(3)
        assert eventually(lambda: report()["state"] == "failing")
        stack.up(["kafka"])
        write(2)
        truth = {key: {"big"} for key, document in documents.items() if document["n"] >= 50}
        assert eventually(
            lambda: report()["state"] == "delivering" and in_topic(written(world.pipeline, topic)) == truth
        )
    told_once(shown(once(written(world.pipeline, topic))))
