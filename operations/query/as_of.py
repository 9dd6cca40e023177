"""Through which commit of the source a table is complete: from the slot, the log's ends, and what it lacks of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import Message

from cdc.errors import DecodeError, HeadwaterError, SourceError
from cdc.log.client import Kafka
from cdc.log.ends import Offsets, reached
from cdc.log.slices import SliceReader, slices
from cdc.records.debezium_json import STREAMED
from cdc.records.encoding import Encoding
from cdc.records.position import format_lsn
from connectors.ledger import LedgerEntry
from operations.freshness.log import SourceLog

# Records that are looked at, for one that says which commit came before it, and for rows of a snapshot.
LOOK = 1_000
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


def committed(ends: Ends, reader: SliceReader, encoding: Encoding, topics: Collection[str], applied: Offsets) -> AsOf:
    """As of when a table is that has applied its topics through some offsets.

    Where it lacks nothing, as the log is. Else the first record of each partition that it lacks says which commit came
    before its own: transactions are in the log in the order of their commits, so all up to that one are in the table.

    Args:
        ends: of the log.
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
            before, records = commit_before(lacking, encoding)
            lacking.close()  # type: ignore[attr-defined]
            if records and before is None:
                return AsOf(None, "rows of a snapshot wait for the table: it is being filled, or read again")
            found += [] if before is None else [before]
    except HeadwaterError as error:
        return AsOf(None, error.what)
    return AsOf(min(found))


def commit_before(messages: Iterable[Message], encoding: Encoding) -> tuple[int | None, int]:
    """(the last commit before the first record that is no tombstone, in bytes; how many were looked at).

    None where that record does not say it, or a row of a snapshot is among the next: it was there long before the
    changes that were streamed around it.
    """
    first, records = None, 0
    for message in messages:
        records += 1
        value = message.value()
        if value is not None and first is None:
            first = before(value, encoding)
            if first is None:
                return None, records
        elif value is not None and _is_read(value, encoding):
            return None, records
        if records >= LOOK:
            break
    return first, records


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
