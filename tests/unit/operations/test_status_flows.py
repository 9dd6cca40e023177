"""How flows are judged and counted around a pause, and which of several a sink's cause is about."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import KafkaUnavailable, LogTruncated
from cdc.log.ends import Lag, LogEnds
from cdc.pipeline import Pipeline
from operations.freshness.note import FlowNote, SinkNote, read_source_note, write_sink_note, write_source_note
from operations.generations.lag import behind
from operations.overview.tables import _records
from operations.state.folder import register_of
from operations.state.pausing import TAKEN_UP_SECONDS, pause, resume
from operations.status.alive import ailments
from operations.status.facts import judged
from operations.status.generations import generations_report
from operations.status.sinks import _sink, status_report, with_judgement
from spark.disk.filling import FillState, save, write_live
from spark.disk.status import FlowStatus
from tests.support.brokers import Brokers
from tests.support.metric_cases import pipeline as at_work


def quiet(_line: str) -> None: ...


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return at_work(tmp_path, verified=False)


def flow(pipeline: Pipeline, name: str = "main", **more: Any) -> Path:
    """A flow's folder, with what its process said last."""
    generation = register_of(pipeline, "cache").generation()
    status = FlowStatus.read(generation.flow_folder("main"))
    assert status is not None
    folder = generation.flow_folder(name)
    folder.mkdir(exist_ok=True)
    replace(status, flow=f"cache/{name}", **more).write(folder)
    return folder


class NoLog:
    """Kafka is away: how far flows are behind is not known."""

    def ends(self, _topics: Any) -> Any:
        raise KafkaUnavailable("Kafka does not answer")

    lag = ends


def test_flows_of_a_paused_sink_are_paused_and_raise_no_alarm(pipeline: Pipeline) -> None:
    pause(pipeline, "cache", "new disks", quiet)
    flow(pipeline, state="stopped")  # as `run` let it go
    report = judged(pipeline).sinks["cache"]
    assert [one.judged for one in report.flows.values()] == [report.judged]
    told = with_judgement(_sink(pipeline, "cache", NoLog()), report)
    assert [one["judgement"] for one in told["flows"]] == [told["judgement"]] == ["paused"]


def test_a_sink_that_was_just_resumed_is_starting_beside_a_run_that_is_alive(pipeline: Pipeline) -> None:
    """What `run` said as it let it go, "stopped", was a red alarm with the advice to start what was running."""
    pause(pipeline, "cache", None, quiet)
    flow(pipeline, state="stopped")
    resume(pipeline, "cache")
    report = judged(pipeline).sinks["cache"]
    assert {report.judged.judgement, *(one.judged.judgement for one in report.flows.values())} == {"starting"}
    assert report.judged.remedy is None and ailments(pipeline) == []
    flow(pipeline, state="starting")  # as long as it was paused it did not get on, and must not be said to hang
    now = time.time()
    write_sink_note(pipeline, "cache", SinkNote(now, now - 1_000, {1: {"main": FlowNote(now - 900, 9, now - 900)}}))
    assert judged(pipeline).sinks["cache"].judged.judgement == "starting"
    flow(pipeline, state="failed", last_error="no room")  # taken up, and its own word is news again
    assert judged(pipeline).sinks["cache"].judged.judgement == "failed" and ailments(pipeline)
    flow(pipeline, state="stopped")
    path, now = register_of(pipeline, "cache").folder / "resumed", time.time()
    for at in (now - TAKEN_UP_SECONDS - 1, now + 3_600):  # or before the clock was put back
        os.utime(path, (at, at))
        assert judged(pipeline).sinks["cache"].judged.judgement == "stopped" and ailments(pipeline)


def test_a_sink_that_was_resumed_without_a_run_is_stopped(pipeline: Pipeline) -> None:
    pause(pipeline, "cache", None, quiet)
    flow(pipeline, state="stopped")
    resume(pipeline, "cache")
    note = read_source_note(pipeline)
    assert note is not None
    write_source_note(pipeline, replace(note, at=time.time() - 60))
    report = judged(pipeline).sinks["cache"].judged
    assert (report.judgement, report.remedy) == ("stopped", "`headwater run FILE`")
    assert ailments(pipeline) == ["cache, main: stopped"]


def test_of_flows_that_are_as_bad_the_cause_names_the_one_that_most_waits_for(pipeline: Pipeline) -> None:
    flow(pipeline, "a_little")
    flow(pipeline, "order_items")
    now = time.time()
    notes = {
        "main": FlowNote(now, 0, now),
        "a_little": FlowNote(now - 52, 504, now),
        "order_items": FlowNote(now - 52, 20_442, now),
    }
    write_sink_note(pipeline, "cache", SinkNote(now, now - 1_000, {1: notes}))
    report = judged(pipeline).sinks["cache"].judged
    assert report.judgement == "behind" and "20,442 records wait for order_items" in (report.cause or "")


@pytest.mark.parametrize(("commits", "number"), [(0, 1), (4, 5)])
def test_a_joined_views_batches_have_one_number_wherever_they_are_told(
    pipeline: Pipeline, commits: int, number: int
) -> None:
    folder = flow(pipeline, batch_id=number)
    save(folder, FillState("s", "a", "t", True, {"t": {0: 0}}, {"t": {0: 9}}, slices=2))
    write_live(folder)
    (folder / "checkpoint" / "commits").mkdir(parents=True)
    for commit in range(commits):
        (folder / "checkpoint" / "commits" / str(commit)).touch()
    [told] = _sink(pipeline, "cache", NoLog())["flows"]
    assert told["batch_id"] == number
    (folder / "fill.json").write_text("{")  # a damaged note shows how far the checkpoint is
    assert commits == 0 or _sink(pipeline, "cache", NoLog())["flows"][0]["batch_id"] == commits - 1


class Log:
    """A log of one topic that ends at 10 and one that ends at 5."""

    def ends(self, topics: Any) -> Any:
        return {topic: {0: {"a": 10, "b": 5}[topic]} for topic in topics}

    def lag(self, ends: Any, offsets: Any) -> Any:
        known = (ends[t][0] - offsets.get(t, {}).get(0, 0) for t in ends)
        return Lag(sum(known), None)


def commits(folder: Path, **offsets: int) -> None:
    """A checkpoint, as Spark leaves it after a batch."""
    at = {topic: {"0": offset} for topic, offset in offsets.items()}
    for name, lines in (("offsets", ["v1", "{}", json.dumps(at)]), ("commits", ["v1", "{}"])):
        (folder / "checkpoint" / name).mkdir(parents=True, exist_ok=True)
        (folder / "checkpoint" / name / "0").write_text("\n".join(lines))


def test_how_far_a_generation_is_is_told_also_while_a_joined_view_is_filled(pipeline: Pipeline) -> None:
    """Until a fill has ended the checkpoint is empty: 0 % for hours."""
    plain, joined = flow(pipeline, topics=["b"]), flow(pipeline, "joined", topics=["a"])
    commits(plain, b=3)
    fill = FillState("s", "x", "a", False, {"a": {0: 0}}, {"a": {0: 8}}, rows={"a": {0: 8}}, documents={"a": {0: 6}})
    save(joined, fill)
    told = _sink(pipeline, "cache", Log())
    assert [one["fill"] for one in told["flows"]] == [{"done": 14, "total": 16}, None]
    assert told["progress"] == told["generations"][0]["progress"] == {"done": 3 + 14, "total": 5 + 16}
    assert (told["lag_events"], told["lag_seconds"]) == (10 + 2, None)
    assert _sink(pipeline, "cache", NoLog())["progress"] is None, "of the plain flow nobody knows"
    write_live(joined)
    commits(joined, a=9)
    told = _sink(pipeline, "cache", Log())
    assert [one["fill"] for one in told["flows"]] == [None, None] and told["progress"] == {"done": 12, "total": 15}
    (joined / "phase.json").write_text("{")  # a damaged note keeps nobody from looking
    assert _sink(pipeline, "cache", Log())["progress"] == {"done": 12, "total": 15}


def test_a_report_asks_kafka_once_however_many_flows_there_are(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flow was the whole cluster's metadata and a question for each of its partitions."""
    topics = {f"t{number}": {0: (0, number), 1: (0, number)} for number in range(40)}
    for name in topics:
        flow(pipeline, name, topics=[name])
    brokers = Brokers({**topics, "t": {0: (0, 0)}})
    monkeypatch.setattr("cdc.log.ends.AdminClient", lambda _settings: brokers)
    monkeypatch.setattr(LogEnds, "_first", lambda *_: {})
    [sink] = status_report(pipeline)["sinks"]
    assert {one["flow"]: one["lag_events"] for one in sink["flows"]} == {
        "main": 0,
        **{name: 2 * parts[0][1] for name, parts in topics.items()},
    }
    assert brokers.requests == ["describe", "offsets", "offsets"]
    [made] = generations_report(pipeline)["sinks"][0]["generations"]
    assert made["lag_events"] == sink["lag_events"] and len(brokers.requests) == 6
    monkeypatch.setattr("operations.generations.lag.committed_offsets", lambda at: (1, {at.parent.name: {0: 1}}))
    del brokers.topics["t"]
    brokers.topics |= {"main": {0: (0, 5)}, "t0": {0: (0, 1)}}
    assert behind(pipeline, "cache", 1) == 4 + sum(2 * number - 1 for number in range(1, 40))
    assert len(brokers.requests) == 9
    monkeypatch.setattr("spark.shorter.SHORTER_SECONDS", 0.0)
    brokers.topics["t3"] = {0: (0, 0)}  # the log has become shorter: who has read further is not level with it
    with pytest.raises(LogTruncated, match="generation 1 has read t3/0 up to 1, and it ends at 0"):
        behind(pipeline, "cache", 1)
    flow(pipeline, "t3", topics=["t3"], state="finished")  # its table was let go, and its topic made anew
    assert behind(pipeline, "cache", 1) > 0


def test_a_flow_says_why_it_is_not_known_how_far_it_is_behind(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow(pipeline, "there", topics=["there"])
    flow(pipeline, "gone", topics=["gone"])
    brokers = Brokers({"t": {0: (0, 0)}, "there": {0: (0, 0)}})
    monkeypatch.setattr("cdc.log.ends.AdminClient", lambda _settings: brokers)
    [sink] = status_report(pipeline)["sinks"]
    missing = "topic gone does not exist"
    assert {one["flow"]: one["lag_error"] for one in sink["flows"]} == {"main": None, "there": None, "gone": missing}
    log = LogEnds("127.0.0.1:1", {})
    assert _records(log, ["t", "there"]) == {"topics": 2, "records": 0, "records_error": None}
    assert _records(log, ["gone"]) == {"topics": 1, "records": None, "records_error": missing}
    brokers.away = True
    for one in status_report(pipeline)["sinks"][0]["flows"]:
        assert one["lag_error"].startswith("Kafka does not answer")
