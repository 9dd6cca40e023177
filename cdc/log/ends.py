"""How far a flow is behind the log: committed offsets in its checkpoint against the log's ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.waits import waiting_for

# A status command must answer even when the brokers do not.
TIMEOUT_SECONDS = 5.0

Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Lag:
    """How far behind.

    Attributes:
        events: records between the committed offsets and the log's end (compaction may have removed some of them).
        seconds: age of the oldest record not yet applied; 0 when there is none.
    """

    events: int
    seconds: float


class LogEnds:
    """Reads the log's ends; keep one open while asking often.

    Args:
        bootstrap: Kafka brokers.
        client: librdkafka options.
    """

    def __init__(self, bootstrap: str, client: Mapping[str, str]) -> None:
        self._consumer = Consumer(
            {
                **client,
                "bootstrap.servers": bootstrap,
                "group.id": "headwater-status",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        # Who asks for many flows, one after the other, must not wait for silent brokers as often.
        self._silent_until, self._said = 0.0, ""

    @property
    def silence(self) -> str:
        """Why the brokers did not answer when they were last asked; empty if they did, or were not asked."""
        return self._said

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """End offsets of every partition of ``topics``.

        Raises:
            KafkaError: the brokers do not answer in time (transient), or a topic does not exist.
        """
        return self.bounds(topics)[1]

    @waiting_for("Kafka: where its topics end")
    def bounds(self, topics: Iterable[str]) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
        """The first offset that the log still has, and the end offset, of every partition of ``topics``.

        Raises:
            KafkaError: as ``ends``.
        """
        if time.monotonic() < self._silent_until:
            raise KafkaUnavailable(self._said)
        try:
            known = self._consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
            self._said = ""
            first: dict[str, dict[int, int]] = {}
            ends: dict[str, dict[int, int]] = {}
            for topic in topics:
                if topic not in known:
                    raise KafkaError(f"topic {topic} does not exist", fix="run `headwater apply FILE`")
                found = {part: self._bounds(topic, part) for part in known[topic].partitions}
                first[topic] = {part: low for part, (low, _) in found.items()}
                ends[topic] = {part: high for part, (_, high) in found.items()}
            return first, ends
        except KafkaException as error:
            self._said = f"Kafka does not answer: {error.args[0].str()}"
            self._silent_until = time.monotonic() + TIMEOUT_SECONDS
            raise KafkaUnavailable(self._said) from error

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_SECONDS)
        return low, high

    def lag(self, ends: Offsets, committed: Offsets) -> Lag:
        """Compare; asks Kafka for the age of the first record of each partition that is behind."""
        behind = _behind(ends, committed)
        events = sum(ends[at.topic][at.partition] - at.offset for at in behind)
        return Lag(events, self._age(behind) if behind else 0.0)

    def written_since(self, ends: Offsets, committed: Offsets) -> float | None:
        """When the oldest record was written that is not committed yet (epoch seconds); None if that is not certain.

        Certain is what each partition's next offset tells by itself: if the record there is gone, so may others be that
        were older than the next one which is left.
        """
        behind = _behind(ends, committed)
        found = self._first(behind)
        stamps = [found.get((at.topic, at.partition), (-1, 0)) for at in behind]
        if any(offset != at.offset or stamp <= 0 for at, (offset, stamp) in zip(behind, stamps, strict=True)):
            return None
        return min((stamp for _, stamp in stamps), default=time.time() * 1000) / 1000

    def _age(self, behind: list[TopicPartition]) -> float:
        stamps = [stamp for _, stamp in self._first(behind).values()]
        return max(0.0, time.time() - min(stamps) / 1000) if stamps else 0.0

    @waiting_for("Kafka: how old the next records are")
    def _first(self, behind: list[TopicPartition]) -> dict[tuple[str | None, int | None], tuple[int, int]]:
        """The next record of each partition that has one: offset and time (epoch milliseconds)."""
        self._consumer.assign(behind)
        until = time.monotonic() + TIMEOUT_SECONDS
        seen: dict[tuple[str | None, int | None], tuple[int, int]] = {}
        while len(seen) < len(behind) and time.monotonic() < until:
            message = self._consumer.poll(0.2)
            if message is None or message.error():
                continue
            at = (message.offset() or 0, message.timestamp()[1])
            seen.setdefault((message.topic(), message.partition()), at)
        self._consumer.unassign()
        return seen


def removed(first: Offsets, committed: Offsets) -> tuple[str, int, int] | None:
    """Topic, partition and place of who would read on where the log has nothing left; None if it has all. Pure.

    Args:
        first: the first offsets that the log still has.
        committed: where is read on.
    """
    for topic, parts in committed.items():
        for part, at in parts.items():
            if at < first.get(topic, {}).get(part, 0):
                return topic, part, at
    return None


def _behind(ends: Offsets, committed: Offsets) -> list[TopicPartition]:
    return [
        TopicPartition(topic, part, committed.get(topic, {}).get(part, 0))
        for topic, parts in ends.items()
        for part, end in parts.items()
        if committed.get(topic, {}).get(part, 0) < end
    ]


def reached(committed: Offsets, goal: Offsets) -> bool:
    """Whether ``committed`` is at or past ``goal`` in every partition."""
    return all(committed.get(t, {}).get(p, 0) >= end for t, parts in goal.items() for p, end in parts.items())
