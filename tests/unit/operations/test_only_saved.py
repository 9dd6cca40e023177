"""A file that was saved with more in it, and not applied: what runs goes by the former one, and is well."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from cdc.pipeline import Pipeline, loads
from cdc.pipeline.outlets import outlets
from operations.metrics.pipelines import metrics
from operations.push.health import push_report
from operations.state.accepted import Text, note_running, only_saved, sinks_to_wait_for, this_process
from operations.state.folder import register_of, running_path
from operations.state.pausing import pause
from operations.status.alive import ailments
from operations.status.facts import judged
from spark.disk.status import FlowStatus
from tests.support.lone_cache import FILE, TWO
from tests.support.metric_cases import samples
from tests.support.standing_file import FILE as STANDING
from tests.unit.operations.test_other_host import ELSEWHERE, held

SECRET = f"url: 'http://h:1', secret: whsec_{'a' * 40}"
SENDS = f"""\
queries:
  order: {{search: search, changes: cache, push: {{found: {{{SECRET}}}}}, saved: {{view: other}}}}
push: {{told: {{{SECRET}, view: order}}}}
"""


def sending(folder: Path, more: str = SENDS) -> str:
    return STANDING.format(queries="", folder=folder).replace("queries: \n", more)


def runs(pipeline: Pipeline, text: str, refused: dict[str, str] | None = None) -> None:
    """This process is the `run` that goes by a file."""
    note_running(pipeline, this_process(Text("p.yaml", text, 2.0), refused=refused))


def works(pipeline: Pipeline, sink: str, state: str = "running") -> None:
    folder = register_of(pipeline, sink).generation().flow_folder("main")
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    FlowStatus(f"{sink}/main", state, os.getpid(), 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [], time.time()).write(folder)


@pytest.fixture
def saved(tmp_path: Path) -> Pipeline:
    """With the sink `other`, while a `run` has `cache` alone."""
    made = loads(TWO.format(folder=tmp_path), "p.yaml")
    runs(made, FILE.format(folder=tmp_path))
    works(made, "cache")
    return made


def is_(pipeline: Pipeline, sink: str) -> tuple[str, str | None]:
    found = judged(pipeline).sinks[sink].judged
    return found.judgement, found.remedy


def test_a_sink_that_was_only_saved_is_not_bad_and_its_run_is_alive(saved: Pipeline) -> None:
    """A liveness probe killed the good `run`, whose next start took the file that nobody had applied."""
    assert is_(saved, "other") == ("unapplied", "`headwater apply FILE`")
    assert not judged(saved).sinks["other"].judged.bad and ailments(saved) == []
    found = samples(metrics([saved]))
    alarm = {name: found["headwater_sink_judgement", ("1", name, "p", "other")] for name in ("unapplied", "stopped")}
    assert alarm == {"unapplied": 1, "stopped": 0}
    works(saved, "cache", "failed")
    assert ailments(saved) == ["cache, main: failed"]


def test_one_that_was_let_go_and_is_in_the_file_again_is_not_bad_either(saved: Pipeline) -> None:
    works(saved, "other", "stopped")
    report = judged(saved).sinks["other"]
    assert (report.judged.judgement, report.flows["main"].judged.judgement) == ("unapplied", "unapplied")
    assert ailments(saved) == [] and not report.flows["main"].judged.bad


def test_one_that_a_process_has_is_judged_as_ever(saved: Pipeline) -> None:
    """Of an older Headwater the one that was started last alone is known by its file."""
    register_of(saved, "other").generation().lease._write(held(**ELSEWHERE))
    assert is_(saved, "other")[0] == "starting"


def test_a_file_that_was_applied_and_refused_is_told_and_kills_nothing(saved: Pipeline, tmp_path: Path) -> None:
    runs(saved, FILE.format(folder=tmp_path), {"digest": "x", "reason": "engine.trigger_ms changed"})
    assert is_(saved, "other") == ("stopped", "`headwater run FILE`")
    assert ailments(saved) == []


def test_who_has_written_a_file_and_runs_none_is_told_that_nothing_runs(tmp_path: Path) -> None:
    made = loads(TWO.format(folder=tmp_path), "p.yaml")
    assert {is_(made, sink) for sink in ("cache", "other")} == {("stopped", "`headwater run FILE`")}
    assert ailments(made) == ["cache: never run", "other: never run"]
    assert sinks_to_wait_for(made) == ["cache", "other"]


def test_one_that_another_run_has_in_its_file_was_applied(saved: Pipeline, tmp_path: Path) -> None:
    """Of several `run --sink` one may go by a newer file than the one that has noted something last."""
    text, newer = FILE.format(folder=tmp_path), TWO.format(folder=tmp_path)
    assert only_saved(saved, "sinks", "other") and sinks_to_wait_for(saved) == ["cache"]
    note_running(saved, this_process(Text("p.yaml", newer, 2.0), only=("other",)))
    runs(saved, text)
    os.utime(running_path(saved, ()), (2**32, 2**32))
    assert not only_saved(saved, "sinks", "other") and sinks_to_wait_for(saved) == ["cache", "other"]
    note_running(saved, this_process(Text("p.yaml", text, 2.0), only=("other",), refused={"reason": "x"}))
    assert not only_saved(saved, "sinks", "other"), "it was applied, and refused"
    assert sinks_to_wait_for(saved) == ["cache", "other"], "a write would be called visible without it"


def test_a_write_is_not_waited_for_in_a_sink_that_never_had_anything(saved: Pipeline, tmp_path: Path) -> None:
    assert sinks_to_wait_for(saved) == ["cache"]
    runs(saved, TWO.format(folder=tmp_path))
    assert sinks_to_wait_for(saved) == ["cache", "other"]
    runs(saved, FILE.format(folder=tmp_path).replace("cache:", "former:"))
    assert sinks_to_wait_for(saved) == ["cache"], "readers of it may be there"
    runs(saved, "no file: [")
    assert sinks_to_wait_for(saved) == ["cache", "other"]


def test_a_text_that_looks_like_a_date_and_is_none(saved: Pipeline, tmp_path: Path) -> None:
    """`status`, alarms and `/v1/wait` ended with a ValueError, of a file that `run` goes by."""
    runs(saved, FILE.format(folder=tmp_path) + "alert: 2026-02-30\n")
    assert sinks_to_wait_for(saved) == ["cache"] and only_saved(saved, "sinks", "other")
    pause(saved, "other", None, lambda _: None)
    assert is_(saved, "other")[0] == "paused"


def test_the_files_of_many_pipelines_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait read its own anew, a tenth of a second, where more than eight pipelines were served."""
    served = [loads(TWO.format(folder=tmp_path / str(number)), "p.yaml") for number in range(30)]
    for number, made in enumerate(served):
        runs(made, FILE.format(folder=tmp_path / str(number)))
    read = list[Any]()
    monkeypatch.setattr("cdc.pipeline.document.YAML", lambda **how: read.append(1) or YAML(**how))
    assert [sinks_to_wait_for(made) for made in served * 2] == [["cache"]] * 60
    assert len(read) == len(served)


def test_never_for_none_at_all(tmp_path: Path) -> None:
    made = loads(FILE.format(folder=tmp_path), "p.yaml")
    runs(made, FILE.format(folder=tmp_path).replace("cache:", "former:"))
    assert sinks_to_wait_for(made) == ["cache"]


def test_of_what_sends_and_of_standing_queries_nobody_is_alarmed_before_they_are_applied(tmp_path: Path) -> None:
    made = loads(sending(tmp_path), "p.yaml")
    bad = {(name, labels): value for (name, labels), value in samples(metrics([made])).items() if value == 0}
    names = {"found", "told", "queries.order"}
    assert {one.name for one in outlets(made)} == names
    hooks = {("headwater_push_well", ("standing", name)) for name in names}
    still = ("headwater_standing_working", ("standing", "order"))
    assert hooks | {still} <= bad.keys(), "no run is alive"
    runs(made, sending(tmp_path))
    assert hooks | {still} <= samples(metrics([made])).keys(), "its file has them, and nobody sends"
    runs(made, sending(tmp_path, ""))
    assert not (hooks | {still}) & samples(metrics([made])).keys()
    assert {(one["name"], one["state"]) for one in push_report(made)} == {(name, "unapplied") for name in names}
    runs(made, sending(tmp_path, "queries: {order: {search: search, changes: cache}}\n"))
    assert not hooks & samples(metrics([made])).keys() and still in samples(metrics([made]))
    assert not only_saved(made, "queries", "order") and only_saved(made, "queries", "order", "saved")
