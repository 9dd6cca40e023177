"""A pipeline judged by what lies in its state folder: no server is there to be asked."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.pipeline import Pipeline, load
from connectors.ledger import LedgerEntry
from connectors.wal.budget import Budget
from console.cli import status as verb
from console.cli.main import cli
from operations.erase.note import Note
from operations.freshness.note import FlowNote, SinkNote, SourceNote, write_sink_note, write_source_note
from operations.freshness.place import Place
from operations.freshness.waits import Waits
from operations.letters.writes import WriteLetters
from operations.state.accepted import Text, note_running, this_process
from operations.state.folder import register_of
from operations.state.losses import LossNote
from operations.state.pausing import pause, resume
from operations.status.alive import ailments
from operations.status.facts import judged, judged_apart, sink_limit
from operations.status.judgement import Judgement
from spark.disk.status import FlowStatus
from tests.support.lone_cache import FILE
from tests.support.metric_cases import pipeline as at_work


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return at_work(tmp_path, verified=False)


def told(pipeline: Pipeline) -> tuple[str, str]:
    report = judged(pipeline)
    return report.source.judgement, report.sinks["cache"].judged.judgement


def noted(pipeline: Pipeline, ago: float, *, at: float = 0.0, behind: int = 0, still: float = 0.0) -> None:
    """A word of the sink: its age, how long ago it was said, what waits, since when nothing has moved."""
    now = time.time()
    note = FlowNote(now - ago, behind, now - still)
    write_sink_note(pipeline, "cache", SinkNote(now - at, now - 1_000, {1: {"main": note}}))


def source(pipeline: Pipeline, **more: Any) -> None:
    now = time.time()
    note = SourceNote(now, now - 1_000, now - 1, now, now, connector="RUNNING", tasks=["RUNNING"], slot_there=True)
    write_source_note(pipeline, replace(note, **more))


def test_at_work_it_is_well(pipeline: Pipeline) -> None:
    assert told(pipeline) == ("well", "well")


def test_the_age_grows_while_nobody_says_anything(pipeline: Pipeline) -> None:
    noted(pipeline, 25, at=24)
    assert told(pipeline)[1] == "well"
    noted(pipeline, 31, at=30)
    report = judged(pipeline).sinks["cache"]
    assert (report.judged.judgement, 31 <= (report.age or 0) < 40) == ("behind", True)
    cause = judged_apart(pipeline)[1]["cache"].cause or ""  # of which an alarm is made: nothing stands beside it
    assert re.search(r"what readers see is 3\d s old", cause) and "old" not in str(report.judged.cause), cause


def test_what_keeps_the_log_is_a_sinks_cause(pipeline: Pipeline) -> None:
    now = time.time()
    noted(pipeline, 40)
    source(
        pipeline, as_of=now - 40, connector="unknown", tasks=[], connector_error="Connect does not answer at http://c"
    )
    report = judged(pipeline)
    assert (report.source.judgement, report.sinks["cache"].judged.judgement) == ("stalled", "behind")
    assert "Connect does not answer" in (report.sinks["cache"].judged.cause or "")
    assert report.sinks["cache"].judged.remedy == report.source.remedy


def test_a_watch_that_has_ended_says_nothing_of_the_source(pipeline: Pipeline) -> None:
    source(pipeline, at=time.time() - 60)
    assert told(pipeline)[0] == "stopped"
    live = {"connector": "PAUSED", "tasks": ["PAUSED"], "error": None, "slot_active": False}
    assert judged(pipeline, live=live).source.judgement == "paused"
    live = {"connector": "unknown", "tasks": [], "error": "no answer", "slot_active": None}
    assert judged(pipeline, live=live).source.judgement == "stopped"


def test_a_flow_that_hangs_is_stalled_and_after_a_while_not_alive(pipeline: Pipeline) -> None:
    noted(pipeline, 200, behind=9, still=200)
    assert told(pipeline)[1] == "stalled"
    assert ailments(pipeline) == []
    noted(pipeline, 1_000, behind=9, still=1_000)
    assert len(ailments(pipeline)) == 1 and ailments(pipeline)[0].startswith("cache, main: stalled: it says")
    noted(pipeline, 1_000, behind=0, still=0)
    source(pipeline, connector="FAILED")
    assert ailments(pipeline) == []  # what no new process would cure


def test_pauses_losses_and_refusals(pipeline: Pipeline) -> None:
    register = register_of(pipeline, "cache")
    register.generation().refuse("sink cache is not run\n  what to do: correct the view")
    report = judged(pipeline).sinks["cache"].judged
    assert (report.judgement, report.remedy) == ("failed", "correct the view")
    note = LossNote(register.folder)
    note.write(time.time(), 1, "rebuild", "12,000 of 90,000", None)
    assert told(pipeline)[1] == "filling"
    pause(pipeline, "cache", "new disks", print)
    report = judged(pipeline).sinks["cache"].judged
    assert report.judgement == "paused" and report.remedy == "`headwater resume FILE cache`"
    resume(pipeline, "cache")
    pause(pipeline, "cache", "headwater erase 0123456789ab", print)
    with Note(pipeline).alone():
        report = judged(pipeline).sinks["cache"].judged  # nobody is told to let the sink write beside an erasure
    assert report.judgement == "paused" and report.remedy and "resume" not in report.remedy
    report = judged(pipeline).sinks["cache"].judged  # one that is dead holds up nothing, and may never come again
    assert report.judgement == "paused" and report.remedy and "`headwater resume FILE cache`" in report.remedy
    note.clear()


@pytest.mark.parametrize("refused", [True, False], ids=["not run", "its flow is stopped"])
def test_nobody_is_asked_for_what_was_applied_and_is_being_built(pipeline: Pipeline, refused: bool) -> None:
    """`status` went on to ask for a corrected view and a rebuild, beside the word that `run` builds by that view."""
    register = register_of(pipeline, "cache")
    generation = register.generation()
    why = "view v can't follow\n  what to do: correct the view in f, then `headwater rebuild f cache --auto`"
    if refused:
        generation.refuse(why)
    else:
        status = FlowStatus.read(generation.flow_folder("main"))
        assert status is not None
        replace(status, state="failed", last_error=why).write(generation.flow_folder("main"))
    text = Text("f", "the file", 1.0)
    note_running(pipeline, this_process(text))
    report = judged(pipeline).sinks["cache"]
    assert report.judged.remedy and "rebuild f cache" in report.judged.remedy
    note_running(pipeline, this_process(text, building=("cache",)))
    mends = "view v can't follow; the file that was applied mends it: "
    report = judged(pipeline).sinks["cache"]
    assert report.judged == Judgement("failed", mends + "its next generation is about to be filled")
    number = register.create("views.v changed").number
    report = judged(pipeline).sinks["cache"]
    assert report.judged == Judgement("failed", mends + f"generation {number} is being filled")
    assert refused or report.flows["main"].judged == report.judged
    generation.refuse("view v can't follow\n  what to do: free its disk")  # what no other generation mends
    assert judged(pipeline).sinks["cache"].judged == Judgement("failed", "view v can't follow", "free its disk")


def test_a_sink_is_as_its_worst_flow_and_finished_ones_are_none(pipeline: Pipeline) -> None:
    generation = register_of(pipeline, "cache").generation()
    status = FlowStatus.read(generation.flow_folder("main"))
    assert status is not None
    for name, state in (("old", "finished"), ("new", "retrying")):
        generation.flow_folder(name).mkdir()
        replace(status, flow=name, state=state, last_error="no answer").write(generation.flow_folder(name))
    report = judged(pipeline).sinks["cache"]
    assert report.judged.judgement == "retrying" and set(report.flows) == {"main", "new"}
    assert report.as_of is None  # of one nothing is known


def test_a_warehouse_may_be_older(tmp_path: Path) -> None:
    text = FILE.format(folder=tmp_path / "state").replace(
        '{type: redis, url: "redis://127.0.0.1:1", view: v}',
        "{type: iceberg, catalog_uri: /c.db, warehouse: /w, namespace: n, trigger_seconds: 60, view: v}",
    )
    (tmp_path / "w.yaml").write_text(text)
    assert sink_limit(load(tmp_path / "w.yaml"), "cache") == 30 + 2 * 60


def asking() -> int:
    """How many threads ask Postgres and Kafka how old sinks are."""
    return sum(thread.name == "waits" for thread in threading.enumerate())


def test_a_server_asks_nobody_while_run_tells_how_old_it_is(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, before = list[str](), asking()

    def counted(of: Pipeline, sink: str) -> Place:
        made.append(sink)
        return Place(of, sink)

    monkeypatch.setattr("operations.freshness.sights.Place", counted)
    with closing(Waits(pipeline, WriteLetters(pipeline))) as waits:
        noted(pipeline, ago=2.0, behind=5)
        as_of, reach = waits.as_of("cache", urge=False)
        assert as_of is not None and reach is not None and (reach.behind, reach.there) == (5, False)
        noted(pipeline, ago=9.0)  # a database at rest
        as_of, reach = waits.as_of("cache", urge=False)
        assert as_of is not None and time.time() - as_of > 8 and reach is not None and reach.there
        assert asking() == before and made == ["cache"]


@pytest.mark.parametrize("case", ["urged", "silent", "failed", "paused"])
def test_what_run_does_not_tell_is_measured(pipeline: Pipeline, case: str) -> None:
    noted(pipeline, ago=1.0, at=60.0 if case == "silent" else 0.0)
    flow = register_of(pipeline, "cache").generation().flow_folder("main")
    if case == "failed":
        status = FlowStatus.read(flow)
        assert status is not None
        replace(status, state="failed").write(flow)
    if case == "paused":
        pause(pipeline, "cache", "new disks", print)
    before = asking()
    with closing(Waits(pipeline, WriteLetters(pipeline))) as waits:
        # Known from the first question on, unless it can not be trusted.
        as_of, reach = waits.as_of("cache", urge=case == "urged")
        assert reach is None and (as_of is None) == (case == "paused")
        assert asking() == before + 1


def test_how_far_flows_are_is_read_as_it_was_told(pipeline: Pipeline) -> None:
    folder = register_of(pipeline, "cache").generation().flow_folder("main")
    place = Place(pipeline, "cache")
    [before] = place.flows()[1].values()
    assert not before.applied and before.hold is None
    (folder / "applied.json").write_text(json.dumps({"batch": 1, "offsets": {"t": {"0": 5}}}))
    [after] = place.flows()[1].values()
    assert after.applied == {"t": {0: 5}} and after.sign != before.sign
    status = FlowStatus.read(folder)
    assert status is not None
    replace(status, got_on=1).write(folder)  # a batch that takes long, and is no hang
    [later] = place.flows()[1].values()
    assert later.applied == after.applied and later.sign != after.sign
    for name, note in (("fill.json", {"rows": {}}), ("phase.json", {"phase": "rows"})):  # the latter is of old
        (folder / name).write_text(json.dumps(note))
        [filling] = place.flows()[1].values()
        assert filling.hold == "view main is being filled"
        (folder / name).unlink()
    LossNote(place.register.folder).write(time.time(), 1, "", "", None)
    [lost] = place.flows()[1].values()
    assert lost.void and "lost" in (lost.hold or "")
    place.close()


def test_a_sink_of_whole_tables_that_never_ran_has_nothing(tmp_path: Path) -> None:
    """Its tables are known once it has begun: with no flow nothing was behind, and a wait was answered `visible`."""
    text = FILE.format(folder=tmp_path / "state").replace(
        '{type: redis, url: "redis://127.0.0.1:1", view: v}',
        "{type: iceberg, catalog_uri: /c.db, warehouse: /w, namespace: n, tables: all}",
    )
    (tmp_path / "w.yaml").write_text(text)
    pipeline = load(tmp_path / "w.yaml")
    assert pipeline.sinks["cache"].tables == "all"
    with closing(Place(pipeline, "cache")) as place:
        seen = place.look()
    for views in ((), ("airline",)):
        reach = seen.reach(LedgerEntry(9, {"t": {0: 5}}), views)
        assert not reach.there and reach.reason == "no flow of generation 1 has begun" and not seen.well(views)


# -- the verb ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """`--watch` sleeps once, and is then ended by Ctrl-C."""
    slept: list[float] = []
    sleeps = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():  # of another test's Spark, say
            sleeps(seconds)
            return
        slept.append(seconds)
        if len(slept) > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(verb.time, "sleep", sleep)
    return slept


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is asked."""

    def report(pipeline: Pipeline, only: tuple[str, ...] = ()) -> dict[str, Any]:
        found = judged(pipeline, only).sinks["cache"]
        sink = {
            "sink": "cache",
            "type": "redis",
            "state": "running",
            "lag_events": 0,
            "lag_seconds": 0.0,
            "last_error": None,
            "warning": None,
            "rebuilding": None,
            "paused": None,
            "flows": [],
            "generations": [],
            "judgement": found.judged.judgement,
            "cause": found.judged.cause,
            "remedy": found.judged.remedy,
            "age_seconds": found.age,
        }
        source = {
            "connector": "RUNNING",
            "tasks": ["RUNNING"],
            "slot_active": True,
            "slot_lag_bytes": 0,
            "wal": Budget(0, 2**30, level="none").to_dict(),
            "tables": {},
            "error": None,
            "judgement": "stalled",
            "cause": "the slot has not moved [sic]",
        }
        file = {"refused": None, "building": []}
        return {
            "pipeline": "p",
            "sinks": [sink],
            "evolving": [],
            "push": [],
            "standing": [],
            "file": file,
            "source": source,
        }

    monkeypatch.setattr(verb, "status_report", report)


def test_the_table_says_how_it_is_and_why(pipeline: Pipeline, known: None, tmp_path: Path) -> None:
    noted(pipeline, 95, behind=7)
    shown = CliRunner().invoke(cli, ["status", str(tmp_path / "pipeline.yaml")], env={"COLUMNS": "160"}).output
    assert "behind" in shown and "95." in shown
    assert "cache is behind: 7 records wait" in shown  # its age stands above; a second one was another flow's
    assert "stalled: the slot has not moved [sic]" in shown


def test_watching_looks_again_until_it_is_ended(known: None, pipeline: Pipeline, twice: list[float]) -> None:
    file = str(Path(pipeline.engine.state_dir).parent / "pipeline.yaml")
    result = CliRunner().invoke(cli, ["status", file, "--watch", "--json"])
    lines = result.output.splitlines()
    assert (result.exit_code, len(lines), twice) == (0, 2, [2.0, 2.0])
    assert all(json.loads(one)["sinks"][0]["judgement"] == "well" for one in lines)
    twice.clear()
    result = CliRunner().invoke(cli, ["status", file, "--watch"], env={"COLUMNS": "160"})
    assert result.exit_code == 0 and "pipeline p" in result.output


def test_the_process_that_holds_it_counts(pipeline: Pipeline) -> None:
    """A process that is gone is `stopped`, whatever it said last, and however young that is."""
    folder = register_of(pipeline, "cache").generation().flow_folder("main")
    status = FlowStatus.read(folder)
    assert status is not None and status.pid == os.getpid()
    replace(status, pid=2**22 + 1).write(folder)
    assert told(pipeline) == ("well", "stopped")
