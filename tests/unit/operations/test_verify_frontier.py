"""Waiting for a sink under a steady writer: whoever gets nearer is waited for, and told of; who stands still is not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.view import View
from connectors.ledger import LedgerEntry
from operations.opened import Opened
from operations.pace import LINE_SECONDS, Pace, left_of, pace
from operations.status import frontier
from operations.status.frontier import NOBODY_KNOWS, Frontier
from spark.disk.state import Generation
from tests.support.trees import table


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(frontier, "time", made)
    return made


def waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lefts: Any, said: list[str] | None = None) -> Frontier:
    """A frontier whose flow is so far from the entry at each look."""
    view = View.identity(table("t", "id", id="int4"))
    pipeline: Any = SimpleNamespace(sinks={"s": SimpleNamespace(form="document")})
    opened = Opened(pipeline, Generation(tmp_path, "p", "s", 1), [view], 0)
    made = Frontier(opened, view, None, (said if said is not None else []).append)
    monkeypatch.setattr(made, "_entry", lambda lsn: LedgerEntry(lsn, {"t": {0: 1000}}))
    monkeypatch.setattr(made, "_left", lambda entry: next(lefts))
    return made


def test_a_sink_that_gets_nearer_is_waited_for_beyond_the_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock
) -> None:
    slow = waiting(monkeypatch, tmp_path, iter([(left, 0) for left in range(400, 0, -1)] + [(0, 0)]))
    assert slow.wait(8, clock.now + 2.0)
    assert clock.now > 100 + 90, "it took far longer than the two seconds for which it may stand still"


def test_one_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock) -> None:
    def lefts() -> Any:
        yield from ((50, 0), (40, 0))
        while True:  # others write on, and it never gets nearer than it was
            yield from ((41, 0), (40, 0), (70, 0))

    assert not waiting(monkeypatch, tmp_path, lefts()).wait(8, clock.now + 2.0)
    assert clock.now < 105


def test_deferred_documents_are_waited_for_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock
) -> None:
    fans = [(3, 0), (0, NOBODY_KNOWS), *((0, left) for left in range(200, -1, -1))]
    assert waiting(monkeypatch, tmp_path, iter(fans)).wait(8, clock.now + 2.0)


def test_how_far_an_entry_is() -> None:
    entry = LedgerEntry(8, {"a": {0: 10, 1: 5}, "b": {0: 3}})
    assert entry.behind({}) == 18
    assert entry.behind({"a": {0: 12, 1: 4}, "b": {0: 3}}) == 1
    assert entry.behind({"a": {0: 10, 1: 5}, "b": {0: 9}}) == 0


def test_long_work_says_how_far_it_is_and_how_long_it_will_take() -> None:
    clock, said = Clock(), list[str]()
    told = Pace(said.append, "rows compared", clock.monotonic)
    for step in range(1, 5):
        clock.sleep(LINE_SECONDS / 2)
        told.at(1000 * step, 10_000)
    assert said == [
        "  2,000 of about 10,000 rows compared (20%), 200/s, 40 s left",
        "  4,000 of about 10,000 rows compared (40%), 300/s, 20 s left",
    ]
    clock.sleep(LINE_SECONDS)
    told.at(11_000, 10_000)
    assert said[-1] == "  11,000 of about 11,000 rows compared", "an estimate that was too low"
    assert [left_of(seconds) for seconds in (5, 119, 600, 7200)] == [
        "5 s left",
        "119 s left",
        "10 min left",
        "2.0 h left",
    ]
    assert pace(0, 100, 0, 5) == pace(100, 100, 100, 5) == ""
