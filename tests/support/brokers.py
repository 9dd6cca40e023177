"""Brokers that answer what a test says, and count what they are asked."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError as Refusal
from confluent_kafka import KafkaException


class Brokers:
    """In place of an ``AdminClient``: topics with their first and end offsets.

    Args:
        topics: topic -> partition -> (first offset, end).

    Attributes:
        requests: what was asked for, one for each question.
        leaderless: partitions that do not answer.
        hidden: topics that this user may not see.
        away: whether none of them answers.
    """

    def __init__(self, topics: dict[str, dict[int, tuple[int, int]]]) -> None:
        self.topics, self.requests, self.away = topics, list[str](), False
        self.leaderless: set[tuple[str, int]] = set()
        self.hidden: set[str] = set()

    def poll(self, _seconds: float) -> int:
        """It has nothing to say besides."""
        return 0

    def describe_topics(self, asked: Any, request_timeout: float) -> dict[str, Future[Any]]:
        """As librdkafka does it."""
        self.requests.append("describe")
        return {name: self._described(name) for name in asked.topic_names}

    def list_offsets(self, asked: Any, isolation_level: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        """As librdkafka does it."""
        self.requests.append("offsets")
        assert isolation_level.name == "READ_COMMITTED"
        return {place: self._offset(place, spec) for place, spec in asked.items()}

    def _described(self, name: str) -> Future[Any]:
        if self.away:
            return failed(Refusal._TIMED_OUT)
        if name in self.hidden:
            return failed(Refusal.TOPIC_AUTHORIZATION_FAILED)
        if name not in self.topics:
            return failed(Refusal.UNKNOWN_TOPIC_OR_PART)
        return done(SimpleNamespace(partitions=[SimpleNamespace(id=part) for part in self.topics[name]]))

    def _offset(self, place: Any, spec: Any) -> Future[Any]:
        if (place.topic, place.partition) in self.leaderless:
            return failed(Refusal.LEADER_NOT_AVAILABLE)
        first, end = self.topics[place.topic][place.partition]
        return done(SimpleNamespace(offset=first if "earliest" in type(spec).__name__.lower() else end))


def done(value: Any) -> Future[Any]:
    """An answer that is there."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def failed(code: int) -> Future[Any]:
    """A refusal that is there."""
    future: Future[Any] = Future()
    future.set_exception(KafkaException(Refusal(code)))
    return future
