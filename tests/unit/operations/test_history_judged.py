"""A history that has failed, hangs or is late makes its sink bad: what it has not read goes from the log for good."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import StateError
from cdc.pipeline import Pipeline, load
from operations.freshness.keeper import Keeper
from operations.freshness.note import FlowNote, SinkNote, SourceNote, read_sink_note, write_sink_note, write_source_note
from operations.freshness.place import Place
from operations.metrics.pipelines import metrics
from operations.run import histories
from operations.run.histories import Histories
from operations.run.history import OpenedHistory
from operations.state.folder import register_of
from operations.state.history import STREAM, history_folder
from operations.state.pausing import pause
from operations.status.alert import Alarms
from operations.status.alive import ailments
from operations.status.facts import judged, judged_apart
from spark.disk.refused import refuse
from spark.disk.status import FlowStatus
from tests.support.lone_cache import FILE
from tests.support.metric_cases import samples

LAKE = "{type: iceberg, catalog_uri: /c.db, warehouse: /w, namespace: n, history: true, view: v}"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A warehouse that is well, without a word of its history yet."""
    text = FILE.format(folder=tmp_path / "state")
    (tmp_path / "w.yaml").write_text(
        text.replace('cache: {type: redis, url: "redis://127.0.0.1:1", view: v}', f"lake: {LAKE}")
    )
    made, now = load(tmp_path / "w.yaml"), time.time()
    flow = register_of(made, "lake").generation().flow_folder("v")
    flow.mkdir(parents=True)
    said("running").write(flow)
    source = SourceNote(now, now - 900, now - 1, now, now, connector="RUNNING", tasks=["RUNNING"], slot_there=True)
    write_source_note(made, source)
    noted(made)
    return made


def said(state: str, **more: object) -> FlowStatus:
    status = FlowStatus("lake/v", state, os.getpid(), 1, 9, 7, 0, 0, 0, 0, 0, 0, None, ["t"], time.time())
    return replace(status, **more)  # type: ignore[arg-type]


def noted(pipeline: Pipeline, behind: int = 0, still: float = 0.0) -> None:
    """How far both are: the sink is well, the history may stand still."""
    now = time.time()
    flows = {1: {"v": FlowNote(now - 2, 0, now)}}
    write_sink_note(pipeline, "lake", SinkNote(now, now - 5_000, flows, history=FlowNote(now - 3, behind, now - still)))


def history(pipeline: Pipeline, state: str, **more: object) -> None:
    folder = history_folder(pipeline, "lake") / STREAM
    folder.mkdir(parents=True, exist_ok=True)
    said(state, flow="lake/_history", **more).write(folder)


def told(pipeline: Pipeline) -> tuple[str, str]:
    one = judged(pipeline).sinks["lake"].judged
    return one.judgement, one.cause or ""


@pytest.mark.parametrize("state", [None, "running", "starting"])
def test_one_that_gets_on_or_was_never_begun_is_no_news(pipeline: Pipeline, state: str | None) -> None:
    if state is not None:
        history(pipeline, state)
    assert told(pipeline) == ("well", "") and ailments(pipeline) == []


@pytest.mark.parametrize(
    ("state", "judgement", "word"),
    [
        ("failed", "failed", "history: no such table"),
        ("retrying", "retrying", "history: no such table"),
        ("stopped", "stopped", "history: its process has ended"),
    ],
)
def test_one_that_is_bad_makes_its_sink_bad(pipeline: Pipeline, state: str, judgement: str, word: str) -> None:
    history(pipeline, state, last_error="no such table\n  what to do: restore it")
    got, cause = told(pipeline)
    assert (got, cause.startswith(word)) == (judgement, True), cause
    assert "after 1 h the log may have lost what it has not read" in cause
    found = judged_apart(pipeline)[1]
    [alarm] = Alarms("p", 0).step(0.0, {"sink lake": found["lake"]})
    assert alarm["judgement"] == judgement and "history: " in alarm["text"]
    assert samples(metrics([pipeline]))["headwater_sink_judgement", ("1", judgement, "p", "lake")] == 1
    assert ailments(pipeline) == [], "the sink is at work, and would pay for a new process"


def test_one_whose_process_is_gone_is_told(pipeline: Pipeline) -> None:
    history(pipeline, "running", at=time.time() - 60)
    assert told(pipeline)[0] == "stopped"


def test_one_that_nobody_may_write_is_failed_with_the_way_out(pipeline: Pipeline) -> None:
    history(pipeline, "running")
    refuse(history_folder(pipeline, "lake"), "it is the history of another cluster\n  what to do: another namespace")
    report = judged(pipeline).sinks["lake"].judged
    assert (report.judgement, report.remedy) == ("failed", "another namespace")
    assert report.cause and report.cause.startswith("history: it is the history of another cluster; after 1 h")


def test_one_that_is_late_is_told_before_its_events_are_gone(pipeline: Pipeline) -> None:
    history(pipeline, "running", warning="history of sink lake has not caught up")
    got, cause = told(pipeline)
    assert got == "behind" and cause.startswith("history: history of sink lake has not caught up")


def test_one_that_hangs_is_told_and_after_a_while_a_new_process_may_help(pipeline: Pipeline) -> None:
    history(pipeline, "running")
    noted(pipeline, behind=9, still=300)
    got, cause = told(pipeline)
    assert got == "stalled" and "9 records wait" in cause and ailments(pipeline) == []
    noted(pipeline, behind=9, still=1_000)
    assert [one.partition(":")[0] for one in ailments(pipeline)] == ["lake"]


def test_of_a_paused_sink_it_rests_as_well(pipeline: Pipeline) -> None:
    history(pipeline, "stopped")
    pause(pipeline, "lake", None, print)
    assert told(pipeline)[0] == "paused"


def test_what_is_worse_of_the_sink_is_told_first(pipeline: Pipeline) -> None:
    said("failed", last_error="disk").write(register_of(pipeline, "lake").generation().flow_folder("v"))
    history(pipeline, "retrying", last_error="no answer")
    assert told(pipeline) == ("failed", "disk")


def test_its_figures_are_metrics(pipeline: Pipeline) -> None:
    history(pipeline, "running", restarts=4)
    noted(pipeline, behind=7)
    found, of = samples(metrics([pipeline])), ("history", "", "p", "lake")
    assert found["headwater_flow_lag_records", of] == 7
    assert found["headwater_flow_restarts_total", of] == 4
    assert 3 <= found["headwater_flow_age_seconds", of] < 20


def test_how_far_it_is_is_noted_beside_its_sink(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topics are the sink's: of one that the sink does not keep any more nobody asks."""
    history(pipeline, "running", topics=["t", "gone"])
    (history_folder(pipeline, "lake") / STREAM / "applied.json").write_text(
        json.dumps({"batch": 1, "offsets": {"t": {"0": 5}}})
    )
    noting = Keeper(pipeline)
    monkeypatch.setattr(noting, "_ask_anew", lambda *_: None)
    noting._write_once()
    note = read_sink_note(pipeline, "lake")
    assert note is not None and note.history is not None and note.generations.keys() == {1}
    assert note.history.behind is None and noting._topics == {"t"}
    kept = noting._places["lake"].history({"t"})
    assert kept is not None and (kept.topics, kept.applied["t"]) == (["t"], {0: 5})
    noting._end()


@pytest.mark.parametrize("error", [StateError("its checkpoint can't be read"), PermissionError("denied")])
def test_one_that_can_not_be_read_hides_nothing_of_its_sink(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    noting = Keeper(pipeline)
    monkeypatch.setattr(noting, "_ask_anew", lambda *_: None)
    monkeypatch.setattr(Place, "history", broken)
    write_sink_note(pipeline, "lake", SinkNote(1.0, 1.0))
    noting._write_once()
    note = read_sink_note(pipeline, "lake")
    assert note is not None and note.at > 1.0 and note.history is None and "v" in note.generations[1]
    noting._end()


class Running:
    """A runner, as far as histories know it: what it was told of folders."""

    def __init__(self, *folders: Path) -> None:
        topics = cast(Any, SimpleNamespace(sink="lake", topics={"t": "v"}))
        self.running = [SimpleNamespace(flow=SimpleNamespace(folder=one / STREAM, spec=topics)) for one in folders]
        self.told: list[tuple[Path, bool]] = []
        self.late: list[Callable[[], None]] | None = None  # a start that nobody answers is under way; what waits for it

    def remove(self, folder: Path, *, anew: bool = False) -> None:
        self.told.append((folder, anew))

    def once_over(self, folder: Path, then: Callable[[], None]) -> None:
        assert self.told in ([], [(folder, True)], [(folder, False)])
        then() if self.late is None else self.late.append(then)


def test_one_that_is_opened_anew_was_not_told_to_end(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` said `stopped`, and to start `headwater run`, beside the `run` that was opening it."""
    folder = history_folder(pipeline, "lake")
    monkeypatch.setattr(histories, "root_tables", lambda pipeline, *_: [pipeline.name])
    lease = SimpleNamespace(release=lambda: None)

    def after(act: Callable[[Histories, Any], None]) -> list[tuple[Path, bool]]:
        here, runner = Histories(), Running(folder)
        here.opened["lake"] = OpenedHistory(pipeline, "lake", folder, cast(Any, lease), 1, "s")
        act(here, SimpleNamespace(pipeline=pipeline, catalogue=None, runner=runner))
        return runner.told

    other = pipeline.model_copy(update={"name": "q"})
    without = pipeline.model_copy(update={"sinks": {}})
    assert after(lambda here, engine: here.open_anew(engine, ["t"])) == [(folder, True)]
    assert after(lambda here, engine: here.adopt(engine, other, cast(Any, None))) == [(folder, True)]
    assert after(lambda here, engine: here.adopt(engine, without, cast(Any, None))) == [(folder, False)]
    assert after(lambda here, engine: cast(None, here.follow(engine, []))) == [(folder, False)]


@pytest.mark.parametrize("how", ["let go", "closed"])
def test_its_lease_is_held_while_a_start_that_came_too_late_may_write(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """And it is not tried meanwhile, which would blame this very process for having it."""
    released, tried, folder = list[str](), list[str](), history_folder(pipeline, "lake")
    lease = SimpleNamespace(release=lambda: released.append("it"), check=lambda: None)
    here, runner = Histories(), Running(folder)
    runner.late = []
    here.opened["lake"] = OpenedHistory(pipeline, "lake", folder, cast(Any, lease), 1, "s")
    monkeypatch.setattr(here, "_take", lambda _engine, sink: tried.append(sink) or [])
    monkeypatch.setattr(histories, "history_sinks", lambda _pipeline: ["lake"])
    engine: Any = SimpleNamespace(pipeline=pipeline, catalogue=None, runner=runner)
    if how == "closed":
        here.close(engine)
    else:
        here.open_anew(engine)
        assert here.follow(engine, ["lake"]) == [] and tried == []
    (then,) = runner.late
    assert released == []
    then()
    assert released == ["it"]
    here.follow(engine, ["lake"])
    assert tried == (["lake"] if how == "let go" else [])
