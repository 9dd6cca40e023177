"""What a runner does about a table whose changes are missing, and about a snapshot that begins again; no Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import LogGap, TableChanged
from operations.run import halting
from operations.run.histories import Histories
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from spark.runner import Runner
from tests.unit.spark.test_runner import Case, case, refused

__all__ = ["case"]


def test_flows_of_a_changed_table_stop_and_say_so_and_the_others_go_on(case: Case, tmp_path: Path) -> None:
    other = Flow("other", FlowSpec("s", {}, {"u": ()}, {}, {}, {}), Reading("", {}, None), tmp_path / "g1" / "other")
    case.runner.add([(other, case._start)])
    case.step()
    assert case.runner.halt({"t": "table t was dropped", "x": "not read here"}) == {"s/main": "t"}
    assert case.runner.halt({"t": "table t was dropped"}) == {}, "said once"
    status = case.step()
    assert (status.state, status.last_error) == ("failed", "table t was dropped")
    assert not case.queries[0].isActive and case.queries[1].isActive
    assert not case.runner.all_failed


def test_a_flow_that_has_not_begun_does_not_begin_on_a_changed_table(case: Case) -> None:
    case.runner.halt({"t": "table t was dropped"})
    assert (case.step().state, case.queries) == ("failed", [])
    assert case.runner.all_failed


class Builds:
    """An engine, as far as Halting knows it."""

    def __init__(self, runner_: Runner, *builds: Any) -> None:
        self.runner, self.builds, self.snapshot_lsn = runner_, list(builds), 0
        self.pipeline = SimpleNamespace(topic=lambda table: table, source=SimpleNamespace(outbox=None))
        self.catalogue, self.again, self.histories = None, list[str](), Histories()

    def take_again(self, build: Any) -> list[str]:
        self.again.append(build.sink)
        return [f"{build.sink}: kept up to date from now on"]


def test_mended_tables_bring_their_sinks_back_and_a_new_snapshot_all(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int | None] = [None, None, None, 2000]
    monkeypatch.setattr(
        halting, "MarkerWatch", lambda *_: SimpleNamespace(newer=lambda: attempts.pop(0), close=lambda: None)
    )
    monkeypatch.setattr(halting, "source_catalogue", lambda _: "read again")
    monkeypatch.setattr(halting, "check_snapshot", lambda *_: None)
    number = SimpleNamespace(number=1)
    builds = [
        SimpleNamespace(sink=name, topics={topic}, generation=number, about={"sink": name})
        for name, topic in (("a", "t"), ("b", "u"))
    ]
    engine = Builds(case.runner, *builds)
    follow = halting.Halting(cast(Any, engine)).follow
    case.step()
    changed = {"t": TableChanged("table t was dropped")}
    assert follow(changed) == ["error: s/main stopped: table t was dropped"]
    assert follow(changed) == [] and engine.again == []
    assert follow({})[0] == "a, generation 1: its tables are mended"
    assert (engine.again, engine.catalogue) == (["a"], "read again")
    follow({})
    assert (engine.again, engine.snapshot_lsn) == (["a", "a", "b"], 2000)


def test_a_snapshot_that_is_made_once_more_is_no_reason_to_go_on(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka Connect has lost the offset: flows were opened anew, and rows deleted meanwhile stayed for ever."""

    def second(_pipeline: Any, position: int) -> None:
        raise LogGap(f"once more, at {position}")

    watch = SimpleNamespace(newer=lambda: 2000, close=lambda: None)
    monkeypatch.setattr(halting, "MarkerWatch", lambda *_: watch)
    monkeypatch.setattr(halting, "check_snapshot", second)
    engine = Builds(case.runner)
    with pytest.raises(LogGap, match="once more, at 2000"):
        halting.Halting(cast(Any, engine)).follow({})
    assert engine.snapshot_lsn == 0


def test_only_a_flow_that_was_stopped_here_is_waited_for(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap of a table that nobody reads here kept `run` up for ever, after its last flow had failed for good."""
    watch = SimpleNamespace(newer=lambda: None, close=lambda: None)
    monkeypatch.setattr(halting, "MarkerWatch", lambda *_: watch)
    subject = halting.Halting(cast(Any, Builds(case.runner)))
    case.step()
    subject.follow({"x": TableChanged("table x was dropped")})
    assert not subject.waits
    subject.follow({"t": TableChanged("table t was dropped"), "x": TableChanged("table x was dropped")})
    assert subject.waits
    case.runner.remove(case.flow.folder.parent)  # somebody has retired it
    subject.follow({"t": TableChanged("table t was dropped")})
    assert not subject.waits


def test_a_flow_that_has_failed_by_itself_does_not_wait_for_its_table(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = SimpleNamespace(newer=lambda: None, close=lambda: None)
    monkeypatch.setattr(halting, "MarkerWatch", lambda *_: watch)
    subject = halting.Halting(cast(Any, Builds(case.runner)))
    case.make = refused
    case.step()
    subject.follow({"t": TableChanged("table t was dropped")})
    assert not subject.waits
