"""After a refused record nothing is filled from the row before it, until a record comes that leaves nothing out."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest

from cdc.catalogue import Column, Table
from cdc.join.rows import write
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from cdc.letters.deadletter import DeadLetter
from operations.letters.judge import _later
from sinks.rowstore import key_names
from spark.join.records import COMPUTED
from tests.support.refusing import BAD, HOUR, PLACEHOLDER, TABLE, Reading, Record


def begun(**row: Any) -> Reading:
    """A row with both large values."""
    reading = Reading()
    assert reading.batch(reading.record("c", day=1, a="a0", b="b0", **row)) == []
    return reading


def left_out(reading: Reading, day: int, age: float = 5) -> Record:
    """An update that leaves out both large values."""
    return reading.record("u", age, day=day, a=PLACEHOLDER, b=PLACEHOLDER)


def test_a_late_record_that_was_refused() -> None:
    reading = begun()
    reading.now += 3 * HOUR
    reading.offset += 1  # it set `a`, and was compacted away
    assert reading.batch(left_out(reading, 2, age=2.9 * HOUR)) == [3]
    reading.now += HOUR
    assert reading.batch(left_out(reading, 3)) == [4]
    assert reading.row() == {"id": 1, "day": 1, "a": "a0", "b": "b0"}
    assert reading.batch(reading.record("u", day=4, a="a1", b="b0"), left_out(reading, 5)) == []
    assert reading.batch(left_out(reading, 6)) == []
    assert reading.row() == {"id": 1, "day": 6, "a": "a1", "b": "b0"}


@pytest.mark.parametrize("op", ["u", "?"], ids=["a bad value", "no event of the table"])
def test_one_that_could_not_be_read(op: str) -> None:
    reading = begun()
    assert reading.batch(reading.record(op, day=BAD, a="a1", b="b1")) == [2]
    assert reading.batch(left_out(reading, 3)) == [3]
    assert reading.batch(reading.record("u", day=4, a="a4", b=PLACEHOLDER)) == [4]
    assert reading.batch(reading.record("u", day=5, a="a4", b="b5")) == []
    assert reading.batch(left_out(reading, 6)) == []


def test_the_newest_that_was_refused_is_kept() -> None:
    reading = begun()
    for records in (("u", "u"), ("?",)):
        reading.batch(*[reading.record(op, day=BAD, a="a1", b="b1") for op in records], left_out(reading, 3))
        stored = reading.stored()
        assert stored is not None and stored.stamp.offset == 1
        assert stored.refused is not None and stored.refused.offset == reading.offset
    assert reading.batch(left_out(reading, 4)) == [reading.offset]
    stored = reading.stored()
    assert stored is not None and stored.refused is not None and stored.refused.offset == reading.offset
    assert reading.letters == [*range(2, reading.offset + 1)]


@pytest.mark.parametrize("op", ["u", "?"], ids=["a bad value", "no event of the table"])
@pytest.mark.parametrize("first", [False, True], ids=["live", "in a fill"])
def test_within_one_batch(op: str, first: bool) -> None:
    reading = Reading()
    whole, bad = reading.record("c", day=1, a="a0", b="b0"), reading.record(op, day=BAD, a="a1", b="b1")
    assert reading.batch(whole, bad, left_out(reading, 3), first=first) == [2, 3]
    assert reading.row() == {"id": 1, "day": 1, "a": "a0", "b": "b0"}
    assert reading.batch(left_out(reading, 4)) == [4]
    assert reading.batch(reading.record("u", day=5, a="a5", b="b5"), left_out(reading, 6)) == []
    assert reading.row() == {"id": 1, "day": 6, "a": "a5", "b": "b5"}


def test_two_updates_that_hold_one_value_each_make_a_whole_one() -> None:
    reading = begun()
    reading.batch(reading.record("u", day=BAD, a="a1", b="b1"))
    one = reading.record("u", day=3, a="a3", b=PLACEHOLDER)
    assert reading.batch(one, reading.record("u", day=4, a=PLACEHOLDER, b="b4")) == []
    assert reading.row() == {"id": 1, "day": 4, "a": "a3", "b": "b4"}


PARENTS = Table("public", "p", (Column("id", "integer", "int4"),), ("id",))


def of_parents() -> Reading:
    """Rows below others, one of whose aggregates names ``a``; ``b`` is shown."""
    long = Aggregate("long", TABLE, (("id", "day"),), "count", where="length(a) > 3")
    child = Node("t", "child", TABLE, (("id", "day"),), (("b", "b"),))
    root = Node("v", "root", PARENTS, (), (("id", "id"),), (), (child,), (long,))
    return Reading(JoinedView("v", PARENTS, ("id",), root.columns, root=root))


def test_one_that_an_aggregate_names_a_large_value_of() -> None:
    reading = of_parents()
    more = {COMPUTED.format(reading.view.layout.tables[TABLE.qualified].number, 0): {"v": "1"}}

    def update(op: str, a: str, b: str) -> Record:
        return reading.record(op, more=more, day=7, a=a, b=b)

    assert reading.batch(update("c", "a0", "b0")) == []
    assert reading.batch(update("u", PLACEHOLDER, "b1")) == [2]
    assert reading.batch(update("u", "a2", PLACEHOLDER)) == [3]  # it was filled with b0
    assert reading.batch(update("u", "a3", "b3")) == [] == reading.batch(update("u", "a4", PLACEHOLDER))


def test_a_refused_record_that_is_read_again_after_a_whole_one_refuses_nothing() -> None:
    reading = begun()
    bad, whole = reading.record("u", day=BAD, a="a1", b="b1"), reading.record("u", day=3, a="a3", b="b3")
    reading.batch(bad)
    reading.batch(whole)
    for again in ((bad,), (bad, whole), (whole,), (bad,)):
        reading.batch(*again)
        stored = reading.stored()
        assert stored is not None and stored.refused is None
    assert reading.batch(left_out(reading, 4)) == []


def test_one_that_is_read_again_before_it_changes_nothing() -> None:
    reading = begun()
    bad = reading.record("u", day=BAD, a="a1", b="b1")
    reading.batch(bad, ends=False)
    held = reading.stored()
    reading.batch(bad)
    assert reading.stored() == held
    assert reading.batch(left_out(reading, 4)) == [3]


def test_a_whole_record_that_changes_nothing_makes_it_good() -> None:
    reading = begun()
    reading.batch(reading.record("u", day=BAD, a="a0", b="b0"))
    assert reading.batch(reading.record("u", day=1, a="a0", b="b0")) == []
    assert reading.batch(left_out(reading, 4)) == []


def test_its_letter_stands_until_a_whole_record_has_come() -> None:
    reading = begun()

    def healed() -> bool:
        [value] = reading.store.get([key_names.row(0, "1")])
        letter = DeadLetter("s", "v", "1", 102, "bad", None, "t", 0, 2, table=TABLE.qualified)
        return value is not None and _later(value, letter)

    reading.batch(reading.record("u", day=BAD, a="a1", b="b1"))
    reading.batch(left_out(reading, 3))
    assert not healed()
    reading.batch(reading.record("u", day=1, a="a0", b="b0"))
    assert healed()


def test_of_a_row_without_refused_records_nothing_more_is_stored() -> None:
    reading = begun()
    reading.batch(left_out(reading, 2))
    stored = reading.stored()
    assert stored is not None and stored.refused is None
    assert stored.head + stored.body == write(stored.stamp, (), orjson.dumps(stored.row), stored.era)


# -- keys that change -------------------------------------------------------------------------------------------------


def taken_over(reading: Reading) -> list[Record]:
    """``DELETE … WHERE id = 1; UPDATE … SET id = 1 WHERE id = 2``: the create leaves out what the update did."""
    gone = [reading.record(op, id=key) for key in (1, 2) for op in "dt"]
    return [*gone, reading.record("c", day=7, a=PLACEHOLDER, b="b0")]


@pytest.mark.parametrize("lost", [0, 4], ids=["all in one batch", "the deletes were compacted away"])
def test_a_row_that_takes_over_a_key_gets_nothing_of_the_row_before(lost: int) -> None:
    reading = begun()
    reading.batch(reading.record("c", id=2, day=7, a="a2", b="b0"))
    records = taken_over(reading)[lost:]
    assert reading.batch(*records) == [7]
    assert reading.batch(left_out(reading, 8)) == [8]
    assert (reading.row() is None) == (lost == 0)
    assert reading.batch(reading.record("u", day=9, a="a9", b="b0"), left_out(reading, 10)) == []
    assert reading.row() == {"id": 1, "day": 10, "a": "a9", "b": "b0"}


@pytest.mark.parametrize("words", ["d", "t", "dt"])
def test_an_update_does_not_follow_a_deleted_row_of_its_batch(words: str) -> None:
    """Its create was refused, or compacted away."""
    reading = begun()
    assert reading.batch(*[reading.record(op) for op in words], left_out(reading, 3)) == [reading.offset]
    assert reading.row() is None


# -- any history ------------------------------------------------------------------------------------------------------

Row = dict[str, Any]


class Source:
    """A row's history: its records, those of them that the cleaner has left, and what the row was at each."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.number = reading, 0
        self.records: list[Record] = []
        self.truth: dict[int, Row | None] = {}
        self.row: Row | None = None

    def commit(self, kind: str, sets: set[str]) -> None:
        """A change that leaves large values out, or is ``whole``, or can't be read (``bad``), or a delete; a row that
        is not there comes whole, or from another key (``moved``)."""
        self.number += 1
        if kind == "delete":
            if self.row is not None:
                self.row = None
                self._emit("d", {"day": 0})
                self._emit("t", {})
            return
        if self.row is None and kind != "moved":
            kind = "whole"
        op, before = ("c", {"day": 0, "a": "", "b": ""}) if self.row is None else ("u", self.row)
        self.row = {**before, **{name: f"{name}{self.number}" for name in sets}, "day": self.number}
        told = {n: PLACEHOLDER if n in "ab" and n not in sets and kind != "whole" else v for n, v in self.row.items()}
        self._emit(op, told | ({"day": BAD} if kind == "bad" else {}))

    def _emit(self, op: str, row: Row) -> None:
        record = self.reading.record(op, **row)
        self.records.append(record)
        self.truth[record.offset] = self.row

    def clean(self, place: int) -> None:
        """Of the records that were not read yet the last one stays."""
        self.records[place:-1] = []


COMMITS = ("some", "some", "some", "bad", "whole", "moved", "delete")


def history(random: Random) -> None:
    """Commits, batches, crashes, and a reader that was away while the cleaner came; each batch is looked at."""
    reading = Reading()
    source, place = Source(reading), 0

    def read(back: int = 0, *, ends: bool = True) -> None:
        records = source.records[max(0, place - back) :]
        if records:
            reading.batch(*records, ends=ends)
        stored = reading.stored()
        if stored is not None:
            then = source.truth[stored.stamp.offset]
            assert reading.row() == (None if then is None else {"id": 1, **then})

    for _ in range(random.randrange(30)):
        reading.now += 100
        turn = random.random()
        if turn < 0.5:
            source.commit(random.choice(COMMITS), {name for name in "ab" if random.random() < 0.4})
        elif turn < 0.97:
            ends = random.random() < 0.8
            read(random.choice((0, 0, 1, 2, 4)), ends=ends)
            place = len(source.records) if ends else place
        else:
            reading.now += 3 * HOUR
            source.clean(place)
    read()
    place = len(source.records)
    reading.now += HOUR
    source.commit("whole", {"a", "b"})
    source.commit("some", set())
    read()
    assert reading.row() == {"id": 1, **(source.row or {})}


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_refused_or_read_again_a_stored_row_is_what_it_was_at_its_record(seed: int) -> None:
    for number in range(100):
        history(Random(f"{seed}.{number}"))


def test_the_letter_of_a_row_that_came_and_went_is_healed_by_its_delete() -> None:
    """Its row was deleted before: the second delete changes nothing that is stored but where it was."""
    reading = begun()
    assert reading.batch(reading.record("d")) == []
    assert reading.batch(reading.record("c", day=BAD, a="a1", b="b1")) == [3]
    assert reading.batch(reading.record("d")) == []
    stored = reading.stored()
    assert stored is not None and stored.row is None and stored.stamp.offset == 4
