"""Where the log ends: asked for all topics at once, and of each what it said."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import KafkaError as CoreError

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.log import ends
from cdc.log.client import PARTITION_EOF
from cdc.log.ends import LogEnds
from tests.support.brokers import Brokers

TOPICS = {f"t{number}": {part: (number, 10 * number + part) for part in range(4)} for number in range(50)}
ROUND = ["describe", "offsets", "offsets"]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers(dict(TOPICS))
    monkeypatch.setattr(ends, "AdminClient", lambda _settings: made)
    return made


def test_all_topics_and_partitions_are_three_questions(brokers: Brokers) -> None:
    """Each partition was one, and each call had the whole cluster's metadata beside."""
    log = LogEnds("h:1", {})
    assert log.bounds(TOPICS) == (
        {name: {part: at[0] for part, at in parts.items()} for name, parts in TOPICS.items()},
        {name: {part: at[1] for part, at in parts.items()} for name, parts in TOPICS.items()},
    )
    assert brokers.requests == ROUND
    assert log.bounds([]) == ({}, {}) and brokers.requests == ROUND


def test_what_is_kept_is_not_asked_for_again(brokers: Brokers) -> None:
    log = LogEnds("h:1", {})
    log.keep(["t1", "t2", "gone", "t1"])
    brokers.topics |= {"t1": {0: (0, 999)}}
    assert log.ends(["t1"]) == {"t1": {0: 10, 1: 11, 2: 12, 3: 13}} and log.ends(["t2"])["t2"][0] == 20
    for _ in range(2):
        with pytest.raises(KafkaError, match="topic gone does not exist") as told:
            log.ends(["t1", "gone"])
        assert not told.value.transient
    assert brokers.requests == ROUND and log.silence == ""
    assert log.ends(["t1", "t3"]) == {"t1": {0: 10, 1: 11, 2: 12, 3: 13}, "t3": {0: 30, 1: 31, 2: 32, 3: 33}}
    assert brokers.requests == ROUND * 2
    other = LogEnds("h:1", {})
    assert other.ends(["t1"]) == other.ends(["t1"]) == {"t1": {0: 999}}
    assert brokers.requests == ROUND * 4, "who keeps nothing asks each time"


def test_one_partition_without_a_leader_leaves_the_others_known(brokers: Brokers) -> None:
    brokers.leaderless = {("t2", 3)}
    log = LogEnds("h:1", {})
    log.keep(TOPICS)
    assert log.ends(["t1"])["t1"][0] == 10
    with pytest.raises(KafkaUnavailable, match="Kafka does not answer"):
        log.ends(["t2"])
    assert log.silence.startswith("Kafka does not answer")


def test_brokers_that_are_away_are_told_to_each_and_asked_once(brokers: Brokers) -> None:
    brokers.away = True
    log = LogEnds("h:1", {})
    log.keep(["t1", "t2"])
    for name in ("t1", "t2"):
        with pytest.raises(KafkaUnavailable, match="Kafka does not answer"):
            log.ends([name])
    assert brokers.requests == ["describe"]


def told(part: int, stamp: int = 0, error: int | None = None) -> Any:
    """What a consumer hands out: a record, or what librdkafka has to say of a partition."""
    said = None if error is None else CoreError(error)
    answers: dict[str, Any] = {"topic": "t", "partition": part, "offset": 5, "error": said, "timestamp": (1, stamp)}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in answers.items()})


def seconds(monkeypatch: pytest.MonkeyPatch, *messages: Any) -> float | None:
    """How far behind who has read up to 5 of 10 of two partitions is said to be, as brokers say this and no more."""
    left = list(messages)

    def opened(settings: dict[str, Any]) -> Any:
        assert settings["enable.partition.eof"] is True
        return SimpleNamespace(
            assign=lambda _: None, unassign=lambda: None, poll=lambda _: left.pop(0) if left else None
        )

    monkeypatch.setattr(ends, "Consumer", opened)
    monkeypatch.setattr(ends, "TIMEOUT_SECONDS", 0.05)
    lag = LogEnds("h:1", {}).lag({"t": {0: 10, 1: 10}}, {"t": {0: 5, 1: 5}})
    assert lag.events == 10
    return lag.seconds


def test_the_age_of_what_waits_is_not_known_before_every_partition_has_told(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that were slow: "lag 1,000, behind 0.0 s"; where one had answered, its age was that of all."""
    then = round((time.time() - 60) * 1000)
    assert seconds(monkeypatch) is None
    assert seconds(monkeypatch, told(0, then)) is None
    assert seconds(monkeypatch, told(0, then), told(1, error=CoreError._TRANSPORT)) is None
    assert seconds(monkeypatch, told(0, then), told(1, then + 9_000)) == pytest.approx(60, abs=5)


def test_a_partition_in_which_nothing_is_left_keeps_no_age_unknown(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All there is compacted, or a transaction's mark; who asked waited for it for 5 s, each time."""
    then = round((time.time() - 60) * 1000)
    gone = told(1, error=PARTITION_EOF)
    assert seconds(monkeypatch, gone, told(0, then)) == pytest.approx(60, abs=5)
    assert seconds(monkeypatch, gone, told(0, error=PARTITION_EOF)) == 0.0


def test_a_place_before_the_logs_beginning_has_what_is_left_to_read() -> None:
    """The log's end was looked at, where nothing is: "lag 52, behind 0.0 s"."""
    producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "linger.ms": 5})
    brokers = ",".join(f"{one.host}:{one.port}" for one in producer.list_topics(timeout=5).brokers.values())
    for _ in range(120):  # more than librdkafka's brokers keep
        producer.produce("t", b"x" * 100_000, partition=0, timestamp=int((time.time() - 3_600) * 1_000))
    assert producer.flush(20) == 0
    asking = Consumer({"bootstrap.servers": brokers, "group.id": "g"})
    first, end = asking.get_watermark_offsets(TopicPartition("t", 0), timeout=5)
    asking.close()
    log = LogEnds(brokers, {})
    assert first > 1 and log.lag({"t": {0: end}}, {"t": {0: first}}).seconds == pytest.approx(3_600, abs=60)
    lost = {"t": {0: 1}}
    assert log.lag({"t": {0: end}}, lost).seconds == pytest.approx(3_600, abs=60)
    assert log.written_since({"t": {0: end}}, lost) is None, "what is gone may have been older"
    log.close()
