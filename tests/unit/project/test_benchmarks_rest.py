"""What rest costs is a difference of two measurements: both are made alike, and one that can't be is no figure."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import rest
from cdc.errors import StackError


class Machine:
    """Servers and a `run` that take so much of a core; what is waited, and when they are looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *shares: dict[str, float]) -> None:
        self.events, self.shares = list[str](), iter(shares)
        monkeypatch.setattr(rest, "ready", lambda: SimpleNamespace(endpoints=None))
        monkeypatch.setattr(rest, "copied", lambda *_: nullcontext())
        monkeypatch.setattr(rest, "_running", lambda *_: nullcontext(1))
        monkeypatch.setattr(rest, "Processor", lambda pids: None)
        monkeypatch.setattr(rest, "servers_of", lambda stack: {})
        monkeypatch.setattr(rest, "mib_of", lambda pid: 100.0)
        monkeypatch.setattr(rest, "shares", self._look)
        monkeypatch.setattr(rest.time, "sleep", lambda seconds: self.events.append(f"waited {seconds:.0f}"))

    def _look(self, processor: Any) -> dict[str, float]:
        self.events.append("looked")
        return next(self.shares)

    def measured(self) -> dict[str, float]:
        return {one.name.removeprefix("idle_pipeline_cpu_percent/"): one.value for one in rest.measure()}


def one(servers: float, run: float = 4.0) -> dict[str, float]:
    return {"kafka": servers, "run": run}


def test_servers_without_a_pipeline_rest_as_long_as_those_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {"kafka": 10.0}, one(13.0), one(13.0, 7.0), one(16.0, 13.0))
    found = machine.measured()
    assert machine.events == [f"waited {rest.SETTLE_SECONDS:.0f}", "looked"] * 4
    assert (found["servers"], found["runner_further_sink"], found["servers_further_pipeline"]) == (3.0, 1.0, 1.0)


def test_a_difference_below_zero_is_written_as_it_is_if_it_is_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Machine(monkeypatch, {"kafka": 10.0}, one(9.5), one(9.5, 7.0), one(9.0, 13.0)).measured()
    assert (found["servers"], found["servers_further_pipeline"]) == (-0.5, -0.17)


@pytest.mark.parametrize(
    ("shares", "what"),
    [
        ((one(8.9), one(9.0), one(9.0)), "a pipeline at rest took 8.9 % of a core, and none 10.0 %"),
        ((one(13.0), one(13.0, 2.0), one(13.0)), "four sinks at rest took 2.0 % of a core, and one 4.0 %"),
        ((one(13.0), one(13.0), one(11.0)), "four pipelines at rest took 11.0 % of a core, and one 13.0 %"),
    ],
    ids=["servers", "sinks", "pipelines"],
)
def test_less_than_nothing_is_no_figure(monkeypatch: pytest.MonkeyPatch, shares: Any, what: str) -> None:
    with pytest.raises(StackError, match=what):
        Machine(monkeypatch, {"kafka": 10.0}, *shares).measured()
