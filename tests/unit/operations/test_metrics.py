"""What `/metrics` says: all of it is documented, and it is quick."""

from __future__ import annotations

import errno
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from cdc.pipeline import Pipeline, load
from connectors.wal.budget import judge
from console.http.app import make_app
from console.http.guard import Access
from console.http.served import Pipelines
from operations.freshness.note import (
    read_source_note,
    write_source_note,
)
from operations.metrics import pipelines as metrics_module
from operations.metrics.pipelines import metrics
from operations.push.health import note_path
from operations.state import wal
from operations.state.folder import register_of, state_dir
from operations.state.wal import Window, write_window
from operations.status import facts
from operations.status.facts import Report
from operations.status.judgement import JUDGEMENTS
from tests.support.lone_cache import FILE
from tests.support.metric_cases import NAME, ROOT, named, paused, pipeline, samples
from tests.support.standing_file import noted


def test_every_metric_is_documented_and_no_other(tmp_path: Path) -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    all_of_them = [pipeline(tmp_path), paused(tmp_path / "paused", time.time()), noted(tmp_path / "standing")]
    assert named(metrics(all_of_them)) == set(NAME.findall(page))


def test_what_is_told(tmp_path: Path) -> None:
    found = samples(metrics([pipeline(tmp_path)]))
    flow = ("main", "1", "p", "cache")
    assert 2.0 <= found["headwater_flow_age_seconds", flow] < 10.0
    counted = {name: found[f"headwater_flow_{name}_total", flow] for name in ("records", "written", "rejected")}
    assert counted == {"records": 9, "written": 7, "rejected": 4}
    assert found["headwater_flow_restarts_total", flow] == 3
    assert found["headwater_flow_batch_seconds", flow] == 0.25
    assert found["headwater_flow_lag_records", flow] == 5
    judged = {name: found["headwater_sink_judgement", ("1", name, "p", "cache")] for name in JUDGEMENTS}
    assert judged == {name: float(name == "well") for name in JUDGEMENTS}
    assert found["headwater_source_judgement", ("well", "p")] == 1
    assert found["headwater_source_slot_safe_bytes", ("p",)] == 9_000
    assert found["headwater_verify_repaired_total", ("p", "cache", "v")] == 2
    hook = ("p", "hook")
    assert found["headwater_push_well", hook] == 0 and found["headwater_push_lag_entries", hook] == 12
    assert found["headwater_push_letters_total", hook] == 2 and found["headwater_push_events_total", hook] == 30


def test_what_batches_take(tmp_path: Path) -> None:
    text = metrics([pipeline(tmp_path)])
    found, flow = samples(text), ("main", "1", "p", "cache")
    spent = {of[2]: value for (name, of), value in found.items() if name == "headwater_flow_phase_seconds_total"}
    assert spent == {"offsets": 0, "plan": 0, "apply": 0.9, "commit": 0, "other": 0.1}
    assert found["headwater_flow_sink_seconds_total", flow] == 1.5
    assert found["headwater_flow_retries_total", flow] == 6
    spread = {
        sample.labels["le"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "headwater_flow_batch_duration_seconds_bucket"
    }
    assert (spread["0.05"], spread["0.1"], spread["60.0"], spread["300.0"], spread["+Inf"]) == (0, 2, 2, 2, 3)
    assert found["headwater_flow_batch_duration_seconds_count", flow] == 3
    assert found["headwater_flow_batch_duration_seconds_sum", flow] == 1.0


def test_a_row_stores_memory_is_told_as_long_as_somebody_looks(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    found = samples(metrics([made]))
    used = {of[0]: value for (name, of), value in found.items() if name == "headwater_row_store_used_bytes"}
    limits = {of[0]: value for (name, of), value in found.items() if name == "headwater_row_store_limit_bytes"}
    assert (used, limits) == ({"h:1": 70, "h:2": 60}, {"h:1": 100})
    note = read_source_note(made)
    assert note is not None
    write_source_note(made, replace(note, at=note.at - 60))
    assert not [name for name, _ in samples(metrics([made])) if "row_store" in name]


def test_of_a_source_nothing_stays_as_it_was_when_nobody_looks(tmp_path: Path) -> None:
    """A connector that runs and a slot that is read, for days after `run` had died."""
    made = pipeline(tmp_path)
    note = read_source_note(made)
    assert note is not None
    write_source_note(made, replace(note, at=note.at - 60))
    found = samples(metrics([made]))
    told = {name.removeprefix("headwater_source_") for name, _ in found if name.startswith("headwater_source_")}
    assert told == {
        "judgement",
        "age_seconds",
        "age_limit_seconds",
        "as_of_timestamp_seconds",
        "noted_timestamp_seconds",
    } | {"wal_level", "wal_full_bytes"}, "of the WAL there is a note of its own"


def test_how_near_its_limit_the_wal_is_goes_by_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `max_slot_wal_keep_size` no metric knew that the disk fills up."""
    made = pipeline(tmp_path)

    def levels() -> dict[str, float]:
        found = samples(metrics([made]))
        return {of[0]: value for (name, of), value in found.items() if name == "headwater_source_wal_level"}

    assert levels() == {"none": 0, "warn": 0, "alarm": 1, "over": 0}
    assert samples(metrics([made]))["headwater_source_wal_full_bytes", ("p",)] == 1_000
    write_window(made, Window(), judge(retained=None, budget=1_000, limit=None))
    assert levels() == {}, "there is no slot"
    write_window(made, Window(), judge(retained=1, budget=1_000, limit=None))
    assert levels()["none"] == 1
    monkeypatch.setattr(wal, "WEIGHED_SECONDS", -1.0)
    assert levels() == {}, "nobody has looked since"


def test_a_connector_without_a_task_does_not_run(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    note = read_source_note(made)
    assert note is not None and samples(metrics([made]))["headwater_source_connector_running", ("p",)] == 1
    write_source_note(made, replace(note, tasks=[]))
    assert samples(metrics([made]))["headwater_source_connector_running", ("p",)] == 0


def test_what_is_not_known_has_no_sample(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.format(folder=tmp_path / "state"))
    found = samples(metrics([load(path)]))
    assert not [name for name, _ in found if "_age_seconds" in name or "_slot_" in name or "_flow_" in name]
    assert found["headwater_sink_judgement", ("1", "stopped", "p", "cache")] == 1


def test_several_pipelines_are_one_text_and_one_that_cant_be_read_is_named(tmp_path: Path) -> None:
    one, two = pipeline(tmp_path / "a", "a"), pipeline(tmp_path / "b", "b")
    bad = pipeline(tmp_path / "c", "c")
    (state_dir(bad) / "c" / "format.json").write_text('{"format": 999}')
    text = metrics([one, two, bad])
    found = samples(text)
    assert len(re.findall("^# TYPE headwater_flow_written_total", text, flags=re.MULTILINE)) == 1
    assert len(re.findall("^# TYPE headwater_verify_equal", text, flags=re.MULTILINE)) == 1
    assert {of[0] for name, of in found if name == "headwater_verify_equal"} == {"a", "b"}
    assert [found["headwater_state_readable", (name,)] for name in "abc"] == [1, 1, 0]


def test_one_whose_state_cant_be_read_leaves_the_others_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of another owner, a file that holds anything: it is named, and has no other metric."""
    one, odd, shut = (pipeline(tmp_path / name, name) for name in ("a", "b", "c"))
    where = facts.judged

    def judged(made: Pipeline) -> Report:
        if made is shut:
            raise PermissionError(errno.EACCES, "Permission denied")
        if made is odd:
            raise AttributeError("'NoneType' object has no attribute 'pop'")
        return where(made)

    def closed(made: Pipeline, sink: str) -> bool:
        if made.name == "c":
            raise PermissionError(errno.EACCES, "Permission denied")
        return False

    monkeypatch.setattr(metrics_module, "judged", judged)
    monkeypatch.setattr("operations.push.health.rests", closed)
    found = samples(metrics([one, odd, shut]))
    assert [found["headwater_state_readable", (name,)] for name in "abc"] == [1, 0, 0]
    about = {of[0] for name, of in found if name in ("headwater_push_letters_total", "headwater_verify_equal")}
    assert about == {"a"}, "of what can't be read there is no other metric"


def test_a_note_that_holds_nothing_is_as_none(tmp_path: Path) -> None:
    """What a restore may leave; it made every scrape of the server fail."""
    made = pipeline(tmp_path)
    for path in (register_of(made, "cache").folder / "loss.json", note_path(made, "hook")):
        path.write_text("null")
    found = samples(metrics([made]))
    assert found["headwater_sink_judgement", ("1", "well", "p", "cache")] == 1
    assert ("headwater_push_letters_total", ("p", "hook")) not in found


def test_what_is_not_to_be_read_of_webhooks_alone_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (pipeline(tmp_path / name, name) for name in ("a", "b"))

    def closed(made: Pipeline, sink: str) -> bool:
        if made.name == "b":
            raise PermissionError(errno.EACCES, "Permission denied")
        return False

    monkeypatch.setattr("operations.push.health.rests", closed)
    found = samples(metrics([one, two]))
    assert {of[0] for name, of in found if name == "headwater_push_letters_total"} == {"a"}
    assert found["headwater_sink_judgement", ("1", "well", "b", "cache")] == 1


def test_until_when_a_paused_sink_must_be_resumed(tmp_path: Path) -> None:
    """Of one that was forgotten nobody was told before it had to be made anew."""
    since = 1_795_000_000.0
    made, sink = paused(tmp_path, since), ("1", "q", "cache")
    found = samples(metrics([made, pipeline(tmp_path / "other", "p")]))
    assert found["headwater_sink_paused_timestamp_seconds", sink] == since
    until = since + made.kafka.tombstone_retention_hours * 3600
    assert found["headwater_sink_resume_before_timestamp_seconds", sink] == until
    assert [of for name, of in found if name == "headwater_sink_resume_before_timestamp_seconds"] == [sink]
    (register_of(made, "cache").folder / "paused.json").write_text("{")  # nobody knows
    found = samples(metrics([made]))
    assert found["headwater_sink_resume_before_timestamp_seconds", sink] == 0
    assert found["headwater_sink_paused_timestamp_seconds", sink] == 0


def test_a_scrape_takes_milliseconds(tmp_path: Path) -> None:
    many = [pipeline(tmp_path / f"p{number}", f"p{number}") for number in range(10)]
    seconds = []
    for _ in range(9):
        began = time.process_time()  # our own: a machine that others use takes as long as it takes
        metrics(many)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.1, seconds  # 0.05 was 0.053 in a slow hour


class Answered(list[Any]):
    """The pipelines of a server."""

    def watch(self) -> None: ...

    def close(self) -> None: ...


def test_a_server_answers_with_it(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    served = Answered([SimpleNamespace(pipeline=made)])
    with TestClient(
        make_app(cast(Pipelines, served), Access({"0123456789abcdef": "read"})), "http://localhost"
    ) as client:
        assert client.get("/metrics").status_code == 401
        answer = client.get("/metrics", headers={"Authorization": "Bearer 0123456789abcdef"})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert named(answer.text) == named(metrics([made]))
