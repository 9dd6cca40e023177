"""The loop of `run`: what keeps it from its work for a while does not end it, and what ends it does so at once."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import DiskFull, LogGap, StateError
from operations.run.patience import Stop
from operations.state.accepted import Text
from operations.supervise import loop as supervising
from operations.supervise import parts
from operations.supervise.loop import supervise
from operations.supervise.parts import Parts
from operations.supervise.wanted import Wanted


class Loop:
    """`run` with parts of the test's own; ``follow`` is what happens at each turn."""

    def __init__(self, *follow: Callable[[], list[str]]) -> None:
        self.turns, self.follow, self.stop = 0, follow, Stop()
        self.stopped: list[str] = []
        self.said: list[str] = []
        self.halted = self.again = False
        self.runner = SimpleNamespace(step=self._step, trouble=None, all_failed=False)
        self.source = SimpleNamespace(error=None, changed={}, news=[])
        self.goal = SimpleNamespace(caught_up=lambda: False)
        self.bars = SimpleNamespace(show=lambda _statuses: None, goal=self.goal)

    def _step(self, _meanwhile: object) -> list[Any]:
        self.turns += 1
        if self.turns > len(self.follow):
            self.stop.set()
        return []

    def _follow(self) -> list[str]:
        return self.follow[self.turns]() if self.turns < len(self.follow) else []

    def go(self, *, until: float | None = None, until_caught_up: bool = False) -> None:
        engine = SimpleNamespace(follow=self._follow, runner=self.runner, stop=self.stopped.append, paused={})
        engine.promotions, engine.refused = SimpleNamespace(busy=False), SimpleNamespace(waits=self.again)
        made = Parts(
            cast(Any, engine),
            cast(Any, self.source),
            cast(Any, SimpleNamespace(follow=lambda _changed: [], waits=self.halted)),
            cast(Any, SimpleNamespace(step=lambda *_: [], busy=False, waits=False)),
            cast(Any, SimpleNamespace(step=lambda _engine: [], busy=False, healing=())),
        )
        wanted = Wanted((), self.stop, None, until_caught_up, until)
        supervise(made, cast(Any, self.bars), wanted, self.said.append)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "STEP_SECONDS", 0.001)


def raising(error: BaseException) -> Callable[[], list[str]]:
    def follow() -> list[str]:
        raise error

    return follow


def test_a_full_disk_is_told_once_and_its_end_too() -> None:
    full = raising(DiskFull("the disk that holds /state/x is full", means="nothing is lost"))
    loop = Loop(full, full, full, lambda: ["search: kept up to date"])
    loop.go()
    assert loop.said == [
        "waiting: the disk that holds /state/x is full",
        "search: kept up to date",
        "there is room on the disk again",
    ]


def test_a_disk_that_is_full_in_the_words_of_the_system_is_the_same() -> None:
    loop = Loop(raising(OSError(errno.ENOSPC, "No space left on device", "/state/x")), lambda: [])
    loop.go()
    assert "waiting: /state/x: No space left on device" in loop.said
    assert loop.turns == 3


def test_a_status_that_can_not_be_written_is_told() -> None:
    loop = Loop(lambda: [], lambda: [])
    loop.runner.trouble = "the disk that holds /state/y is full\n  what it means"
    loop.go()
    assert loop.said == ["waiting: the disk that holds /state/y is full"]


@pytest.mark.parametrize(("halted", "catching_up", "turns"), [(False, False, 1), (True, False, 4), (True, True, 1)])
def test_flows_that_stand_still_until_apply_go_on_in_the_same_process(
    halted: bool, catching_up: bool, turns: int
) -> None:
    """A gap of the one table that all flows read ended it, and nobody was left to go on after `apply`."""
    loop = Loop(lambda: [], lambda: [], lambda: [])
    loop.runner.all_failed, loop.halted = True, halted
    loop.go(until_caught_up=catching_up)
    assert loop.turns == turns


def test_a_snapshot_that_is_made_once_more_ends_it_with_its_reason_in_the_status() -> None:
    loop = Loop(raising(LogGap("made its initial snapshot once more")))
    with pytest.raises(LogGap, match="once more"):
        loop.go()
    assert loop.stopped == ["made its initial snapshot once more"]


def test_other_refusals_of_the_system_end_it() -> None:
    with pytest.raises(PermissionError):
        Loop(raising(PermissionError(errno.EACCES, "no"))).go()


def test_a_gap_stops_every_flow_with_its_reason() -> None:
    loop = Loop(lambda: [])
    loop.source.error = LogGap("made again")
    with pytest.raises(LogGap):
        loop.go()
    assert loop.stopped == ["made again"]


def test_it_ends_when_no_flow_is_left() -> None:
    loop = Loop(*[lambda: []] * 100)
    loop.runner.all_failed = True
    loop.go()
    assert loop.turns == 1


@pytest.mark.parametrize(("catching_up", "turns"), [(False, 4), (True, 1)])
def test_it_stays_while_the_last_flow_is_to_be_taken_up_again(catching_up: bool, turns: int) -> None:
    """A sink was resumed some seconds before the broker answered: nothing ran then, and `run` ended for good."""
    loop = Loop(lambda: [], lambda: [], lambda: [])
    loop.runner.all_failed = loop.again = True
    loop.go(until_caught_up=catching_up)
    assert loop.turns == turns


def test_it_ends_when_all_is_read_or_the_time_is_over() -> None:
    loop = Loop(*[lambda: []] * 100)
    loop.goal.caught_up = lambda: True
    loop.go(until_caught_up=True)
    assert (loop.turns, loop.said) == (1, ["caught up"])
    with pytest.raises(StateError, match="not caught up when --timeout was over"):
        Loop(*[lambda: []] * 100).go(until=time.monotonic(), until_caught_up=True)


# -- the parts -----------------------------------------------------------------------------------------------------


class Closing:
    """A part that notes when it is closed."""

    def __init__(self, name: str, closed: list[str], error: Exception | None = None) -> None:
        self.name, self.closed, self.error = name, closed, error

    def close(self) -> None:
        self.closed.append(self.name)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("broken", "error", "closed"),
    [
        ("Halting", StateError("no"), ["engine"]),
        ("Evolving", StateError("no"), ["Halting", "engine"]),
        ("Losses", PermissionError(errno.EACCES, "no"), ["Evolving", "Halting", "engine"]),
        ("FileWatch", StateError("no"), ["Losses", "Evolving", "Halting", "engine"]),
    ],
)
def test_a_part_that_can_not_be_made_gives_the_sinks_back(
    monkeypatch: pytest.MonkeyPatch, broken: str, error: Exception, closed: list[str]
) -> None:
    """The engine was left open, with its leases: beside another pipeline the process lives on, and keeps them."""
    ended: list[str] = []
    for name in ("Halting", "Evolving", "Losses", "FileWatch"):

        def make(*_: Any, name: str = name, **__: Any) -> Any:
            if name == broken:
                raise error
            part = Closing(name, ended)
            return SimpleNamespace(close=part.close, let_go=None)

        monkeypatch.setattr(parts, name, make)
    engine = SimpleNamespace(pipeline=None, close=Closing("engine", ended).close)
    wanted = Wanted((), Stop(), None, until_caught_up=False, until=None)
    with pytest.raises(type(error)):
        Parts.opened(cast(Any, engine), cast(Any, None), Path("shop.yaml"), Text("shop.yaml", "", 0.0), wanted)
    assert ended == closed


def test_the_engine_is_closed_last_and_even_if_another_part_can_not_be() -> None:
    ended: list[str] = []
    made = Parts(
        cast(Any, Closing("engine", ended)),
        cast(Any, None),
        cast(Any, Closing("halting", ended)),
        cast(Any, Closing("evolving", ended, OSError(errno.ENOSPC, "full"))),
        cast(Any, Closing("losses", ended)),
        cast(Any, Closing("edits", ended)),
    )
    with pytest.raises(OSError, match="full"):
        made.close()
    assert ended == ["halting", "evolving", "losses", "edits", "engine"]
