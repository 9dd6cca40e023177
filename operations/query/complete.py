"""Through which commit of the source a table is complete: from the slot, the log's ends, and what it lacks of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Message

from cdc.ages import at_least
from cdc.errors import DecodeError, HeadwaterError, SourceError
from cdc.log.client import Kafka
from cdc.log.ends import Offsets, reached
from cdc.log.slices import Slice, SliceReader, slices
from cdc.records.debezium_json import STREAMED
from cdc.records.encoding import Encoding
from cdc.records.position import format_lsn
from connectors.ledger import LedgerEntry
from operations.freshness.log import SourceLog

# Records that are looked at, for one that says which commit came before it, and for rows of a snapshot.
LOOK = 1_000
# Offsets just before a place among which one has a record: a transaction's marker takes one.
NEAR = 10
COMPACTED = "the log may have been compacted behind the table's place: records that it lacks may be gone"
# How long a transaction of Connect's may be under way, which ends with each of its polls, and between two looks.
SETTLE_SECONDS, AGAIN_SECONDS = 5.0, 0.01


@dataclass(frozen=True)
class AsOf:
    """As of when something is.

    Attributes:
        lsn: everything that was committed at or before it is in it, in bytes; None where that is not known.
        reason: why it is not.
    """

    lsn: int | None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For a report."""
        return {"lsn": None if self.lsn is None else format_lsn(self.lsn), "reason": self.reason}


def together(all_of: Iterable[AsOf]) -> AsOf:
    """Of several tables: what is in all of them. Pure."""
    found = list(all_of)
    unknown = next((one for one in found if one.lsn is None), None)
    known = [one.lsn for one in found if one.lsn is not None]
    return unknown or AsOf(min(known) if known else None, None if known else "no table was asked")


@dataclass(frozen=True)
class Ends:
    """Where the log ends.

    Attributes:
        entry: the ends, and through which commit they are complete.
        trouble: why that is not known; the ends are right.
    """

    entry: LedgerEntry
    trouble: str | None = None

    def of(self, topics: Collection[str]) -> AsOf:
        """As of when the log is, up to these ends."""
        silent = next((why for topic in sorted(topics) if (why := self.entry.silent.get(topic))), None)
        missing = next((f"topic {topic} is not there" for topic in topics if topic not in self.entry.offsets), None)
        why = self.trouble or silent or missing
        return AsOf(None, why) if why else AsOf(self.entry.lsn)


def read_ends(source: SourceLog, kafka: Kafka, topics: Collection[str]) -> Ends:
    """The log's ends now; without Postgres nobody knows what commit they belong to.

    Raises:
        KafkaUnavailable: no answer (transient).
    """
    try:
        look = source.look(())
        confirmed = look.standing.confirmed_lsn
        if look.history is None or confirmed is None:
            why = "the database is a standby, or its slot is gone, or `headwater apply` has not been run"
            return Ends(_plainly(kafka, topics), why)
        entry = source.entry(confirmed, topics)
    except SourceError as error:
        return Ends(_plainly(kafka, topics), error.what)
    settled, whole = _settled(kafka, entry.offsets)
    if not whole:
        why = f"a transaction of Kafka Connect has not ended for {SETTLE_SECONDS:g} s"
        return Ends(LedgerEntry(0, {**settled, **_plainly(kafka, topics).offsets}, entry.silent, entry.ids), why)
    entry = LedgerEntry(entry.lsn, settled, entry.silent, entry.ids)
    # Of silent topics it says nothing, but what they hold is read nevertheless.
    more = _plainly(kafka, entry.silent.keys() & set(topics)) if entry.silent.keys() & set(topics) else None
    offsets = {**entry.offsets, **(more.offsets if more else {})}
    return Ends(LedgerEntry(entry.lsn, offsets, entry.silent, entry.ids))


def _settled(kafka: Kafka, goal: Offsets) -> tuple[dict[str, dict[int, int]], bool]:
    """The ends of what can be read, once they are at those of what was written: a marker of a transaction takes some
    milliseconds to be in all partitions. And whether they are."""
    counts, until = {topic: len(parts) for topic, parts in goal.items()}, time.monotonic() + SETTLE_SECONDS
    while True:
        found = kafka.ends(counts)
        if reached(found, goal) or time.monotonic() > until:
            return found, reached(found, goal)
        time.sleep(AGAIN_SECONDS)


def _plainly(kafka: Kafka, topics: Collection[str]) -> LedgerEntry:
    counts = {topic.name: topic.partitions for topic in kafka.describe(topics).values()}
    return LedgerEntry(0, kafka.ends(counts))


def committed(
    ends: Ends, kafka: Kafka, reader: SliceReader, encoding: Encoding, topics: Collection[str], applied: Offsets
) -> AsOf:
    """As of when a table is that has applied its topics through some offsets.

    Where it lacks nothing, as the log is. Else the first record of each partition that it lacks says which commit came
    before its own: transactions are in the log in the order of their commits, so all up to that one are in the table.
    The first that is left says so only if compaction has taken none before it.

    Args:
        ends: of the log.
        kafka: the brokers.
        reader: of the log.
        encoding: of the records.
        topics: of the table.
        applied: topic -> partition -> the next offset.
    """
    whole = ends.of(topics)
    if whole.lsn is None:
        return whole
    found = [whole.lsn]
    try:
        for part in slices({topic: ends.entry.offsets[topic] for topic in topics}, applied):
            lacking = reader.read([part])
            first = commit_before(lacking, encoding, part.start or 0)
            lacking.close()  # type: ignore[attr-defined]
            if first.gap and _may_be_compacted(kafka, reader, part):
                return AsOf(None, COMPACTED)
            if first.changes and first.lsn is None:
                return AsOf(None, "rows of a snapshot wait for the table: it is being filled, or read again")
            found += [] if first.lsn is None else [first.lsn]
    except HeadwaterError as error:
        return AsOf(None, error.what)
    return AsOf(min(found))


class Before(NamedTuple):
    """What the records that a table lacks say.

    Attributes:
        lsn: the last commit before the first of them, in bytes; None where it does not say that, or rows of a snapshot
            are among the next: they were there long before the changes that were streamed around them.
        changes: whether one of them is no tombstone. Of a tombstone that comes first the table has the delete.
        gap: before the first there are offsets that no record has, or there is none: of a transaction's marker, or of
            records that compaction has taken.
    """

    lsn: int | None
    changes: bool
    gap: bool


def commit_before(messages: Iterable[Message], encoding: Encoding, start: int) -> Before:
    """The last commit before the first record that a table lacks.

    Args:
        messages: what it lacks of a partition.
        encoding: of the records.
        start: the offset at which that begins.
    """
    first, changes, gap, looked = None, False, False, 0
    for looked, message in enumerate(messages, start=1):
        value = message.value()
        if not changes:
            gap = gap or message.offset() != start + looked - 1
            first = None if value is None else before(value, encoding)
            changes = value is not None
        elif value is not None and _is_read(value, encoding):
            first = None
        if looked >= LOOK or (changes and first is None):
            break
    return Before(first, changes, gap or not looked)


def written_after(reader: SliceReader, part: Slice) -> float:
    """Nothing of a part was written before this (epoch seconds), as far as the log tells; 0 where it does not.

    A record at its very beginning tells by itself. If none is there (it was compacted, or is a transaction's marker),
    the next one that is left says nothing of those that are gone; but one just before the part does: all behind it is
    younger.
    """
    start, stamp = part.start or 0, 0
    near = reader.read([replace(part, start=max(start - NEAR, 0) or None)])
    for message in near:
        offset = message.offset() or 0
        if offset <= start:
            stamp = message.timestamp()[1]
        if offset >= start:
            break
    near.close()  # type: ignore[attr-defined]
    return stamp / 1000


def _may_be_compacted(kafka: Kafka, reader: SliceReader, part: Slice) -> bool:
    """Whether records may be gone from a part that later ones of their keys have superseded."""
    topic = kafka.describe([part.topic]).get(part.topic)
    if topic is not None and "compact" not in topic.config.get("cleanup.policy", ""):
        return False  # one of events, of which each stays
    spared_ms = float(topic.config.get("min.compaction.lag.ms", 0)) if topic is not None else 0.0
    return at_least(written_after(reader, part), time.time()) >= spared_ms / 1000


def _is_read(value: bytes, encoding: Encoding) -> bool:
    """Whether a record is a row that a snapshot has read. Pure."""
    try:
        return encoding.loads(value)["source"]["snapshot"] not in STREAMED
    except (ValueError, KeyError, TypeError, DecodeError):
        return False


def before(value: bytes, encoding: Encoding) -> int | None:
    """The commit before an event's own, in bytes; None of a row that a snapshot has read, or of no event. Pure."""
    try:
        source: Mapping[str, Any] = encoding.loads(value)["source"]
        if source["snapshot"] not in STREAMED:
            return None
        first = orjson.loads(source["sequence"] or "[null]")[0]
        return None if first is None else int(first)
    except (ValueError, KeyError, TypeError, IndexError, DecodeError):
        return None
