"""How far a flow is behind the log: committed offsets in its checkpoint against the log's ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as Refusal
from confluent_kafka.admin import AdminClient

from cdc.ages import at_least
from cdc.errors import KafkaError, KafkaUnavailable
from cdc.log.asking import offsets_asked
from cdc.log.client import PARTITION_EOF
from cdc.log.opening import Heard, opened, watched
from cdc.log.refusals import denied, translate
from cdc.waits import waiting_for

# A status command must answer even when the brokers do not.
TIMEOUT_SECONDS = 5.0

Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Lag:
    """How far behind.

    Attributes:
        events: records between the committed offsets and the log's end (compaction may have removed some of them).
        seconds: age of the oldest record not yet applied; 0 when there is none, None when not every partition that is
            behind has told its next record: the oldest may be there.
    """

    events: int
    seconds: float | None


@dataclass
class _Bounds:
    """A topic's first and end offsets by partition, or why they are not known."""

    first: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    wrong: KafkaError | None = None


class LogEnds:
    """Reads the log's ends; keep one open while asking often.

    Args:
        bootstrap: Kafka brokers.
        client: librdkafka options.

    Raises:
        ConfigError: librdkafka does not take them (terminal).
    """

    def __init__(self, bootstrap: str, client: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        self._heard = Heard()
        self._settings = watched({**client, "bootstrap.servers": bootstrap}, self._heard)
        self._admin = opened(AdminClient, self._settings)
        self._consumer: Consumer | None = None
        self._kept: dict[str, _Bounds] = {}
        # Who asks for many flows, one after the other, must not wait for silent brokers as often.
        self._silent_until = 0.0
        self._said: KafkaError | None = None

    @property
    def silence(self) -> str:
        """Why the brokers did not answer when they were last asked; empty if they did, or were not asked."""
        return "" if self._said is None else self._said.what

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()

    def keep(self, topics: Iterable[str]) -> None:
        """Ask for all of these at once, and answer of them from now on as they are now: for a report on many flows.

        Where the brokers do not answer nothing is kept: each question is told so by itself.
        """
        with suppress(KafkaError):
            self._kept |= self._asked(sorted(set(topics)))

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """End offsets of every partition of ``topics``.

        Raises:
            KafkaError: the brokers do not answer in time or refuse whoever asks (transient), or a topic is not there.
        """
        return self.bounds(topics)[1]

    def bounds(self, topics: Iterable[str]) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
        """The first offset that the log still has, and the end offset, of every partition of ``topics``.

        Raises:
            KafkaError: as ``ends``.
        """
        names = list(topics)
        found = self._kept | self._asked([name for name in names if name not in self._kept])
        for name in names:
            if (wrong := found[name].wrong) is not None:
                raise wrong.with_traceback(None)
        return {name: found[name].first for name in names}, {name: found[name].ends for name in names}

    @waiting_for("Kafka: where its topics end")
    def _asked(self, topics: Sequence[str]) -> dict[str, _Bounds]:
        """Three questions, however many topics and partitions they are.

        Raises:
            KafkaUnavailable, KafkaRefused: no answer, or the brokers refuse whoever asks (transient).
        """
        if not topics:
            return {}
        if self._said is not None and time.monotonic() < self._silent_until:
            raise self._said.with_traceback(None)
        try:
            found, parts = self._partitions(topics)
            self._said = None
            self._heard.let_in(self._admin)
            asked = [offsets_asked(self._admin, parts, TIMEOUT_SECONDS, first=first) for first in (True, False)]
        except KafkaException as error:
            raise self._silent(error) from error
        for first, answers in zip((True, False), asked, strict=True):
            for (topic, part), future in answers:
                bounds = found[topic]
                try:
                    (bounds.first if first else bounds.ends)[part] = int(future.result().offset)
                except KafkaException as error:  # of one partition that has no leader: the others' are known
                    bounds.wrong = self._silent(error)
        return found

    def _partitions(self, topics: Sequence[str]) -> tuple[dict[str, _Bounds], dict[str, list[int]]]:
        """The topics, and the partitions of those that are there."""
        found, parts = {name: _Bounds() for name in topics}, {}
        asked = TopicCollection(sorted(found))
        for name, future in self._admin.describe_topics(asked, request_timeout=TIMEOUT_SECONDS).items():
            try:
                parts[name] = [one.id for one in future.result().partitions]
            except KafkaException as error:
                if denied(error.args[0]):
                    found[name].wrong = translate(f"topic {name}", error, self._bootstrap)
                elif error.args[0].code() == Refusal.UNKNOWN_TOPIC_OR_PART:
                    found[name].wrong = KafkaError(f"topic {name} does not exist", fix="run `headwater apply FILE`")
                else:
                    raise
        return found, parts

    def _silent(self, error: KafkaException) -> KafkaError:
        self._heard.catch_up(self._admin)
        refusal = self._heard.refusal("the ends of topics", self._bootstrap)
        self._said = refusal or KafkaUnavailable(f"Kafka does not answer: {error.args[0].str()}")
        self._silent_until = time.monotonic() + TIMEOUT_SECONDS
        return self._said

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
        stamps = [found.get((at.topic, at.partition)) or (-1, 0) for at in behind]
        if any(offset != at.offset or stamp <= 0 for at, (offset, stamp) in zip(behind, stamps, strict=True)):
            return None
        return min((stamp for _, stamp in stamps), default=time.time() * 1000) / 1000

    def _age(self, behind: list[TopicPartition]) -> float | None:
        found = self._first(behind)
        stamps = [at[1] for at in found.values() if at is not None]
        if len(found) < len(behind):
            return None
        return at_least(min(stamps) / 1000, time.time()) if stamps else 0.0

    @waiting_for("Kafka: how old the next records are")
    def _first(self, behind: list[TopicPartition]) -> dict[tuple[str | None, int | None], tuple[int, int] | None]:
        """The next record of each partition: offset and time (epoch milliseconds); None of one that has none left, as
        where all is compacted, or a transaction's mark. Of partitions that did not answer in time nothing.

        Raises:
            KafkaError: a topic may not be read: as if there were nothing, its lag would be 0 s (terminal).
        """
        if self._consumer is None:
            own = {"group.id": "headwater-status", "enable.auto.commit": False, "isolation.level": "read_committed"}
            # A place before the log's first offset would be led to the end, as if nothing were left.
            own |= {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
            self._consumer = opened(Consumer, {**self._settings, **own})
        self._consumer.assign(behind)
        until = time.monotonic() + TIMEOUT_SECONDS
        seen: dict[tuple[str | None, int | None], tuple[int, int] | None] = {}
        while len(seen) < len(behind) and time.monotonic() < until:
            message = self._consumer.poll(0.2)
            error = None if message is None else message.error()
            if message is not None and error is not None and denied(error):
                self._consumer.unassign()
                raise translate(f"reading topic {message.topic()}", KafkaException(error), self._bootstrap)
            if message is None or (error is not None and error.code() != PARTITION_EOF):
                continue
            at = None if error is not None else (message.offset() or 0, message.timestamp()[1])
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


def lacking(ends: Offsets, committed: Offsets) -> list[tuple[str, int, int, int]]:
    """Topic, partition, place and the log's end, where somebody has read further than the log goes. Pure.

    Args:
        ends: where the log ends; asked for after ``committed`` was read, or it may only have grown meanwhile.
        committed: where is read on.
    """
    return [
        (topic, part, at, end)
        for topic, parts in committed.items()
        for part, at in parts.items()
        if at > (end := ends.get(topic, {}).get(part, at))
    ]


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
