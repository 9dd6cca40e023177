"""Waiting for a sink under a steady writer: whoever gets nearer is waited for, and told of; who stands still is not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import HeadwaterError, SinkUnavailable
from cdc.join.view import JoinedView
from cdc.timed import MatchView
from cdc.view import View
from connectors.ledger import LedgerEntry
from operations.opened import Opened
from operations.pace import LINE_SECONDS, Pace, left_of, pace
from operations.verify import frontier
from operations.verify.frontier import NOBODY_KNOWS, Frontier
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
    assert slow.wait(8, clock.now + 2.0) == {"t": {0: 1000}}
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


class Store:
    """A row store that answers so, or not at all."""

    answer: int | HeadwaterError = 0
    closed = 0

    def __init__(self, _settings: object) -> None:
        pass

    def waiting(self) -> int:
        if isinstance(self.answer, HeadwaterError):
            raise self.answer
        return self.answer

    def close(self) -> None:
        Store.closed += 1


def left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, applied: int, *, view: object = None, live: bool = True
) -> tuple[int, int]:
    """How far a flow is that has applied so many of ten records."""
    plain = View.identity(table("t", "id", id="int4"))
    opened: Any = SimpleNamespace(
        generation=None, flow_folder=lambda _view: tmp_path, row_store=lambda _view, **_patience: None
    )
    made = Frontier(opened, cast(Any, plain if view is None else view), None)
    monkeypatch.setattr(frontier, "committed_offsets", lambda _folder: (0, {"t": {0: applied}}))
    monkeypatch.setattr(frontier, "is_live", lambda _folder: live)
    monkeypatch.setattr(frontier, "RedisRowStore", Store)
    return made._left(LedgerEntry(5, {"t": {0: 10}}))


def test_a_joined_view_has_caught_up_when_no_document_of_it_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    joined = JoinedView.__new__(JoinedView)
    assert left(monkeypatch, tmp_path, 7) == (3, 0)
    assert left(monkeypatch, tmp_path, 10) == (0, 0)
    answers: list[tuple[int | HeadwaterError, int]] = [(0, 0), (12, 12), (SinkUnavailable("it is away"), NOBODY_KNOWS)]
    for answer, still in answers:
        monkeypatch.setattr(Store, "answer", answer)
        assert left(monkeypatch, tmp_path, 10, view=joined) == (0, still)
    assert Store.closed == 3
    monkeypatch.setattr(Store, "answer", 0)
    assert left(monkeypatch, tmp_path, 7, view=joined) == (3, 0), "the log first"
    assert left(monkeypatch, tmp_path, 10, view=joined, live=False) == (0, NOBODY_KNOWS), "it is being filled"


@pytest.mark.parametrize(("watermark", "told"), [(7, 1), (9, 0), (10, 0)])
def test_absence_that_nobody_has_told_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, watermark: int, told: int
) -> None:
    alone = MatchView.__new__(MatchView)
    object.__setattr__(alone, "keep", "alone")
    monkeypatch.setattr(frontier, "Clocks", lambda _folder: SimpleNamespace(reached=lambda: (9_500, {})))
    monkeypatch.setattr(frontier, "committed_watermark", lambda _folder: watermark)
    assert left(monkeypatch, tmp_path, 10, view=alone) == (0, told)


@pytest.mark.parametrize(("confirmed", "there"), [(7, False), (None, False), (8, True), (9, True)])
def test_the_log_is_asked_only_once_the_slot_has_come_to_the_position(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, confirmed: int | None, *, there: bool
) -> None:
    pipeline: Any = SimpleNamespace(source=SimpleNamespace(slot="s"), sinks={"s": SimpleNamespace(form="document")})
    view = View.identity(table("t", "id", id="int4"))
    made = Frontier(
        Opened(pipeline, Generation(tmp_path, "p", "s", 1), [view], 0), view, cast(Any, SimpleNamespace(source=None))
    )
    monkeypatch.setattr(frontier, "read_slot", lambda *_: SimpleNamespace(confirmed_lsn=confirmed))
    monkeypatch.setattr(frontier, "topics_of", lambda *_: ["t"])
    monkeypatch.setattr(frontier, "read_entry", lambda *_: LedgerEntry(9, {"t": {0: 10}}))
    assert (made._entry(8) is not None) is there


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
    assert said[-1] == "  11,000 rows compared", "an estimate that was too low"
    clock.sleep(LINE_SECONDS)
    told.at(11_000, 0)
    assert said[-1] == "  11,000 rows compared", "nobody knows of how many: each line said that it was just finished"
    assert [left_of(seconds) for seconds in (5, 119, 600, 7200)] == [
        "5 s left",
        "119 s left",
        "10 min left",
        "2.0 h left",
    ]
    assert pace(0, 100, 0, 5) == pace(100, 100, 100, 5) == ""
