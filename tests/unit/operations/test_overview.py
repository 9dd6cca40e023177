"""What is worked out for the pages: rates, an hour, colours, jobs, verdicts, what a promotion would do."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import StateError
from console.http.pages.levels import _LEVELS, ORDER, beside, level_of, worst
from console.http.pages.model import POINTS, overview, sparkline
from console.http.pages.render import count, rate, size, span
from operations.generations.promotion_report import promotion_report
from operations.jobs.job import Job
from operations.jobs.jobs import Jobs
from operations.overview.changes import KINDS, Rates
from operations.overview.history import EVERY_SECONDS, HOUR, History, Sample, sample_of
from operations.overview.watching import Seen
from operations.state.folder import register_of
from operations.state.pausing import pause
from operations.status.judgement import BAD, JUDGEMENTS
from operations.status.sinks import STATES
from operations.trace.verdict import verdict
from tests.support.promoted import promoted
from tests.support.watched import documented, nowhere, status, world


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)


# -- an hour -----------------------------------------------------------------------------------------------------------


def sample(at: float, **more: Any) -> Sample:
    return Sample(**{"at": at, "behind": 0, "age": 0.5, "read": 0, "written": 0, "ends": 0, "state": "running", **more})


def test_a_sample_adds_up_the_flows() -> None:
    sink = documented("status")["sinks"][0] | {"lag_events": 23}
    one = sample_of(sink, 1.5, 100.0)
    assert (one.read, one.ends, one.written, one.behind, one.age) == (336_877, 336_900, 336_776, 23, 1.5)
    assert sample_of(sink | {"lag_events": None}, None, 1.0).ends is None


def test_rates_are_over_the_last_while_and_never_negative() -> None:
    history = History()
    assert history.rates() == {"log": None, "read": None, "written": None}
    for at in range(61):
        history.add(sample(100.0 + at, read=at * 10, ends=at * 20, written=at * 5 if at < 55 else at * 5 - 270))
    rates = history.rates()
    assert rates["read"] == 10 and rates["log"] == 20
    assert rates["written"] is not None and 0 < rates["written"] < 5  # a new process began to count anew


def seen_at(at: float, *, written: int, fill: Any = None, offset: int = 0, behind: int = 0, **more: Any) -> Sample:
    """What is seen of a sink of one flow."""
    [flow] = documented("status")["sinks"][0]["flows"]
    offsets = {"t": {"0": offset}} if offset else {}
    flow |= {"written": written, "deleted": 0, "stale": 0, "fill": fill, "offsets": offsets}
    sink = documented("status")["sinks"][0] | {"flows": [flow | more.pop("flow", {})], "lag_events": behind, **more}
    return sample_of(sink, None, at)


@pytest.mark.parametrize("other", [{"generation": 2}, {"flow": {"pid": 7}}, {"flow": {"flow": "another"}}])
def test_what_another_counts_is_no_rate(other: dict[str, Any]) -> None:
    """A promotion to a generation whose process had written more was 500,000 records a second, for a while."""
    history = History()
    for at in range(6):
        history.add(seen_at(100.0 + at, written=50 + at, offset=1_000 + at))
    history.add(seen_at(106.0, written=5_000_000, offset=9_000_000, **other))
    assert history.rates() == {"log": 1.0, "read": 1.0, "written": 1.0}
    history.add(seen_at(108.0, written=5_000_022, offset=9_000_008, **other))
    assert history.rates() == {"log": 1.86, "read": 1.86, "written": 3.86}
    history.add(seen_at(125.0, written=6_000_000, offset=9_500_000))
    assert history.rates()["read"] is None, "who counts since has not counted on"


def test_a_fill_is_read_at_the_rate_of_its_passes_and_its_end_is_none() -> None:
    """0 records a second for hours, and all at once when it had ended."""
    history = History()
    for at in range(6):
        fill = {"done": 1_000 * at, "total": 18_000}
        history.add(seen_at(100.0 + at, written=800 * at, fill=fill, behind=10_000))
    assert history.rates() == {"log": 0.0, "read": 1_000.0, "written": 800.0}
    history.add(seen_at(106.0, written=5_000, offset=9_990, behind=10))
    assert history.rates() == {"log": 0.0, "read": 1_000.0, "written": 800.0}


def test_an_hour_is_kept_and_no_more() -> None:
    history = History()
    for at in range(0, 2 * HOUR):
        history.add(sample(float(at)))
    kept = [one.at for one in history]
    assert len(kept) == HOUR / EVERY_SECONDS and kept[-1] - kept[0] == pytest.approx(HOUR, abs=2 * EVERY_SECONDS)
    assert set(history.to_dict()) == {"at", "age", "behind", "state"}


def test_an_hour_holds_nothing_that_only_rates_are_made_of() -> None:
    """The names of hundreds of flows and topics, 720 times for each sink, were more than 100 MB."""
    history = History()
    for at in range(0, 60, 5):
        history.add(seen_at(float(at), written=at, offset=at + 1))
    assert {one.counters for one in history} == {()} and history.rates()["read"] == 1.0


def test_the_page_goes_on_after_the_clock_was_put_back() -> None:
    """For as long as it had been ahead the line stood still, and no rate was known."""
    history, rates = History(), Rates()
    for at in (*range(9_000, 9_060, 5), *range(100, 160, 5)):
        history.add(sample(float(at), read=at))
        [told] = rates.add(float(at), [{"table": "t", **dict.fromkeys(KINDS, at)}]).values()
    assert [one.at for one in history] == sorted(one.at for one in history) and list(history)[-1].at >= 145
    assert history.rates()["read"] == 1.0 and set(told.values()) == {1.0}


def test_a_peak_of_an_hour_is_not_lost_in_the_line() -> None:
    history = History()
    for at in range(0, HOUR, 5):
        history.add(sample(float(at), age=90.0 if at == 1_020 else 1.0))
    line = sparkline(history)
    assert line is not None and line["most"] == 90.0 and len(line["points"].split()) <= POINTS
    assert min(float(point.split(",")[1]) for point in line["points"].split()) == 2.0
    assert sparkline(History()) is None


# -- colours and words -------------------------------------------------------------------------------------------------


def test_every_judgement_has_a_colour_and_what_alarms_is_red() -> None:
    assert _LEVELS.keys() == set(JUDGEMENTS) and {*_LEVELS.values(), "warn"} == set(ORDER)
    assert {name for name in JUDGEMENTS if level_of(name) == "bad"} == BAD
    assert level_of("well", "a flow has not caught up") == "warn" and level_of("failed", "x") == "bad"
    assert worst(["good", "bad", "idle"]) == "bad" and worst([]) == "idle"


def test_a_generation_beside_the_living_one_is_judged_by_its_own_words() -> None:
    assert {beside(state, None).judgement for state in STATES} <= set(JUDGEMENTS)
    assert beside("running", None).judgement == "well"  # however old it is: nobody reads it
    assert beside("dead", "no room").judgement == "stopped" and beside("filling", None).judgement == "filling"


@pytest.mark.parametrize(("now", "age", "stale"), [(3.0, 1.0, False), (30.0, 28.0, True), (1.0, 0.0, False)])
def test_a_look_that_is_old_or_of_before_the_clock_was_put_back_is_said_to_be_old(
    now: float, age: float, stale: bool
) -> None:
    view = overview(Seen(1, 2.0, 0.1), {}, now)
    assert (view["age"], view["stale"]) == (age, stale)
    view = overview(Seen(1, 3_600.0, 0.1), {}, now)
    assert (view["age"], view["stale"]) == (0.0, True)


def test_how_far_a_generation_is_is_measured_by_its_own_topics() -> None:
    """One that read a small topic of a large sink was at 90 % before it had begun, one that read others at 0 %."""
    [living] = documented("status")["sinks"][0]["generations"]
    ways = [{"done": done, "total": total} for done, total in ((0, 1_000), (10_000, 20_000), (30, 20), (0, 0))]
    made = [
        {**living, "generation": number, "stage": "filling", "lag_events": 10_000, "progress": way}
        for number, way in enumerate([*ways, None], 2)
    ]
    [sink] = overview(Seen(1, 2.0, 0.1, status(search={"generations": [living, *made]})), {}, 3.0)["sinks"]
    assert [one["share"] for one in sink["builds"]] == [1.0, 0.0, 0.5, 1.0, 1.0, None]


def test_the_page_judges_nothing_by_itself() -> None:
    """A sink whose flows say that they run, and whose readers see what is old: as `status` has it."""
    told = status(search={"judgement": "behind", "cause": "7 records wait"}, cache={})
    told["source"] |= {"judgement": "stalled", "cause": "the slot has not moved", "tables": {}}
    view = overview(Seen(1, 2.0, 0.1, told), {}, 3.0)
    assert [(one["sink"], one["level"]) for one in view["sinks"]] == [("search", "bad"), ("cache", "good")]
    assert view["words"] == ("source: stalled, the slot has not moved; search: behind, 7 records wait")
    told["source"] |= {"judgement": "well", "cause": None}
    told["sinks"] = told["sinks"][1:]
    assert overview(Seen(1, 2.0, 0.1, told), {}, 3.0)["level"] == "good"
    told["source"]["wal"] |= {"level": "alarm", "retained_bytes": told["source"]["wal"]["budget_bytes"]}
    view = overview(Seen(1, 2.0, 0.1, told), {}, 3.0)
    assert view["level"] == "warn" and "100 % of what it may" in view["words"]


def test_figures_are_short() -> None:
    assert [span(one) for one in (None, 0.44, 12, 119, 180, 9_000, 259_200)] == [
        "?",
        "0.4 s",
        "12 s",
        "119 s",
        "3 min",
        "2.5 h",
        "3 d",
    ]
    assert [rate(one) for one in (None, 0, 1.25, 12_345.6)] == ["?", "0/s", "1.2/s", "12,346/s"]
    assert [size(one) for one in (None, 512, 3 * 2**20, 5 * 2**30)] == ["?", "0 KiB", "3 MiB", "5.0 GiB"]
    assert count(336_776) == "336,776"


# -- jobs --------------------------------------------------------------------------------------------------------------


@contextmanager
def being_done(jobs: Jobs, job: Job) -> Iterator[None]:
    over = threading.Event()
    jobs._threads[job.id] = thread = threading.Thread(target=over.wait, args=(60.0,), daemon=True)
    thread.start()
    jobs._write(job)
    try:
        yield
    finally:
        over.set()
        thread.join()
        del jobs._threads[job.id]


def test_a_job_outlives_its_server(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        jobs = made.served.jobs
        done = jobs.wait(jobs.begin("pause", "search", why="new disks"), 10)
        assert (done.state, done.result and done.result["changed"], done.error) == ("done", True, None)
        failed = jobs.wait(jobs.begin("promote", "search", generation=7), 10)
        assert failed.state == "failed" and failed.error and "has no generation 7" in failed.error["what"]
        again = Jobs(lambda: made.served.pipeline)
        assert [job.id for job in again.newest("search")] == [failed.id, done.id]
        assert again.newest("cache") == [] and again.get("nonsense") is None
        assert again.get(done.id) == done


def test_one_job_at_a_time_a_sink_and_what_was_cut_is_said_so(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        jobs = made.served.jobs
        under_way = Job("0000000000001-aaaaaa", "promote", "search", began=time.time())
        with being_done(jobs, under_way), pytest.raises(StateError, match="promote is under way"):
            jobs.begin("pause", "search")
        assert jobs.wait(jobs.begin("pause", "cache"), 10).state == "done"
        jobs._write(replace(under_way, started=under_way.started - 60))  # a process of the same number, long ago
        assert [job.state for job in jobs.newest("search")] == ["cut"]
        assert jobs.wait(jobs.begin("pause", "search"), 10).state == "done"


def test_a_rebuild_keeps_nothing_up_but_another_rebuild(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        jobs = made.served.jobs
        with being_done(jobs, Job("0000000000001-aaaaaa", "rebuild", "search", began=time.time())):
            assert jobs.wait(jobs.begin("pause", "search"), 10).state == "done"
            with pytest.raises(StateError, match="rebuild is under way"):
                jobs.begin("rebuild", "search")


def test_a_rebuild_is_done_by_a_process_of_its_own_and_its_error_comes_back(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        job = made.served.jobs.wait(made.served.jobs.begin("rebuild", "search"), 60)
        assert job.state == "failed" and job.error, job
        assert "Postgres does not answer" in job.error["what"] and str(os.getpid()) not in job.error["what"]


def test_a_job_is_begun_and_asked_for_over_the_api(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        begun = made.browser.post("/v1/jobs", json={"verb": "pause", "sink": "search", "why": "x"})
        assert begun.status_code == 202 and begun.json()["sink"] == "search"
        made.served.jobs.wait(made.served.jobs.newest()[0], 10)
        [listed] = made.browser.get("/v1/jobs?sink=search").json()["jobs"]
        assert listed == made.browser.get(f"/v1/jobs/{listed['id']}").json() and listed["state"] == "done"
        assert made.browser.get("/v1/jobs/7").status_code == 404
        assert made.browser.post("/v1/jobs", json={"verb": "drop", "sink": "search"}).status_code == 400
        assert made.browser.post("/v1/jobs", json={"verb": "pause", "sink": "nono"}).status_code == 404


# -- what a promotion would do -----------------------------------------------------------------------------------------


def test_a_promotion_is_told_before_it_is_done(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        pipeline = made.served.pipeline
        register = register_of(pipeline, "search")
        register.move(register.create("views.flight changed").number, "ready")
        register.generation(1).folder.mkdir(parents=True)
        register.generation(1).note_views(["flight", "old"])
        register.generation(2).folder.mkdir(parents=True)
        register.generation(2).note_views(["flight", "new"])
        told = made.browser.get("/v1/sinks/search/promotions/2").json()
        assert (told["verb"], told["from"], told["to"], told["refused"]) == ("promote", 1, 2, [])
        assert (told["views"], told["added"], told["gone"]) == (["flight", "new"], ["new"], ["old"])
        assert register.living() == 1
        promoted(register, 2)
        assert promotion_report(pipeline, "search", 1)["verb"] == "rollback"
        assert promotion_report(pipeline, "search", 2)["refused"] == ["readers see this generation already"]
        pause(pipeline, "search", None, lambda line: None)
        assert "resume it first" in promotion_report(pipeline, "search", 1)["refused"][0]
        assert "Lead readers" not in made.browser.get("/sinks/search/promote/1").text
        assert made.browser.get("/v1/sinks/search/promotions/9").status_code == 404


# -- verdicts ----------------------------------------------------------------------------------------------------------


def traced(source: Any = (), log: Any = (), sink: Any = (), **key: Any) -> dict[str, Any]:
    return {
        "near": [],
        "not_a_key": None,
        **key,
        "source": {"error": None, "there": True, "slot_active": True, **dict(source)},
        "log": {
            "error": None,
            "there": True,
            "whole": True,
            "deleted": False,
            "same_as_source": True,
            "partition": 1,
            "offset": 41,
            "position": 500,
            "event": False,
            **dict(log),
        },
        "sinks": [
            {
                "sink": "search",
                "view": "flight",
                "error": None,
                "there": True,
                "where": None,
                "stays": False,
                "joined": False,
                "applied": True,
                "applied_offset": 42,
                "position": 500,
                "state": "running",
                "last_error": None,
                "ttl_seconds": None,
                **dict(sink),
            }
        ],
    }


def nothing(sink: Any = (), *, whole: bool = True, **key: Any) -> dict[str, Any]:
    """Of a row that neither Postgres nor the log has."""
    applied = {"there": False, "applied": None, "applied_offset": None}
    log = {"there": False, "whole": whole, "same_as_source": None, "position": None}
    return traced({"there": False}, log, {**applied, **dict(sink)}, **key)


@pytest.mark.parametrize(
    ("report", "stuck", "words"),
    [
        (traced(), None, "what Postgres has is in the log"),
        (traced(log={"error": "Kafka is away"}), "log", "can't be read: Kafka is away"),
        (traced(log={"there": False}), "source", "has no record of it"),
        (traced(log={"there": False, "whole": False}), None, "may be an older one"),
        (traced(log={"deleted": True}), "source", "its newest record is a delete"),
        (traced(source={"there": False}), "source", "no delete of it"),
        (traced(log={"same_as_source": False}), "source", "older than what Postgres has"),
        (traced(source={"slot_active": False}, log={"same_as_source": False}), "source", "nobody reads from the slot"),
        (traced(source={"error": "away"}), None, "Postgres does not tell"),
        (traced(sink={"error": "refused"}), "search", "can't be asked: refused"),
        (traced(sink={"applied": False, "applied_offset": 30}), "search", "up to offset 29; it is running"),
        (traced(sink={"applied": False, "applied_offset": None, "last_error": "a\nb"}), "search", "nothing of it yet"),
        (traced(sink={"there": False}), "search", "has no document"),
        (traced(sink={"there": False, "where": "a > 1"}), None, "what Postgres has is in the log"),
        (traced(sink={"position": 499}), "search", "an older version"),
        (traced(sink={"position": 3, "joined": True}), None, "what Postgres has is in the log"),
        (traced(source={"there": False}, log={"deleted": True}), "search", "still has a document"),
        (traced(source={"there": False}, log={"deleted": True}, sink={"there": False}), None, "what Postgres has is"),
        (nothing(), None, "there is no such row, and the log has no record of one"),
        (nothing(near=["4711"]), None, "record of one; did you mean 4711?"),
        (nothing(not_a_key="x is not a bigint"), None, "x is not a bigint"),
        (nothing({"there": True}), "search", "sink search has a document: `headwater verify FILE --sink search`"),
        (nothing({"there": True, "where": "a > 1"}), "search", "sink search has a document: `headwater verify FILE"),
        (nothing({"there": True, "stays": True}), None, "there is no such row, and the log has no record of one"),
        (nothing(whole=False), None, "there is no such row; no record was found in the part of the log that was read"),
        (nothing({"there": True}, whole=False), None, "may be an older one; documents of it are in search: `headwater"),
        (traced({"error": "away", "there": None}, {"there": False}), None, "(away); the log has no record of it"),
        (traced({"error": "away"}, {"there": False, "whole": False}), None, "(away); no record was found in the part"),
        (traced(sink={"view": None}), None, "what Postgres has is in the log"),
        (traced(sink={"view": None, "part_of": ["b", "a"]}), None, "documents of a, b show it too, and are"),
    ],
)  # fmt: skip
def test_a_verdict_names_the_first_place_that_is_not_as_it_must_be(report: Any, stuck: str | None, words: str) -> None:
    told = verdict(report)
    assert told["stuck"] == stuck and words in told["words"], told
    assert json.dumps(told)
