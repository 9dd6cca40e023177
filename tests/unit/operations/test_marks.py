"""Moments of an hour and hundreds of topics: what they answer, held against all of them, and what they cost."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

import pytest

from connectors.ledger import LedgerEntry
from operations.freshness.marks import APART_SECONDS, KEPT, RECENT_SECONDS, Mark, Marks


class _All:
    """Every moment, with an entry of its own, searched as ``Marks`` once did: all of them at each question."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def note(self, at: float, lsn: int) -> None:
        if self.marks and self.marks[-1].lsn == lsn:
            self.marks[-1] = replace(self.marks[-1], at=at)
        else:
            self.marks.append(Mark(at, lsn))

    def last(self) -> LedgerEntry | None:
        return next((mark.entry for mark in reversed(self.marks) if mark.entry is not None), None)

    def bound(self) -> float | None:
        return next((mark.at for mark in reversed(self.marks) if mark.entry is not None), None)

    def confirm(self, entry: LedgerEntry) -> None:
        self.marks = [
            Mark(mark.at, mark.lsn, entry) if mark.entry is None and mark.lsn <= entry.lsn else mark
            for mark in self.marks
        ]

    def newest(self, reached: Callable[[LedgerEntry], bool]) -> float | None:
        alike: dict[object, list[tuple[float, LedgerEntry]]] = {}
        for mark in self.marks:
            if mark.entry is not None:
                kind = frozenset(mark.entry.silent), frozenset(mark.entry.ids.items())
                alike.setdefault(kind, []).append((mark.at, mark.entry))
        ends = [(known, bisect_left(known, True, key=lambda one: not reached(one[1]))) for known in alike.values()]
        return max((known[end - 1][0] for known, end in ends if end), default=None)


def _entry(lsn: int, silent: bool = False, made: int = 0, topics: int = 3) -> LedgerEntry:
    """Of topics the first is written all the time; the last may be silent, or made anew."""
    ends = {f"t{number}": {0: number if number else lsn} for number in range(topics)}
    ids = {topic: f"{topic}-{made if topic == f't{topics - 1}' else 0}" for topic in ends}
    if silent:
        last = f"t{topics - 1}"
        ends.pop(last)
        ids.pop(last)
        return LedgerEntry(lsn, ends, {last: f"table {last} is still being read"}, ids)
    return LedgerEntry(lsn, ends, {}, ids)


def _reached(lsn: int, made: int) -> Callable[[LedgerEntry], bool]:
    applied = {"t0": {0: lsn}, "t1": {0: 1}, "t2": {0: 2}}
    mine = {"t0": "t0-0", "t1": "t1-0", "t2": f"t2-{made}"}
    return lambda entry: entry.offsets.keys() >= mine.keys() and entry.ids == mine and not entry.behind(applied)


@pytest.mark.parametrize("seed", range(4))
def test_of_the_last_minutes_every_moment_is_told_and_of_older_ones_none_too_young(seed: int) -> None:
    rng = random.Random(seed)
    marks, everything, now, lsn, made = Marks(), _All(), 1_000.0, 0, 0
    told, silent, stands = False, 0, 0
    for _ in range(1_600):
        now += rng.choice((0.25, 1.0, 1.0, 3.0))
        lsn += rng.randrange(0, 9)
        for one in (marks, everything):
            one.note(now, lsn)
        made += rng.random() < 0.005
        silent = silent - 1 if silent else rng.randrange(20, 60) * (rng.random() < 0.005)
        stands = stands - 1 if stands else rng.randrange(100, 400) * (rng.random() < 0.005)
        if rng.random() < 0.8 and not stands:
            entry = _entry(lsn - rng.choice((0, 0, 5)), silent > 0, made)
            for one in (marks, everything):
                one.confirm(entry)
        reached = _reached(lsn - rng.choice((0, 0, 2, 60, 400, 3_000)), rng.choice((made, max(made - 1, 0))))
        exact, found = everything.newest(reached), marks.newest(reached)
        # However long the slot stands: what a flow lacks is measured by the newest ends that are known.
        assert (marks.last(), marks.bound) == (everything.last(), everything.bound())
        if exact is None:
            assert found is None
        elif now - exact <= RECENT_SECONDS:
            assert found == exact
        else:
            told = told or exact != found
            assert found is not None and exact - APART_SECONDS <= found <= exact
    assert told, "none was thinned out"


def test_topics_that_come_and_go_are_alike_again() -> None:
    """A sink that can't be looked at now and then made a kind of its own of each moment."""
    marks, asked = Marks(), list[LedgerEntry]()
    for at in range(1, 101):
        marks.note(float(at), at)
        marks.confirm(_entry(at, topics=2 + at % 2))
    assert marks.newest(lambda entry: bool(asked.append(entry)) or entry.lsn < 50) == 49.0
    assert len(asked) < 20


def test_of_what_is_alike_one_is_kept_however_many_moments_there_are() -> None:
    """Each held all names, ids and ends, and a question compared all of them: with fifty tables and as many flows more
    than a processor after an hour."""
    marks = Marks()
    for at in range(1, 201):
        marks.note(float(at), at)
        marks.confirm(_entry(at, topics=50))
    entries = {id(mark.entry): mark.entry for mark in marks._marks if mark.entry is not None}
    assert len(entries) > 100
    assert len({id(entry.ids) for entry in entries.values()}) == 1
    assert len({id(entry.silent) for entry in entries.values()}) == 1
    assert len({id(entry.offsets["t7"]) for entry in entries.values()}) == 1
    assert [entry.offsets["t0"] for entry in entries.values()] == [{0: entry.lsn} for entry in entries.values()]


def test_the_same_ends_are_kept_once() -> None:
    """Of a database at rest heartbeats move the place in its log, and nothing else."""
    marks = Marks()
    for at in range(1, 11):
        marks.note(float(at), at)
        marks.confirm(LedgerEntry(at, {"t": {0: 7}}, {}, {"t": "x"}))
    assert len({id(mark.entry.offsets) for mark in marks._marks if mark.entry}) == 1


def test_an_hour_of_moments_is_some_hundreds_and_reaches_back_all_of_it() -> None:
    marks = Marks()
    for at in range(100_000, 103_600):
        marks.note(float(at), at)
        marks.confirm(LedgerEntry(at, {"t": {0: at}}))
    assert len(marks._marks) < 600
    assert marks.newest(lambda entry: entry.lsn < 100_050) == pytest.approx(100_050, abs=APART_SECONDS)


def test_also_while_somebody_waits_all_the_time_they_reach_back_an_hour() -> None:
    marks = Marks()
    for quarter in range(400_000, 400_000 + 4 * 3_700):
        marks.note(quarter / 4, quarter)
        marks.confirm(LedgerEntry(quarter, {"t": {0: quarter}}))
    assert len(marks._marks) <= KEPT
    mark = marks._marks[0]
    assert 103_700.0 - mark.at > 3_600


def test_also_while_topics_come_and_go_they_reach_back_an_hour() -> None:
    marks = Marks()
    for at in range(100_000, 103_700):
        marks.note(float(at), at)
        marks.confirm(_entry(at, topics=2 + at % 2))
    assert len(marks._marks) < KEPT and 103_700 - marks._marks[0].at > 3_600


def test_moments_that_wait_for_a_slot_are_thinned_out_too() -> None:
    """A connector was dead for an hour: once it is back, what it has come to is told within the same seconds."""
    marks = Marks()
    for at in range(100_000, 103_600):
        marks.note(float(at), at)
    assert len(marks._marks) < 600 and marks.bound is None
    marks.confirm(LedgerEntry(101_000, {"t": {0: 7}}))
    assert marks.bound == pytest.approx(101_000, abs=APART_SECONDS)
    assert marks.bound <= 101_000 and marks.wanting(103_600)
