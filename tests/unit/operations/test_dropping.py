"""What `drop` removes of sinks, and what it leaves alone: all of it or nothing, and nobody comes in between."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.errors import ConfigError, ConnectError, Fenced, SinkUnavailable, SourceUnavailable, StateError
from cdc.pipeline import Pipeline, load, loads
from connectors.actions import Action
from connectors.advisory_lock import alone
from console.cli.main import cli
from operations import recapture
from operations.generations import targets
from operations.generations.retire import retire
from operations.generations.targets import drop_generation, drop_sink_state
from operations.state.accepted import note_running, text_of, this_process
from operations.state.folder import register_of, running_path
from spark.disk.lease import Lease
from spark.disk.made_of import as_defined, define
from spark.disk.state import Generation
from tests.support.begun_beside import begun_beside
from tests.support.lone_cache import TWO
from tests.support.promoted import promoted


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(TWO.format(folder=tmp_path / "state"))
    return path


@pytest.fixture
def pipeline(file: Path) -> Pipeline:
    """Each sink has begun, and of the cache readers see generation 1, 2 and 3 are beside it."""
    made = load(file)
    for sink, numbers in (("cache", (1, 2, 3)), ("other", (1,))):
        register = register_of(made, sink)
        for number in numbers:
            if number > 1:
                register.move(begun_beside(register).number, "ready")
            (register.generation(number).flow_folder("main") / "checkpoint").mkdir(parents=True)
    return made


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Generations whose targets went."""
    gone: list[tuple[str, int]] = []
    monkeypatch.setattr(targets, "drop_generation", lambda _pipeline, sink, one: gone.append((sink, one.number)))
    return gone


JOINS = "views: {{v: {{root: t, children: {{others: {{table: t, on: {{id: id}}}}}}}}}}\nrow_store: {{url: redis://h}}"


def test_rows_in_a_row_store_that_the_file_has_no_more_are_not_left_without_a_word(
    tmp_path: Path, dropped: list[tuple[str, int]]
) -> None:
    """They stayed there for ever, and `retire` said that the generation was removed."""
    text = TWO.format(folder=tmp_path / "state")
    joined, plain = (
        loads(one, "p.yaml")
        for one in (TWO.replace("views: {{v: {{root: t}}}}", JOINS).format(folder=tmp_path / "state"), text)
    )
    register = register_of(joined, "other")
    register.move(begun_beside(register).number, "ready")
    generation = register.generation(2)
    define(generation, joined, [])
    (generation.flow_folder("v") / "checkpoint").mkdir(parents=True)
    refusals = (
        lambda: retire(plain, "other", 2, str),
        lambda: drop_sink_state(plain),
        lambda: drop_generation(as_defined(plain, generation), "other", generation),
    )
    for refused in refusals:
        with pytest.raises(ConfigError, match=r"generation 2 joins tables \(v\), and the file has no row_store"):
            refused()
        assert dropped == [] and register.stage(2) == "ready" and not generation.lease.busy()
    drop_sink_state(joined)
    assert ("other", 2) in dropped


def stages(pipeline: Pipeline) -> dict[int, str]:
    return {entry.number: entry.stage for entry in register_of(pipeline, "cache").entries()}


@pytest.mark.parametrize("held", [("other", 1), ("cache", 1)])
def test_nothing_is_removed_where_one_of_them_is_run(
    pipeline: Pipeline, dropped: list[tuple[str, int]], held: tuple[str, int]
) -> None:
    """What came before it in the file, or was newer, was gone by then, and nobody was told."""
    generation = register_of(pipeline, held[0]).generation(held[1])
    generation.lock()
    with pytest.raises(StateError, match="already run by process"):
        drop_sink_state(pipeline)
    generation.unlock()
    assert dropped == [] and stages(pipeline) == {1: "living", 2: "ready", 3: "ready"}
    assert not any(register_of(pipeline, "cache").generation(number).lease.busy() for number in (1, 2, 3))
    drop_sink_state(pipeline)
    assert [one for one in dropped if one[0] == "cache"] == [("cache", 3), ("cache", 2), ("cache", 1)]
    assert not register_of(pipeline, "cache").folder.exists() and not register_of(pipeline, "other").folder.exists()


def test_a_refusal_leaves_no_folder_of_a_sink_that_never_ran(
    pipeline: Pipeline, file: Path, dropped: list[tuple[str, int]]
) -> None:
    """By its folder a sink has run here: a `drop` of all sinks then dropped its target, perhaps another's."""
    never, busy = register_of(pipeline, "other"), register_of(pipeline, "cache").generation(1)
    shutil.rmtree(never.folder)
    busy.lock()
    with pytest.raises(StateError, match="already run by process"):
        drop_sink_state(pipeline, ["other", "cache"])
    busy.unlock()
    assert not list(never.folder.glob("*"))
    note_running(pipeline, this_process(text_of(file, file.read_bytes())))
    with pytest.raises(StateError, match="has sink"):
        drop_sink_state(pipeline, ["other"])
    assert not list(never.folder.glob("*")) and dropped == []


def test_one_that_is_run_is_told_as_that_though_the_run_has_it_in_its_file(pipeline: Pipeline, file: Path) -> None:
    """It was told that it is not run just now, and of a pause that nobody had asked for."""
    note_running(pipeline, this_process(text_of(file, file.read_bytes())))
    held = register_of(pipeline, "cache").generation(1)
    held.lock()
    with pytest.raises(StateError, match="already run by process"):
        drop_sink_state(pipeline)
    held.unlock()


def test_who_begins_anew_where_a_sink_is_gone_ends_no_drop(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    never, come = register_of(pipeline, "cache"), list[Generation]()
    shutil.rmtree(never.folder)

    def drop(_pipeline: Pipeline, sink: str, _one: Generation) -> None:
        if sink == "other":
            come.append(never.generation(1))
            come[0].lock()

    monkeypatch.setattr(targets, "drop_generation", drop)
    drop_sink_state(pipeline, ["cache", "other"])
    assert come[0].lease.busy()
    come[0].unlock()


def test_one_that_is_begun_meanwhile_is_not_removed_under_who_fills_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its target stayed on the server, and nothing knew of it any more."""
    register, filled = register_of(pipeline, "other"), list[Generation]()

    def drop(*_: object) -> None:
        if not filled:
            filled.append(register.generation(begun_beside(register).number))
            filled[0].lock()

    monkeypatch.setattr(targets, "drop_generation", drop)
    with pytest.raises(StateError, match="generation 2 of sink other was begun meanwhile"):
        drop_sink_state(pipeline, ["other"])
    assert filled[0].folder.exists() and [entry.number for entry in register.entries()] == [1, 2]
    filled[0].unlock()
    drop_sink_state(pipeline, ["other"])
    assert not register.folder.exists()


def test_nobody_takes_one_before_the_last_of_the_sink_is_gone(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `run` took a generation whose target was gone, and its folder was removed under it."""
    register, busy = register_of(pipeline, "cache"), list[list[bool]]()

    def look(*_: object) -> None:
        busy.append([register.generation(number).lease.busy() for number in (1, 2, 3)])

    monkeypatch.setattr(targets, "drop_generation", look)
    clear, discard = Generation.clear, Generation.discard

    def cleared(self: Generation) -> None:
        look()
        clear(self)
        assert not self.started

    def discarded(self: Generation) -> None:
        assert not (register.folder / "generations.json").exists(), "who takes it then would go by the register"
        assert self.lease.busy()
        discard(self)

    monkeypatch.setattr(Generation, "clear", cleared)
    monkeypatch.setattr(Generation, "discard", discarded)
    drop_sink_state(pipeline, ["cache"])
    assert busy == [[True] * 3] * 6 and not register.folder.exists()


def test_one_that_is_cut_short_keeps_what_readers_see_and_none_whose_target_is_gone(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rollback the newest is not the one that readers see; those that were gone stood as ready, for `run`."""
    register = register_of(pipeline, "cache")
    promoted(register, 2)
    away = {1}

    def drop(_pipeline: Pipeline, _sink: str, one: Generation) -> None:
        if one.number in away:
            raise SinkUnavailable("away")

    monkeypatch.setattr(targets, "drop_generation", drop)
    with pytest.raises(SinkUnavailable):
        drop_sink_state(pipeline, ["cache"])
    assert stages(pipeline) == {1: "retiring", 2: "living", 3: "retiring"} and register.kept() == [2]
    away.clear()
    drop_sink_state(pipeline, ["cache"])
    assert not register.folder.exists()


def test_one_that_a_run_tries_to_open_again_and_again_is_not_dropped_under_it(
    pipeline: Pipeline, file: Path, dropped: list[tuple[str, int]]
) -> None:
    """Nobody held it, so it was removed, and filled anew half a minute later."""
    register_of(pipeline, "cache").generation(1).refuse("its target is gone")
    note_running(pipeline, this_process(text_of(file, file.read_bytes())))
    with pytest.raises(StateError, match=r"has sink cache in its file, and does not run it(.|\n)*nothing was removed"):
        drop_sink_state(pipeline, ["cache"])
    assert dropped == [] and len(stages(pipeline)) == 3
    running_path(pipeline, ()).unlink()
    note_running(pipeline, this_process(text_of(file, file.read_bytes()), only=("other",)))
    drop_sink_state(pipeline, ["cache"])
    assert len(dropped) == 3


def test_one_of_a_run_that_was_started_before_another_is_not_dropped_under_it(
    pipeline: Pipeline, file: Path, dropped: list[tuple[str, int]]
) -> None:
    """Only what the newest `run --sink` had noted was looked at: it was removed, and the older one filled it anew."""
    for sink in ("cache", "other"):
        note_running(pipeline, this_process(text_of(file, file.read_bytes()), only=(sink,)))
    for sink in ("cache", "other"):
        with pytest.raises(StateError, match=f"has sink {sink} in its file"):
            drop_sink_state(pipeline, [sink])
    assert dropped == []
    running_path(pipeline, ["cache"]).unlink()
    drop_sink_state(pipeline, ["cache"])
    assert len(dropped) == 3


def test_who_was_away_while_it_went_makes_no_folder_again(tmp_path: Path) -> None:
    """Renewing its lease it did, and a sink that was dropped had run here again."""
    lease = Lease(tmp_path / "cache" / "g2", "sink cache")
    lease.take()
    lease._ended()
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(Fenced):
        lease.renew()
    assert not (tmp_path / "cache").exists()


class Held:
    """A database of which another has the lock; in psycopg's words."""

    def execute(self, statement: str, _given: object = None) -> Any:
        return SimpleNamespace(fetchone=lambda: (False,) if "try" in statement else None)


@pytest.mark.parametrize("verb", ["drop", "recapture"])
def test_who_waits_in_vain_for_an_apply_has_removed_nothing_of_any_sink(
    pipeline: Pipeline, file: Path, dropped: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The sinks were empty by then, and it was said that nothing was changed."""
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: [])
    monkeypatch.setattr("connectors.drop.open_servers", lambda _: nullcontext(SimpleNamespace(setup=Held())))
    monkeypatch.setattr("connectors.drop.changing", lambda servers: alone(servers.setup, "l", "another `apply`", 0))
    monkeypatch.setattr("operations.generations.retire.drop_generation", lambda *_: dropped.append(("retired", 0)))
    monkeypatch.setattr("cdc.log.forgotten.forget_sinks", lambda *_: dropped.append(("letters", 0)))
    with pytest.raises(SourceUnavailable, match="another `apply` is at work") as error:
        if verb == "drop":
            CliRunner().invoke(cli, ["drop", str(file), "--yes"], catch_exceptions=False)
        else:
            recapture._leave(pipeline, str)
    assert dropped == [] and stages(pipeline) == {1: "living", 2: "ready", 3: "ready"}
    assert "what this one waited to do was not begun" in error.value.means


@pytest.mark.usefixtures("pipeline")
def test_a_drop_that_fails_behind_the_sinks_says_that_they_are_done(
    file: Path, dropped: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that no step was done."""

    def fails(_: object) -> None:
        raise ConnectError("refused")

    steps = [Action("connector", "c", "delete", "present", None, fails)]
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: steps)
    monkeypatch.setattr("connectors.drop.plan_drop", lambda *_, **__: steps)
    monkeypatch.setattr("connectors.drop.open_servers", nullcontext)
    monkeypatch.setattr("connectors.drop.changing", nullcontext)
    for words, removed in ((["--keep-sinks"], False), (["--topics"], True)):
        with pytest.raises(ConnectError) as error:
            CliRunner().invoke(cli, ["drop", str(file), "--yes", *words], catch_exceptions=False)
        assert error.value.means == "stopped at «connector c: delete», 1 of 2 steps are done"
        assert bool(dropped) is removed
