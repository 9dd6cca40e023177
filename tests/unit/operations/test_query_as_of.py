"""As of when a query over the warehouse is: through which offsets its tables are applied, and which commit that is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
from confluent_kafka import Message

from cdc.log.slices import Slice, slices
from cdc.records.encoding import JSON
from connectors.ledger import LedgerEntry
from operations.query.complete import AsOf, Ends, before, commit_before, together
from operations.query.tables import marks

# -- through which offsets a table is applied --------------------------------------------------------------------------


def snapshot(number: int, parent: int | None, offsets: str | None) -> Any:
    properties = {"headwater.offsets": offsets} if offsets else {}
    summary = SimpleNamespace(additional_properties=properties)
    return SimpleNamespace(snapshot_id=number, parent_snapshot_id=parent, summary=summary)


def test_marks_are_those_of_the_newest_snapshot_that_has_any() -> None:
    all_of = [snapshot(1, None, '{"t":{"0":1}}'), snapshot(2, 1, '{"t":{"0":7,"1":3}}'), snapshot(3, 2, None)]
    known = {one.snapshot_id: one for one in all_of}
    assert marks(all_of[2], known) == {"t": {0: 7, 1: 3}}
    assert marks(all_of[0], known) == {"t": {0: 1}}  # 2 and 3 were rolled back: they are none of its forebears
    assert marks(snapshot(4, 2, '{"shards":[1,2]}'), known) == {"t": {0: 7, 1: 3}}  # documents of a fan-out
    assert marks(None, {}) == {}
    assert marks(snapshot(9, 8, None), known) is None  # those that had some have expired


def test_slices_are_what_lies_between() -> None:
    ends = {"t": {0: 10, 1: 5}, "u": {0: 0}}
    assert slices(ends, {"t": {0: 4, 1: 5}}) == [Slice("t", 0, 4, 10)]
    assert slices(ends, {}) == [Slice("t", 0, None, 10), Slice("t", 1, None, 5)]


# -- as of when --------------------------------------------------------------------------------------------------------


def streamed(commit: int | None, lsn: int, snapshot: str | None = None) -> bytes:
    said = "null" if commit is None else f'"{commit}"'
    return orjson.dumps({"op": "u", "source": {"snapshot": snapshot, "sequence": f'[{said},"{lsn}"]', "lsn": lsn}})


def messages(*values: bytes | None) -> list[Message]:
    return [
        cast(Message, SimpleNamespace(value=lambda value=value: value, offset=lambda at=at: at))
        for at, value in enumerate(values)
    ]


def test_the_first_record_that_a_table_lacks_says_through_which_commit_it_is_complete() -> None:
    assert before(streamed(700, 650), JSON) == 700
    assert before(streamed(None, 650), JSON) is None  # the first transaction after a snapshot
    assert before(streamed(700, 650, "true"), JSON) is None  # a row that a snapshot has read
    assert before(b"no event", JSON) is None
    assert commit_before(messages(None, streamed(700, 2), streamed(800, 3)), JSON, 0) == (700, True, False)
    assert commit_before(messages(None), JSON, 0) == (None, False, False)


def test_a_table_that_lacks_rows_of_a_snapshot_is_not_as_new_as_the_first_change_behind_them() -> None:
    """It has none of those rows, and all of them were there when that change was made."""
    for snapshot in ("first", "true", "incremental"):
        lacking = messages(None, streamed(None, 1, snapshot), streamed(700, 2))
        assert commit_before(lacking, JSON, 0) == (None, True, False)
    # The first transaction after a snapshot: what came before it, it does not say, and the second says "the first".
    assert commit_before(messages(streamed(None, 2), streamed(650, 3)), JSON, 0) == (None, True, False)


def test_rows_of_a_snapshot_between_the_changes_that_a_table_lacks_are_seen() -> None:
    """A table that was captured later is read in chunks, between which changes of it are streamed."""
    lacking = messages(streamed(700, 2), streamed(None, 1, "incremental"), streamed(800, 3))
    assert commit_before(lacking, JSON, 0) == (None, True, False)
    assert commit_before(messages(streamed(700, 2), b"no event", streamed(800, 3)), JSON, 0) == (700, True, False)


def test_several_tables_are_as_old_as_the_oldest() -> None:
    assert together([AsOf(5), AsOf(3)]) == AsOf(3)
    assert together([AsOf(5), AsOf(None, "away")]) == AsOf(None, "away")
    assert together([]).lsn is None
    assert AsOf(0x16_B374D848).to_dict() == {"lsn": "16/B374D848", "reason": None}


def test_of_silent_topics_nothing_is_known() -> None:
    entry = LedgerEntry(9, {"t": {0: 1}, "u": {0: 1}}, {"u": "table u is still being read"})
    assert Ends(entry).of(["t"]) == AsOf(9)
    assert Ends(entry).of(["t", "u"]) == AsOf(None, "table u is still being read")
    assert Ends(entry).of(["w"]).reason == "topic w is not there"
    assert Ends(entry, "Postgres is away").of(["t"]) == AsOf(None, "Postgres is away")
