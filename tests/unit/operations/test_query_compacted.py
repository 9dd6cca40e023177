"""SQL over a table whose unread part of the log was compacted: no place is claimed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import orjson
import pytest

from cdc.log.client import Kafka
from cdc.log.ends import Offsets
from cdc.log.slices import Slice, SliceReader
from cdc.records.encoding import JSON
from connectors.ledger import LedgerEntry
from operations.query.as_of import COMPACTED, AsOf, Ends, committed, written_after

HOUR = 3600.0


class Record(NamedTuple):
    at: int
    commit: int | None  # the one before its own; None of a tombstone
    age: float = 0.0
    snapshot: str | None = None


class Log:
    """One partition, as far as compaction has left it; what is asked for as a reader and as the brokers."""

    def __init__(self, *records: Record, end: int, lag: float = HOUR, policy: str = "compact") -> None:
        self.records, self.end = records, end
        self.config = {"cleanup.policy": policy, "min.compaction.lag.ms": str(int(lag * 1000))}

    def read(self, parts: list[Slice]) -> Iterator[Any]:
        [part] = parts
        for one in self.records:
            if (part.start or 0) <= one.at < part.end:
                stamp = int((time.time() - one.age) * 1000)
                source = {"snapshot": one.snapshot, "sequence": f'["{one.commit}","1"]', "lsn": 1}
                value = None if one.commit is None else orjson.dumps({"op": "u", "source": source})
                yield SimpleNamespace(
                    offset=lambda one=one: one.at, value=lambda value=value: value, timestamp=lambda s=stamp: (1, s)
                )

    def describe(self, names: list[str]) -> dict[str, Any]:
        return {name: SimpleNamespace(config=self.config) for name in names}

    def as_of(self, applied: int) -> AsOf:
        ends: Offsets = {"t": {0: self.end}}
        log = Ends(LedgerEntry(999, ends, {}))
        return committed(log, cast(Kafka, self), cast(SliceReader, self), JSON, ["t"], {"t": {0: applied}})


def test_the_first_record_that_is_left_is_not_taken_for_the_first_that_a_table_lacks() -> None:
    """The hot row's change at 5 (commit 100) went when a later one came; the first that is left is another row's."""
    weekend = Log(Record(4, 50, 60 * HOUR), Record(700, 899, 2 * HOUR), Record(900, 990), end=901)
    assert weekend.as_of(5) == AsOf(None, COMPACTED)
    assert weekend.as_of(700) == AsOf(899), "it is there, and so are all that follow it"
    assert weekend.as_of(901) == AsOf(999), "it lacks nothing"
    assert Log(Record(700, 899), end=901).as_of(0) == AsOf(None, COMPACTED), "nothing is left that tells how old it is"


def test_a_delete_whose_event_is_gone_is_not_passed_over() -> None:
    left_over = Log(Record(4, 50, 60 * HOUR), Record(6, None, 50 * HOUR), Record(7, 899, 2 * HOUR), end=8)
    assert left_over.as_of(5) == AsOf(None, COMPACTED)
    only = Log(Record(4, 50, 60 * HOUR), Record(6, None, 50 * HOUR), end=8)
    assert only.as_of(5) == AsOf(None, COMPACTED)
    none = Log(Record(4, 50, 600 * HOUR), end=8)
    assert none.as_of(5) == AsOf(None, COMPACTED), "the tombstone went too"


def test_of_a_tombstone_alone_a_table_has_the_delete() -> None:
    """A batch has ended between the two; no row of a snapshot waits."""
    assert Log(Record(4, 50, 60 * HOUR), Record(5, None, 60 * HOUR), end=7).as_of(5) == AsOf(999)
    assert Log(Record(5, None, 60 * HOUR), Record(6, 70, 60 * HOUR), end=8).as_of(5) == AsOf(70)


@pytest.mark.parametrize("there", [3, 4, 6])
def test_a_gap_that_is_younger_than_the_log_keeps_every_record_is_a_transactions_marker(there: int) -> None:
    """Every record behind a young one is younger still."""
    young = Log(Record(there, None if there == 6 else 50, HOUR / 2), Record(7, 899, 60), end=8)
    assert young.as_of(5 if there < 6 else 6) == AsOf(899)
    assert Log(Record(4, 50, HOUR / 2), Record(7, 899, 60), end=8, lag=HOUR / 4).as_of(5) == AsOf(None, COMPACTED)


def test_rows_of_a_snapshot_are_what_is_told_where_they_wait() -> None:
    told = Log(Record(5, 50, 0.0, "incremental"), end=6).as_of(5)
    assert told.lsn is None and "rows of a snapshot wait" in str(told.reason)


def test_a_topic_of_events_is_not_compacted() -> None:
    assert Log(Record(4, 50, 60 * HOUR), Record(7, 899, 2 * HOUR), end=8, policy="delete").as_of(5) == AsOf(899)


def test_the_log_tells_how_old_a_part_of_it_may_be() -> None:
    log = Log(Record(4, 50, 3 * HOUR), Record(7, 60, HOUR), end=9)

    def age(start: int | None) -> float:
        return round((time.time() - written_after(cast(SliceReader, log), Slice("t", 0, start, 9))) / HOUR)

    assert [age(4), age(5), age(7), age(8)] == [3, 3, 1, 1]
    assert written_after(cast(SliceReader, log), Slice("t", 0, None, 9)) == 0
    assert written_after(cast(SliceReader, log), Slice("t", 0, 30, 40)) == 0
