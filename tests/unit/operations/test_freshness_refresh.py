"""Which refresh counts for a write: one that began when all of it was there, of a server that has lost nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SinkRefused
from operations.freshness import refresh
from operations.freshness.place import Reach
from operations.freshness.refresh import Refresher, _refuse_older
from operations.freshness.wait import Target, Wait

THERE, NOT_THERE = Reach(True, (1,)), Reach(False, (1,), 3)


class Refreshes(Refresher):
    """A refresh ends when the test says so."""

    def __init__(self) -> None:
        super().__init__(cast(Any, SimpleNamespace(sinks={"search": None})))

    def _run(self, *_: Any) -> None:
        """Nothing: see ``end``."""

    def end(self, generation: int = 1) -> None:
        """The one that is under way ends well."""
        running = self._targets["search", generation, True].running
        assert running is not None
        running.set_result(None)
        self.step()


def test_a_refresh_that_had_begun_before_a_write_does_not_count_for_it() -> None:
    refresher = Refreshes()
    first = refresher.ask("search", 1, search=True)
    refresher.step()
    second = refresher.ask("search", 1, search=True)
    refresher.end()
    assert refresher.done("search", 1, first, search=True)
    assert not refresher.done("search", 1, second, search=True)


def test_who_falls_back_from_what_was_there_waits_for_another_refresh() -> None:
    """A second generation that readers may see, or a table that is read again: what is there later was not yet there
    when the first refresh began."""
    refresher, target = Refreshes(), Target()
    assert target.follow(THERE, refresher, "search", search=True)
    refresher.step()
    assert not target.follow(NOT_THERE, refresher, "search", search=True) and target.stage == "sink"
    assert target.follow(THERE, refresher, "search", search=True), "it has arrived once more"
    refresher.end()
    target.follow(THERE, refresher, "search", search=True)
    assert target.stage == "refresh" and not target.ended


def test_a_generation_that_readers_see_since_a_promotion_is_refreshed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh of the one before it makes nothing findable there: `visible` of what no reader finds."""
    monkeypatch.setattr(refresh, "LOOK_SECONDS", 0.0)
    refresher, target = Refreshes(), Target()
    assert target.follow(Reach(True, (1,)), refresher, "search", search=True)
    refresher.step()
    assert target.follow(Reach(True, (1, 2)), refresher, "search", search=True), "a promotion is under way"
    refresher.end(1)
    target.follow(Reach(True, (1, 2)), refresher, "search", search=True)
    assert not target.ended, "the first refresh is of generation 1 alone"
    target.follow(Reach(True, (2,)), refresher, "search", search=True)
    refresher.end(2)  # it had begun in the middle of the promotion
    target.follow(Reach(True, (2,)), refresher, "search", search=True)
    assert not target.ended and target.tickets.keys() == {2}
    refresher.end(2)
    target.follow(Reach(True, (2,)), refresher, "search", search=True)
    assert target.stage == "done" and target.answer().generation == 2


@pytest.mark.parametrize(("held", "older"), [(None, True), (6, True), (7, False), (8, False)])
def test_a_server_that_lacks_the_number_left_with_it_last_is_of_an_older_state(held: int | None, older: bool) -> None:
    sink = cast(Any, SimpleNamespace(beat=lambda _view, _number: held))
    if older:
        with pytest.raises(SinkRefused, match="the server has lost what was written to v last"):
            _refuse_older(sink, {"v": 7})
    else:
        _refuse_older(sink, {"v": 7})


def test_who_asks_for_now_is_told_of_each_sink_what_is_known_of_it() -> None:
    """One that is paused cut short the other, whose refresh was under way: `timeout` of what readers saw."""
    wait = Wait(None, ["paused", "well"])
    wait.targets["paused"].reason = "it is paused"
    wait.end_if_done()
    assert not wait.known.done(), "the other one is on its way"
    wait.targets["well"].stage = "done"
    wait.end_if_done()
    assert wait.known.done() and not wait.ended.done()
    assert {sink: one.state for sink, one in wait.so_far().sinks.items()} == {"paused": "timeout", "well": "visible"}
