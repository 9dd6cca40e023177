"""SQL over a table whose unread part of the log was compacted: no place is claimed, and no deleted row shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import orjson
import pytest

from cdc.errors import TooLate
from cdc.log.client import Kafka
from cdc.log.ends import Offsets
from cdc.log.slices import Slice, SliceReader
from cdc.records.encoding import JSON
from connectors.ledger import LedgerEntry
from operations.query.complete import COMPACTED, AsOf, Ends, committed, written_after
from operations.query.tables import Held, Name
from operations.query.tail import refuse_late
from spark.disk.filling import FillState, save
from spark.log_gaps import unread_since
from spark.reading.spec import FlowSpec
from spark.unread import Mark, Unread

HOUR, DAY = 3600.0, 86400.0


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


# -- with what the log has besides -------------------------------------------------------------------------------------

HELD = Held(Name("lake", "thing"), 1, "m", 7, 0, ("id",), {}, 1, cast(Any, None))
SPEC = FlowSpec("lake", {}, {"t": ()}, {}, {}, {})
WEEK = 7 * DAY


def refuse(log: Log, applied: int, since: float | None, held: Held = HELD, spec: FlowSpec = SPEC) -> None:
    parts = [Slice("t", 0, applied, log.end)] if applied < log.end else []
    refuse_late(cast(SliceReader, log), held, spec, parts, since, WEEK)


# A hot table that nobody has followed for ten days: a row was deleted on the first, event and tombstone are gone.
TEN_DAYS = Log(Record(4, 50, 10 * DAY), Record(700, 899, DAY), end=901)


@pytest.mark.parametrize("log", [TEN_DAYS, Log(Record(4, 50, 10 * DAY), end=8)], ids=["young ones left", "none left"])
@pytest.mark.parametrize("since", [time.time() - 10 * DAY, None], ids=["long ago", "not known"])
def test_a_tail_in_which_deletes_may_be_forgotten_is_refused_however_young_what_is_left_of_it(
    log: Log, since: float | None
) -> None:
    with pytest.raises(TooLate, match="may be older than what that remembers of deletes"):
        refuse(log, 5, since)


def test_who_can_have_missed_no_delete_is_not_refused() -> None:
    long_ago = time.time() - 30 * DAY
    refuse(TEN_DAYS, 5, time.time() - 6 * DAY)  # its flow has caught up since
    refuse(TEN_DAYS, 901, long_ago)  # it lacks nothing: nothing was written for weeks
    refuse(Log(Record(4, 50, 30 * DAY), Record(5, 60, 60), end=6), 5, long_ago)  # what comes next is there, and young
    refuse(Log(Record(4, 50, DAY), Record(7, 60, 60), end=8), 5, None)  # what was applied last is young
    refuse(TEN_DAYS, 5, long_ago, SimpleNamespace(**vars(HELD) | {"snapshot": None}))  # type: ignore[arg-type]
    refuse(TEN_DAYS, 5, long_ago, spec=FlowSpec("lake", {}, {"t": ()}, {}, {}, {}, events=frozenset("t")))


def test_how_old_what_a_flow_has_not_read_may_be(tmp_path: Path) -> None:
    assert unread_since(tmp_path) is None  # it has not run on this machine
    commits = tmp_path / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    (commits / "3").write_text("v1\n{}")
    assert unread_since(tmp_path) == (commits / "3").stat().st_mtime
    (tmp_path / "unread.json").write_text(Unread((Mark(2, 100.0), Mark(3, 200.0), Mark(4, 300.0))).to_json())
    assert unread_since(tmp_path) == 200.0
    (commits / "3").unlink()
    (tmp_path / "unread.json").unlink()
    save(tmp_path, FillState("s", "a", "t", True, {}, {}, begun=50.0))
    assert unread_since(tmp_path) == 50.0


def test_the_log_tells_how_old_a_part_of_it_may_be() -> None:
    log = Log(Record(4, 50, 3 * HOUR), Record(7, 60, HOUR), end=9)

    def age(start: int | None) -> float:
        return round((time.time() - written_after(cast(SliceReader, log), Slice("t", 0, start, 9))) / HOUR)

    assert [age(4), age(5), age(7), age(8)] == [3, 3, 1, 1]
    assert written_after(cast(SliceReader, log), Slice("t", 0, None, 9)) == 0
    assert written_after(cast(SliceReader, log), Slice("t", 0, 30, 40)) == 0
