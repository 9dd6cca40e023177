"""Lags that nobody looks at have no sample and are not told as 0: `run` is dead, a sink paused, a matcher fails."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SinkUnavailable
from cdc.pipeline import Pipeline
from console.cli.status import _unjudged, push_line
from operations.freshness.note import FlowNote, SinkNote, write_sink_note
from operations.metrics.pipelines import metrics
from operations.push.health import Health, note_path, push_report, write_note
from operations.standing import watch
from operations.standing.matcher import Matcher
from operations.standing.note import MatcherNote, read_note, standing_report
from operations.state.folder import note_captured, register_of
from operations.state.pausing import pause
from spark.disk.status import FlowStatus
from tests.support.metric_cases import pipeline, samples
from tests.support.standing_file import STANDING, load

GONE_PID = 2**22 + 1
FLOW, HOOK, VIEW = ("main", "1", "p", "cache"), ("p", "hook"), ("standing", "order")


def lags(pipelines: list[Pipeline]) -> dict[str, float]:
    """What is told of how much waits."""
    found = samples(metrics(pipelines))
    return {name: value for (name, _), value in found.items() if "lag" in name or "deferred" in name}


def test_of_what_waits_nothing_stays_as_it_was_when_nobody_looks(tmp_path: Path) -> None:
    """0 records, 0 documents and 0 changes, for as long as `run` was dead."""
    made = pipeline(tmp_path)
    told = {"headwater_flow_lag_records": 5, "headwater_flow_deferred_documents": 0, "headwater_push_lag_entries": 12}
    assert lags([made]) == told
    old, folder = time.time() - 86_400, register_of(made, "cache").generation().flow_folder("main")
    found = FlowStatus.read(folder)
    assert found is not None
    replace(found, at=old, pid=GONE_PID).write(folder)
    write_sink_note(made, "cache", SinkNote(old, old - 90, {1: {"main": FlowNote(old - 1, 0, old)}}))
    write_note(made, "hook", Health("delivering", 0, old, 30, 2))
    note = note_path(made, "hook")
    note.write_text(json.dumps({**json.loads(note.read_text()), "at": old}))
    assert lags([made]) == {}
    found_now = samples(metrics([made]))
    assert found_now["headwater_push_well", HOOK] == 0 and found_now["headwater_flow_age_seconds", FLOW] > 86_000
    assert "stopped, ? behind, last taken 86,4" in push_line(push_report(made)[0])


def test_nobody_counts_what_waits_for_the_webhook_of_a_paused_sink(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    pause(made, "cache", None, lambda _: None)
    assert (push_report(made)[0]["state"], push_report(made)[0]["lag_entries"]) == ("paused", None)


def test_a_matcher_that_nobody_runs_is_as_late_as_nobody_knows(tmp_path: Path) -> None:
    made = load(STANDING, str(tmp_path))
    MatcherNote(7, 3, 1, 0.2, 4, 1, 0, at=time.time() - 86_400).write(made, "order")
    found = samples(metrics([made]))
    assert ("headwater_standing_lag_seconds", VIEW) not in found
    assert found["headwater_standing_queries", VIEW] == 4 and found["headwater_standing_working", VIEW] == 0
    assert standing_report(made)[0]["lag_seconds"] is None


def test_a_view_whose_matcher_never_left_word_does_not_work(tmp_path: Path) -> None:
    """The alarm was silent, though its queries stand and nobody judges them."""
    made = load(STANDING, str(tmp_path))
    found = samples(metrics([made]))
    assert {of: value for of, value in found.items() if of[0].startswith("headwater_standing")} == {
        ("headwater_standing_working", VIEW): 0
    }
    [told] = standing_report(made)
    assert (told["working"], told["at"], told["queries"]) == (False, None, None)
    assert list(_unjudged([told])) == [
        "standing queries of order are not judged: no `headwater run` has done it yet",
    ]
    note_captured(made)
    pause(made, "cache", None, lambda _: None)
    assert not [name for name, _ in samples(metrics([made])) if name.startswith("headwater_standing")]


class Server:
    """In place of a matcher and its servers: it goes on until it is told that these are away."""

    def __init__(self) -> None:
        self.away = False

    def matcher(self, *_: Any) -> Any:
        def step() -> None:
            time.sleep(0.001)
            if self.away:
                raise SinkUnavailable("the search server is away")
            made.documents = 7

        counts = {"told": 3, "unread": 1, "lag_seconds": 0.2, "queries": 4, "pending": 1, "refused": 2}
        made = SimpleNamespace(documents=0, batch=1, step=step, **counts)
        return made


def test_a_matcher_that_fails_says_which_queries_stand_and_not_that_it_is_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No query stood and nothing was late, just while it was broken."""
    made, server = load(STANDING, str(tmp_path)), Server()
    opened = SimpleNamespace(tail=None, matches=None, close=lambda: None)
    for name, value in (
        ("standing_place", lambda *_: None),
        ("Caching", lambda _: opened),
        ("Searching", lambda _: opened),
        ("ServerSearches", lambda _: None),
        ("Matcher", server.matcher),
        ("NOTE_SECONDS", 0.0),
        ("PAUSE_SECONDS", 0.01),
    ):
        monkeypatch.setattr(watch, name, value)
    matcher = watch.ViewMatcher(made, "order")
    try:
        well = noted(made, lambda note: note.error is None and note.documents == 7)
        assert (well.lag_seconds, well.queries, well.pending, well.refused) == (0.2, 4, 1, 2)
        server.away = True
        for _ in range(2):  # each failure is noted anew
            at = noted(made, lambda note: note.error is not None).at
            away = noted(made, lambda note, at=at: note.at > at)
            assert (away.lag_seconds, away.queries, away.pending, away.refused) == (None, 4, 1, 2)
    finally:
        matcher.stop()
        matcher.join(5)


def noted(made: Pipeline, wanted: Callable[[MatcherNote], bool]) -> MatcherNote:
    """The first note that is as wanted."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        note = read_note(made, "order")
        if note is not None and wanted(note):
            return note
        time.sleep(0.005)
    raise AssertionError(f"no such note: {read_note(made, 'order')}")


def test_a_matcher_that_has_yet_to_begin_does_not_say_that_it_is_in_time() -> None:
    assert Matcher(*cast(Any, (None, None, None))).lag_seconds is None
