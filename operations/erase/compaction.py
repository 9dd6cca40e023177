"""A topic is compacted now, and what was superseded is gone: its segments are closed, cleaned, and unlinked.

Three settings are others meanwhile, and are always put back (``operations.erase.note``). In this order: ``segment.ms``
first, and back before the next, so that nothing newer is closed; then ``min.compaction.lag.ms``, which spares what is
younger than the moment at which the segments were closed; who reads the topic has read all before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from cdc.ages import at_least
from cdc.errors import EraseUnfinished
from cdc.log.client import Kafka
from cdc.log.rolling import touch
from cdc.saying import Say
from operations.erase.note import TOPICS, Note, Settings

# A broker learns of a setting a moment after it was accepted.
SETTLE_SECONDS = 1.0
# Its clock, or that of whoever wrote the newest record, may be ahead of ours by so much.
CLOCK_SECONDS = 2.0
# A cleaner looks for work every `log.cleaner.backoff.ms` (15 s unless somebody said otherwise): after so long without
# any effect the segments are closed once more.
ROUND_SECONDS = 60.0
LOOK_SECONDS, SAY_SECONDS = 1.0, 5.0
# A cleaned segment's former file is unlinked so much later; a broker's own default is a minute.
UNLINK_MS = 1000
CLOSING = {"segment.ms": "1"}
CLEANING = {"min.cleanable.dirty.ratio": "0", "file.delete.delay.ms": str(UNLINK_MS)}
LAG = "min.compaction.lag.ms"


def compact(
    kafka: Kafka,
    note: Note,
    topic: str,
    keys: Mapping[int, bytes],
    left: Callable[[], int],
    closed: Callable[[], None],
    say: Say,
    seconds: float,
) -> None:
    """Have a topic compacted until nothing of what it should lose is left.

    Args:
        kafka: the brokers.
        note: where settings are written down.
        topic: its name.
        keys: the partitions that matter, each with a key that has no row.
        left: how many records are still there.
        closed: called when the segments are closed, before anything is compacted; waits for who must read them first.
        say: told a line now and then.
        seconds: for how long at the most.

    Raises:
        EraseUnfinished: something is left by then (transient); the topic's settings are as they were.
        KafkaError, KafkaUnavailable: refused, or no answer.
    """
    until = time.monotonic() + seconds
    were = settings_of(kafka, topic, [*CLOSING, *CLEANING, LAG])
    with note.changed(TOPICS, topic, were, kafka.alter):
        while count := left():
            if time.monotonic() > until:
                raise EraseUnfinished(
                    f"topic {topic} still holds {count} records after {seconds:.0f} s of compaction",
                    means="its brokers' log cleaner has not come to them; what was erased elsewhere is erased",
                    fix="the same again goes on; look at the brokers (log.cleaner.enable, log.cleaner.backoff.ms)",
                )
            at = _close(kafka, topic, keys, were)
            closed()
            _await(kafka, topic, at, left, say, min(until, time.monotonic() + ROUND_SECONDS))
        time.sleep(2 * UNLINK_MS / 1000)


def settings_of(kafka: Kafka, topic: str, names: Collection[str]) -> dict[str, str | None]:
    """A topic's own settings; None where the broker's count, or there is no such topic."""
    found = kafka.describe([topic]).get(topic)
    return {name: None if found is None else found.config.get(name) for name in names}


def _close(kafka: Kafka, topic: str, keys: Mapping[int, bytes], were: Settings) -> float:
    """Close the open segments; when that was (epoch seconds)."""
    kafka.alter(topic, CLOSING)
    time.sleep(SETTLE_SECONDS)
    at = time.time()
    for partition, key in keys.items():
        touch(kafka, topic, partition, key)
    kafka.alter(topic, {name: were[name] for name in CLOSING})
    time.sleep(SETTLE_SECONDS)
    return at


def _await(kafka: Kafka, topic: str, at: float, left: Callable[[], int], say: Say, until: float) -> None:
    told = time.monotonic() + 2.0
    while time.monotonic() < until:
        # It grows with the time that passes, so that it always means the same moment.
        lag = at_least(at + CLOCK_SECONDS, time.time())
        kafka.alter(topic, {**CLEANING, LAG: str(int(lag * 1000))})
        time.sleep(LOOK_SECONDS)
        if not (count := left()):
            return
        if time.monotonic() > told:
            say(f"topic {topic}: waiting for compaction, {count} records are left")
            told = time.monotonic() + SAY_SECONDS
