"""What `run` shows of flows that come and go while it is at work: lines, and bars."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from console.cli.shared.flow_bars import FlowBars
from operations.run import flow_lines
from operations.run.flow_lines import FlowLines

DAYS = 3 * 86_400.0


class Shown:
    """Flows that are at work, and how far each is.

    Attributes:
        ways: title -> offsets done and to do.
        said: lines.
        now: what the clock says.
    """

    def __init__(self) -> None:
        self.ways: dict[str, tuple[int, int]] = {}
        self.said: list[str] = []
        self.now = 1_000.0
        self.running: list[Any] = []

    def look(self) -> None:
        """Nothing: ends of the log are the goal's."""

    def way(self, run: Any) -> tuple[int, int]:
        """As the goal's."""
        return self.ways[run.flow.title]

    def show(self, view: Any, seconds: float = 0.0, **ways: tuple[int, int]) -> list[str]:
        """Show these flows after a time; the lines that are told."""
        self.now, self.ways, before = self.now + seconds, ways, len(self.said)
        self.running[:] = [SimpleNamespace(flow=SimpleNamespace(title=title, about={})) for title in ways]
        view.show([status(done) for done, _ in ways.values()])
        return self.said[before:]


def status(records: int) -> Any:
    """What a flow's process says."""
    said = {"last_error": None, "warning": None, "state": "running", "deferred": 0, "batch_id": 3}
    return SimpleNamespace(records=records, **said)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    made = Shown()
    monkeypatch.setattr(flow_lines, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_the_pace_of_a_flow_that_comes_late_is_its_own(shown: Shown) -> None:
    """Its records were divided by all the time that `run` had been at work: "4/s, 582.7 h left"."""
    lines = FlowLines(cast(Any, shown), lambda line: shown.said.append(str(line)))
    shown.show(lines, old=(100, 100))
    shown.show(lines, DAYS, old=(100, 100), late=(0, 10_000))
    [line] = shown.show(lines, 10.0, old=(100, 100), late=(2_000, 10_000))
    assert "late: running · 20% of the log, 200/s, 40 s left" in line


def test_the_pace_of_a_flow_that_was_paused_is_that_of_since(shown: Shown) -> None:
    lines = FlowLines(cast(Any, shown), lambda line: shown.said.append(str(line)))
    shown.show(lines, paused=(0, 10_000))
    shown.show(lines, 10.0, paused=(1_000, 10_000))
    shown.show(lines, 10.0)
    [line] = shown.show(lines, DAYS, paused=(1_000, 10_000))
    assert "10% of the log · " in line, "told, and nothing is known of its pace yet"
    [line] = shown.show(lines, 10.0, paused=(3_000, 10_000))
    assert "30% of the log, 200/s, 35 s left" in line


@pytest.mark.parametrize(("begun", "since"), [((90, 100), (50, 1_000)), ((600, 1_000), (50, 1_000))])
def test_the_pace_on_another_way_is_that_of_it_alone(
    shown: Shown, begun: tuple[int, int], since: tuple[int, int]
) -> None:
    """What comes after a fill, and a fill that was begun anew."""
    lines = FlowLines(cast(Any, shown), lambda line: shown.said.append(str(line)))
    shown.show(lines, flow=begun)
    shown.show(lines, DAYS, flow=since)
    [line] = shown.show(lines, 10.0, flow=(150, 1_000))
    assert "15% of the log, 10/s, 85 s left" in line


def test_who_has_gone_has_no_bar(shown: Shown) -> None:
    """Sinks that were paused, dropped or retired stayed on the terminal as if they were running."""
    bars = FlowBars(cast(Any, shown), terminal=True)
    shown.show(bars, a=(1, 2), b=(1, 2))
    shown.show(bars, b=(2, 2), c=(0, 2))
    assert [task.description for task in bars.progress.tasks] == ["b", "c"]
    shown.show(bars, a=(2, 3), b=(2, 2), c=(1, 2))
    told = [(task.description, task.completed, task.total) for task in bars.progress.tasks]
    assert told == [("b", 2, 2), ("c", 1, 2), ("a", 2, 3)]
