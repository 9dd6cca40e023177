"""A note that a loss of power has left empty is named, and is the trouble of its own flow alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import StateError
from cdc.join.layout import Layout
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from operations.freshness.note import read_source_note
from operations.run.refusals import opening
from operations.state.accepted import read_runs
from operations.state.evolution import read_allowed, read_asked, read_progress
from operations.state.folder import followed_timelines
from spark.disk.checkpoint import committed_offsets
from spark.disk.filling import FillState, in_fill, is_live, load, save, write_live
from spark.disk.state import Generation
from spark.disk.status import FlowStatus
from spark.flow import Flow, Reading
from spark.join import health
from spark.reading.spec import FlowSpec
from spark.runner import Runner
from spark.warehouse.history.history import begun_topics

TABLE = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
ROOT = Node("v", "root", TABLE, columns=(("id", "id"),))
LAYOUT = Layout.of(ROOT)


def flow_in(folder: Path, name: str = "card") -> Flow:
    """A flow whose folder is there."""
    made = Flow(name, FlowSpec("search", {}, {}, {}, {}, {}), Reading("", {}, None), folder / "g1" / name)
    made.checkpoint.mkdir(parents=True)
    return made


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"other": 1}'])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("phase.json", lambda flow: is_live(flow.folder)),
        ("phase.json", lambda flow: in_fill(flow.folder)),
        ("fill.json", lambda flow: load(flow.folder)),
        ("rowstore.json", health.known),
        ("layout.json", lambda flow: health.check_layout(LAYOUT, flow)),
        ("layout.json", lambda flow: health.arranged(LAYOUT, flow)),
        ("begun.json", lambda flow: begun_topics(flow.folder)),
    ],
)
def test_a_damaged_note_of_a_flow_is_refused_by_name(
    tmp_path: Path, name: str, read: Callable[[Flow], Any], text: str
) -> None:
    flow = flow_in(tmp_path)
    (flow.folder / name).write_text(text)
    with pytest.raises(StateError) as refused:
        read(flow)
    assert f"{flow.folder / name} can't be read" in str(refused.value) and refused.value.fix
    assert ("it is empty" in str(refused.value)) is (text == "")


@pytest.mark.parametrize("name", ["phase.json", "fill.json"])
def test_who_shows_how_far_a_flow_is_does_not_fall_over_a_damaged_note(tmp_path: Path, name: str) -> None:
    """`status` told of no sink at all."""
    flow = flow_in(tmp_path)
    save(flow.folder, FillState("r", "1", "t", True, begins={"t": {0: 0}}, ends={"t": {0: 7}}))
    write_live(flow.folder)
    assert committed_offsets(flow.checkpoint) == (-1, {"t": {0: 7}})
    (flow.folder / name).write_text("")
    assert committed_offsets(flow.checkpoint) == (-1, {})


@pytest.mark.parametrize("name", ["views.json", "identity.json"])
def test_a_damaged_note_of_a_generation_is_refused_by_name(tmp_path: Path, name: str) -> None:
    generation = Generation(tmp_path, "shop", "search")
    generation.folder.mkdir(parents=True)
    (generation.folder / name).write_text("")
    with pytest.raises(StateError, match=f"{name} can't be read: it is empty"):
        generation.views() if name == "views.json" else generation.known()


@pytest.mark.parametrize("text", ["", "[]", "null", '{"timeline": []}', '{"followed": 3}'])
def test_a_damaged_note_that_only_shows_how_things_are_says_nothing(tmp_path: Path, text: str) -> None:
    """A list where something else was kept ended each verb with an AttributeError."""
    (tmp_path / "shop").mkdir()
    for name in ("source.json", "running.json", "allowed.json"):
        (tmp_path / "shop" / name).write_text(text)
    made: Any = SimpleNamespace(name="shop", engine=SimpleNamespace(state_dir=str(tmp_path)))
    assert (followed_timelines(made), read_runs(made), read_allowed(made)) == (frozenset(), [], {})


@pytest.mark.parametrize(
    ("name", "read", "found"),
    [
        ("frontier.json", read_source_note, None),
        ("asked.json", read_asked, {}),
        ("evolving.json", read_progress, []),
    ],
)
def test_a_note_that_may_not_be_read_is_not_taken_for_none(
    tmp_path: Path, name: str, read: Callable[[Any], Any], found: Any
) -> None:
    """Rights that were missing read as "nobody is at work", and a table was asked for again at each attempt."""
    made: Any = SimpleNamespace(name="shop", engine=SimpleNamespace(state_dir=str(tmp_path)))
    (tmp_path / "shop").mkdir()
    assert read(made) == found
    (tmp_path / "shop" / name).write_text("{")
    assert read(made) == found, "it is damaged"
    (tmp_path / "shop" / name).unlink()
    (tmp_path / "shop" / name).mkdir()  # also root can't read that
    with pytest.raises(IsADirectoryError):
        read(made)


def test_a_note_that_may_not_be_read_hides_nothing_of_what_stands_beside_it(tmp_path: Path) -> None:
    made: Any = SimpleNamespace(name="shop", engine=SimpleNamespace(state_dir=str(tmp_path)))
    (tmp_path / "shop" / "source.json").mkdir(parents=True)
    assert followed_timelines(made) == frozenset()


def test_a_damaged_note_fails_its_flow_and_no_other(tmp_path: Path) -> None:
    """The look after a flow's start lay outside of what is caught: `run` ended for all sinks."""
    view = JoinedView("card", TABLE, ("id",), ROOT.columns, root=ROOT)
    damaged, well = flow_in(tmp_path), flow_in(tmp_path, "main")
    damaged = replace(damaged, spec=replace(damaged.spec, views={"card": view}))
    (damaged.folder / "phase.json").write_text("")
    queries: list[Any] = []

    def start(_session: Any, flow: Flow) -> Any:
        if flow is damaged and is_live(flow.folder):
            pytest.fail("it began")
        queries.append(SimpleNamespace(isActive=True, recentProgress=[], status={"message": "Processing"}))
        return queries[-1]

    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    Runner(session, [(damaged, start), (well, start)], lambda _flow: None).step()
    told = {flow.name: FlowStatus.read(flow.folder) for flow in (damaged, well)}
    assert told["card"] is not None and told["main"] is not None and len(queries) == 1
    assert (told["card"].state, told["main"].state) == ("failed", "running")
    assert "phase.json can't be read" in str(told["card"].last_error)


def test_what_a_start_that_began_could_not_be_told_of_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow, ended = flow_in(tmp_path), list[str]()
    query: Any = SimpleNamespace(isActive=True, recentProgress=[], stop=lambda: ended.append("stop"))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    runner = Runner(session, [(flow, lambda *_: query)], lambda _flow: None)

    def fails(*_: Any, **__: Any) -> None:
        raise StateError("unread.json can't be read")

    monkeypatch.setattr(runner.running[0].vigil, "reread", fails)
    runner.step()
    assert ended == ["stop"] and runner.running[0].failed


@pytest.mark.parametrize("error", [json.JSONDecodeError("x", "", 0), KeyError("a"), TypeError("b"), OSError(5, "c")])
def test_what_nobody_expected_of_an_opening_is_a_refusal(error: Exception) -> None:
    with pytest.raises(StateError, match="sink a can't be opened: ") as refused, opening("sink a"):
        raise error
    assert refused.value.__cause__ is error
    with pytest.raises(StateError, match="as it is"), opening("sink a"):
        raise StateError("as it is")
