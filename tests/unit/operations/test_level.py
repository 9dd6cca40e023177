"""A generation is shown once it has applied what readers see."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import Behind, StateError
from cdc.pipeline import loads
from operations.generations import promote
from operations.generations.level import level
from operations.generations.promote import _caught_up, _level
from operations.state.folder import register_of
from spark.disk.promotion import Promotion
from spark.disk.register import Register
from spark.disk.state import Generation, Identity
from spark.disk.status import FlowStatus
from tests.support.begun_beside import begun_beside
from tests.support.watched_file import TEXT


def applied(register: Register, number: int, flow: str, offset: int | None, state: str = "running") -> None:
    folder = register.generation(number).flow_folder(flow)
    numbers = dict.fromkeys(("pid", "batch_id", "records", "written", "deleted", "stale", "rejected"), 0)
    more = dict.fromkeys(("position", "source_ts_ms", "batch_ms"), 0) | {"last_error": None, "topics": ["t"]}
    FlowStatus(flow=f"search/{flow}", state=state, at=1.0, **numbers, **more).write(folder)
    if offset is not None:
        (folder / "applied.json").write_text(
            json.dumps({"batch": 1, "offsets": {"t": {"0": offset}, "gone": {"0": 9}}})
        )


def test_it_is_waited_for_and_told_what_it_lacks(tmp_path: Path) -> None:
    register, pipeline = Register(tmp_path, "shop", "search"), SimpleNamespace()
    applied(register, 1, "main", 100)
    applied(register, 1, "card", 90)
    applied(register, 1, "let-go", 500, "finished")
    applied(register, 2, "main", 100)
    applied(register, 2, "card", None)
    steps = iter((70, 99, 100))
    now = SimpleNamespace(at=0.0)

    def sleep(seconds: float) -> None:
        now.at += seconds
        applied(register, 2, "card", next(steps))

    clock = SimpleNamespace(monotonic=lambda: now.at, sleep=sleep)
    assert level(pipeline, register, 1, 2, 0.0) == "100 records"  # it has told nothing yet
    assert level(pipeline, register, 1, 2, 0.15, clock=clock) == "1 records"
    assert level(pipeline, register, 1, 2, 10.0, clock=clock) is None


def test_one_whose_flow_has_failed_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` keeps it up to date, it said after half a minute; it never would."""
    register, said = Register(tmp_path, "shop", "search"), list[str]()
    monkeypatch.setattr("operations.generations.promote.LEVEL_SECONDS", 0.0)
    register.generation(1).folder.mkdir(parents=True, exist_ok=True)
    applied(register, 1, "main", 100)
    applied(register, 2, "main", 30)
    pipeline: Any = SimpleNamespace(file="shop.yaml")
    lease = register.generation(1).lease
    lease.take()
    with pytest.raises(Behind) as late:
        _level(pipeline, register, 1, 2, None, said.append)
    assert "`headwater run shop.yaml` keeps it up to date, try again" in late.value.fix and len(said) == 1
    lease.release()
    applied(register, 2, "main", 30, "failed")
    with pytest.raises(Behind, match="70 records; its flow main has failed: for no known reason") as failed:
        _level(pipeline, register, 1, 2, None, said.append)
    assert "headwater status" in failed.value.fix and len(said) == 1
    assert failed.value.means == "readers see what they saw before; nothing was changed"
    with pytest.raises(Behind) as cut:
        _level(pipeline, register, 1, 2, Promotion(2, 1), said.append)
    assert "generation 1 or 2" in cut.value.means and "nothing was changed" not in cut.value.means


def test_one_that_nobody_keeps_up_to_date_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rollback` without a `run` said after 40 seconds that `run` keeps it up to date."""
    register, said = Register(tmp_path, "shop", "search"), list[str]()
    monkeypatch.setattr(promote, "_caught_up", lambda *_: pytest.fail("it was waited for"))
    register.generation(1).folder.mkdir(parents=True, exist_ok=True)
    applied(register, 1, "main", 100)
    applied(register, 2, "main", 30)
    pipeline: Any = SimpleNamespace(file="shop.yaml")
    with pytest.raises(Behind, match="lacks what readers of generation 1 see: 70 records") as late:
        _level(pipeline, register, 1, 2, None, said.append)
    assert "start `headwater run shop.yaml`, try again" in late.value.fix and not said


def test_what_came_while_it_was_waited_for_is_waited_for_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers saw a document of twelve seconds ago right after the switch: so long it had been waited for."""
    now, asked = SimpleNamespace(at=0.0), list[float]()
    takes = [12.0, 3.0, 0.4, 9.0]

    def waited(*arguments: Any) -> None:
        asked.append(arguments[-1])
        now.at += takes[len(asked) - 1]

    monkeypatch.setattr(promote, "time", SimpleNamespace(monotonic=lambda: now.at))
    monkeypatch.setattr(promote, "level", waited)
    some: Any = SimpleNamespace()
    assert _caught_up(some, some, 1, 2) is None
    assert asked == [30.0, 18.0, 15.0]
    asked.clear()
    takes[:] = [5.0] * 20  # one that is never quick: each batch takes five seconds
    assert _caught_up(some, some, 1, 2) is None
    assert len(asked) == promote.LEVEL_TRIES
    monkeypatch.setattr(promote, "level", lambda *_: "3 records")
    assert _caught_up(some, some, 1, 2) == "3 records"


def test_one_that_was_cut_is_given_up_only_while_nobody_was_moved(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    register.move(register.create("test").number, "ready")
    register.begin_promotion(2, 1)
    assert (register.cut_promotion(0.0), register.give_up_unmoved(60.0)) == (None, None)
    assert register.promotion() == Promotion(2, 1, moving=False)
    register.move_readers(2)
    assert (register.give_up_unmoved(0.0), register.cut_promotion(60.0), register.cut_promotion(0.0)) == (None, None, 2)
    register.give_up_promotion(2)
    register.begin_promotion(2, 1)
    assert (register.give_up_unmoved(0.0), register.promotion()) == (2, None)


@pytest.mark.parametrize("ahead", [3.0, 3600.0])
def test_one_that_was_begun_before_the_clock_was_put_back_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """Nobody saw it: what readers of moved views see could be removed, and a second promotion began over the first."""
    register = Register(tmp_path, "shop", "search")
    for _ in range(2):
        register.move(begun_beside(register).number, "ready")
    with monkeypatch.context() as patch:
        patch.setattr("spark.disk.register.time", SimpleNamespace(time=lambda: time.time() + ahead))
        register.begin_promotion(2, 1)
    assert register.promotion() == Promotion(2, 1, moving=False)
    assert register.give_up_unmoved(60.0) == (2 if ahead > 60 else None), "nobody knows how long ago it was begun"
    with monkeypatch.context() as patch:
        patch.setattr("spark.disk.register.time", SimpleNamespace(time=lambda: time.time() + ahead))
        register.begin_promotion(2, 1)
    register.move_readers(2)
    assert (register.cut_promotion(0.0), register.cut_promotion(60.0)) == (2, 2 if ahead > 60 else None)
    with pytest.raises(StateError, match="from generation 1 to 2 has not ended"):
        register.begin_retiring(2)
    with pytest.raises(StateError, match="from generation 1 to 2"):
        register.begin_promotion(3, 1)
    register.give_up_promotion(2)
    assert register.promotion() is None


def test_what_was_cut_is_finished_or_taken_back_and_nothing_else(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    for _ in range(2):
        register.move(begun_beside(register).number, "ready")
    register.begin_promotion(2, 1)
    assert register.promotion() == Promotion(2, 1, moving=False)
    register.begin_promotion(3, 1)  # nobody was moved: another one may begin
    with pytest.raises(StateError, match="overtaken by that of generation 3"):
        register.move_readers(2)
    register.move_readers(3)
    assert register.promotion() == Promotion(3, 1)
    with pytest.raises(StateError, match="from generation 1 to 3"):
        register.begin_promotion(2, 1)
    register.begin_promotion(1, 3)
    assert register.promotion() == Promotion(1, 3)  # back: readers of some views are there still


def test_offsets_of_a_topic_that_was_made_anew_are_not_compared(tmp_path: Path) -> None:
    """After another capture the new log is shorter than the old one was: it would be waited for for ever."""
    register, pipeline = Register(tmp_path, "shop", "search"), SimpleNamespace()
    bound = Identity("1", 1, "shop", "slot", {"t": "old"}, "spec")
    for number, offset in ((1, 100), (2, 7)):
        applied(register, number, "main", offset)
        register.generation(number).bind(bound)
    assert level(pipeline, register, 1, 2, 0.0) == "93 records"
    (register.generation(2).folder / "identity.json").unlink()
    register.generation(2).bind(replace(bound, topic_ids={"t": "new"}))
    assert level(pipeline, register, 1, 2, 0.0) is None


def test_of_several_topics_only_the_one_that_was_made_anew_is_left_out(tmp_path: Path) -> None:
    """A table's key changes: generation 1 stops where the former log of it was, the others' go on."""
    register, pipeline = Register(tmp_path, "shop", "search"), SimpleNamespace()
    bound = Identity("1", 1, "shop", "slot", {"t": "old", "u": "same"}, "spec")
    told = {1: {"t": 7_968, "u": 20}, 2: {"t": 4_000, "u": 19}}
    for number, ids in ((1, bound.topic_ids), (2, {"t": "new", "u": "same"})):
        applied(register, number, "main", None)
        folder = register.generation(number).flow_folder("main")
        status = FlowStatus.read(folder)
        assert status is not None
        replace(status, topics=["t", "u"]).write(folder)
        offsets = {topic: {"0": at} for topic, at in told[number].items()}
        (folder / "applied.json").write_text(json.dumps({"batch": 1, "offsets": offsets}))
        register.generation(number).bind(replace(bound, topic_ids=ids))
    assert level(pipeline, register, 1, 2, 0.0) == "1 records"
    # The way back: whoever has seen the new log would miss what only that one got, and no wait brings it.
    assert level(pipeline, register, 2, 1, 60.0) == "all that t got since it was made anew"


def test_writers_that_wait_for_what_was_cut_go_on_before_they_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promotion killed among its renames holds the writers of both: whoever took it back was told after half a
    minute to try again, each time, and each try put off the moment at which `run` ends it."""
    pipeline, done = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {}), list[str]()
    register = register_of(pipeline, "cache")
    register.move(register.create("test").number, "ready")
    for number in (1, 2):
        generation = register.generation(number)
        (generation.flow_folder("order") / "checkpoint").mkdir(parents=True)
    target = SimpleNamespace(
        living=lambda _view: 2,
        settle=lambda view: done.append(f"settle {view}"),
        promote=lambda view, old: done.append(f"promote {view} from {old}"),
        close=lambda: None,
    )
    monkeypatch.setattr(promote, "open_target", lambda _config: target)
    monkeypatch.setattr(promote, "_level", lambda *_: done.append("level"))
    monkeypatch.setattr(Generation, "views", lambda _self: ["order"])
    register.begin_promotion(2, 1)
    promote.promote(pipeline, "cache", 1, done.append)  # nobody was moved, so nobody waits
    assert "settle order" not in done
    done.clear()
    register.begin_promotion(2, 1)
    register.move_readers(2)
    promote.promote(pipeline, "cache", 1, done.append)
    assert done[:3] == ["settle order", "level", "promote order from 2"]
    done.clear()
    register.begin_promotion(2, 1)
    register.move_readers(2)
    promote.promote(pipeline, "cache", 2, done.append)  # the way it went: ended by itself, and nobody is waited for
    assert done[0] == "promote order from 2"
