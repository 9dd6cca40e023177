"""What verify says of a sink that was not seen to catch up: what is so, and not a guess."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline, loads
from cdc.view import View
from console.cli.verify import _behind, _print
from operations.explain.differences import Difference
from operations.state.folder import register_of
from operations.verify.columns import _named, source_faults, undelivered
from spark.disk.status import FlowStatus
from tests.support.trees import AIRLINES, AIRPORTS, FLIGHTS, node, table
from tests.support.watched_file import TEXT
from truth.placing import SEVERAL


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})


def write(pipeline: Pipeline, flow: str, state: str) -> None:
    folder = register_of(pipeline, "cache").generation(1).flow_folder(flow)
    folder.mkdir(parents=True, exist_ok=True)
    FlowStatus(f"cache/{flow}", state, os.getpid(), 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [], time.time()).write(folder)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({}, "it has never run"),
        ({"main": "running"}, "`headwater run` is at work on it: what differs may only be late; say --wait with more"),
        ({"main": "running", "card": "filling"}, "did not get nearer for 10 s"),
        ({"main": "running", "card": "failed"}, "card is failed; `headwater status FILE` says why"),
        ({"main": "stopped"}, "main is stopped"),
        ({"main": "retrying"}, "main is retrying"),
    ],
)
def test_it_says_whether_run_is_at_work(pipeline: Pipeline, states: dict[str, str], said: str) -> None:
    for flow, state in states.items():
        write(pipeline, flow, state)
    assert said in _behind(pipeline, {"sink": "cache", "generation": 1, "paused": None}, 10.0)


def test_a_run_that_is_silent_for_a_while_and_renews_its_lease_is_not_dead(pipeline: Pipeline) -> None:
    """Beside a busy machine verify said `main is dead; headwater status says why`, and status said `running`."""
    generation = register_of(pipeline, "cache").generation(1)
    silent = FlowStatus("cache/main", "running", os.getpid(), 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [], time.time() - 40)
    generation.flow_folder("main").mkdir(parents=True)
    silent.write(generation.flow_folder("main"))
    sink = {"sink": "cache", "generation": 1, "paused": None}
    generation.lease.take()
    try:
        assert "is at work on it" in _behind(pipeline, sink, 10.0)
    finally:
        generation.lease.release()
    assert "main is dead" in _behind(pipeline, sink, 10.0)


def test_a_second_row_is_named_with_its_place_and_is_the_reason_why_nothing_mends_it() -> None:
    said = SEVERAL.format(2, "public.flights")
    last = node(FLIGHTS, "last", "child", [("carrier", "carrier")], one=True)
    hidden = node(
        AIRLINES,
        "airline",
        "ref",
        [("carrier", "carrier")],
        columns=(("carrier", "carrier"),),
        hide=True,
        children=(last,),
    )
    start = node(AIRPORTS, "start", "ref", [("origin", "faa")])
    cities = node(AIRPORTS, "cities", "child", [("origin", "faa")], columns=(("city", "city"),), value="city")
    root = node(FLIGHTS, refs=(hidden, start), children=(cities,))
    view = JoinedView("v", FLIGHTS, ("id",), root.columns, root=root)
    name = _named(view, Difference(("last",), {"id": 1}, said))
    assert name == "last (`one: true`, and 2 rows of public.flights point here)"
    # What lies inside of a column is not named; what is lifted is a row like any other.
    assert _named(view, Difference(("last", "id"), 1, 2)) == "last.id"
    assert _named(view, Difference(("start", "city", "inner"), 1, 2)) == "start.city"
    assert _named(view, Difference(("cities", 1, "inner", 0), 1, 2)) == "cities[1]"
    told = {"1": ["miles", name], "2": ["last.id"], "3": []}
    assert source_faults(told) == {"1": name}
    values = [Difference(("last",), {"id": 1}, said).to_dict("sink", "expected")]
    assert source_faults({"1": values, "2": [{"field": "(held twice)"}]}) == {"1": name}


def test_a_key_as_long_as_a_row_does_not_hide_the_rest(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    view = {"view": "flight", "expected": 2, "seconds": 0.1, "columns": {}, "not_repaired": [], "caught_up": True}
    view |= {"lossy": []}
    view |= dict.fromkeys(("undecided", "invisible", "doubtful", "within", "repaired"), 0)
    view |= {
        "equal": False,
        "differences": 2,
        "missing": ["a" * 150_000, "7"],
        "extra": [],
        "changed": [],
        "moving": [],
        "unseen": [],
        "doubted": [],
    }
    sink = {"sink": "search", "error": None, "paused": None, "views": [view], "still": []}
    _print({"sinks": [sink], "sample": None, "views": None, "equal": False}, pipeline, 10.0)
    said = capsys.readouterr().out
    assert "missing: aaa" in said and "a… (150,000 characters), 7\n" in said and len(said) < 1000


def test_what_nobody_can_tell_yet_is_said_beside_what_is_equal(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    view = {"view": "flight", "expected": 2, "seconds": 0.1, "columns": {}, "not_repaired": [], "caught_up": True}
    view |= {"lossy": []}
    view |= dict.fromkeys(("undecided", "doubtful", "within", "repaired", "differences"), 0)
    view |= {"equal": True, "missing": [], "extra": [], "changed": [], "moving": [], "unseen": ["7"], "invisible": 1}
    view |= {"doubted": []}
    sink = {"sink": "search", "error": None, "paused": None, "views": [view], "still": []}
    _print({"sinks": [sink], "sample": None, "views": None, "equal": True}, pipeline, 10.0)
    said = capsys.readouterr().out
    assert "equal, 1 not visible in Postgres yet" in said and "unseen: 7\n" in said


PEOPLE = table("people", "id", id="int4", born="date", left="date", tags="text[]", note="jsonb", dot="text")
LEFT = "when they are read by a snapshot, dates before the year 1 lose their sign"


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({}, []),
        ({"1": ["id", "note", "dot"]}, []),
        ({"1": ["day", "id"], "2": ["day"]}, [("day", "date")]),
        ({"1": ["tags[1]"]}, [("tags", "text[]")]),
        ({"1": [{"field": "tags[1]", "sink": "a"}, {"field": "note.born"}]}, [("tags", "text[]")]),
        ({"1": ["(no document)"], "2": ["(held twice)"]}, []),
    ],
)
def test_columns_that_differ_and_are_of_a_type_that_debezium_does_not_deliver_whole_are_named(
    told: dict[str, list[Any]], named: list[tuple[str, str]]
) -> None:
    """Somebody searched for a fault of his own: docs/types.md knew, and verify did not say it."""
    columns = (("id", "id"), ("born", "day"), ("tags", "tags"), ("note", "note"), ("dot", "dot"))
    view = View("person", PEOPLE, ("id",), columns)
    found = undelivered(view, told)
    assert [(one["column"], one["type"]) for one in found] == named
    assert all(one["why"].startswith(LEFT if one["type"] == "date" else "arrays of more") for one in found)


def test_so_are_those_of_joined_rows() -> None:
    days = node(PEOPLE, "days", "child", [("id", "id")], columns=(("born", "born"),), value="born")
    staff = node(PEOPLE, "staff", "child", [("id", "id")], columns=(("id", "id"), ("left", "left")))
    hidden = node(PEOPLE, "firm", "ref", [("id", "id")], hide=True, children=(staff,))
    root = node(PEOPLE, refs=(hidden,), children=(days,), columns=(("id", "id"), ("born", "born")))
    view = JoinedView("v", PEOPLE, ("id",), root.columns, root=root)
    assert undelivered(view, {"1": ["staff[3].id", "days_off"]}) == []
    found = undelivered(view, {"1": ["staff[3].left"], "2": [{"field": "days[0]", "sink": "x"}]})
    assert [(one["column"], one["type"]) for one in found] == [("staff.left", "date"), ("days", "date")]


def test_verify_says_it_in_one_line_a_view(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    view = {"view": "flight", "expected": 2, "seconds": 0.1, "not_repaired": [], "caught_up": True, "moving": []}
    view |= dict.fromkeys(("undecided", "invisible", "doubtful", "within", "repaired"), 0)
    view |= {
        "equal": False,
        "differences": 1,
        "missing": [],
        "extra": [],
        "changed": ["7"],
        "unseen": [],
        "doubted": [],
    }
    view |= {"columns": {"7": ["day", "tags[1]"]}}
    view |= {"lossy": [{"column": "day", "type": "date", "why": ""}, {"column": "tags", "type": "text[]", "why": ""}]}
    sink = {"sink": "search", "error": None, "paused": None, "views": [view], "still": []}
    _print({"sinks": [sink], "sample": None, "views": None, "equal": False}, pipeline, 10.0)
    said = capsys.readouterr().out
    line = "    day is date, tags is text[]: docs/types.md says what Debezium does not deliver of such a type\n"
    assert line in said and said.count("docs/types.md") == 1


def test_what_depends_on_events_that_may_have_been_given_up_is_named_and_not_called_equal(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was counted beside its view alone, and the last line said that all sinks equal Postgres."""
    view = {"view": "hourly", "expected": 9, "seconds": 0.1, "columns": {}, "not_repaired": [], "caught_up": True}
    view |= dict.fromkeys(("undecided", "invisible", "within", "repaired", "differences"), 0)
    view |= {name: [] for name in ("missing", "extra", "changed", "moving", "unseen", "lossy")}
    view |= {"equal": True, "doubted": ["a|2026-03-01T12:00:00Z", "b"], "doubtful": 2}
    sink = {"sink": "search", "error": None, "paused": None, "views": [view], "still": []}
    _print({"sinks": [sink], "sample": None, "views": None, "equal": True}, pipeline, 10.0)
    said = capsys.readouterr().out
    assert "doubted: a|2026-03-01T12:00:00Z, b\n" in said
    assert said.endswith("all sinks equal Postgres, but for 2 keys that could not be told\n")
