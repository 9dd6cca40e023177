"""A state folder that no `run` looks at: another one in the file, another machine, another working folder."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from cdc.catalogue import Catalogue
from cdc.errors import ConnectError, ConnectUnavailable, HeadwaterError, SourceUnavailable, StateError
from cdc.pipeline import Pipeline
from connectors.actions import Action, Begins, Show, run_all
from connectors.apply import Result
from connectors.drop import is_captured
from console.cli.apply import command as apply_command
from console.cli.main import cli
from operations import plan as planning
from operations.generations import targets
from operations.state.accepted import Running, Text, hand_over, note_running, this_process
from operations.state.folder import captured_path, is_begun, note_captured, numbered_state_dir, running_notes
from tests.unit.operations.test_file_edits import Files, files, filled

__all__ = ["files"]

CREATED = Action("connector", "p", "create", None, {}, captures=True)
AGAIN = Action("connector", "p", "create", None, {})  # whose slot is there
SET = Action("connector", "p", "set a", {}, {})
NO_SERVERS: Any = None


def planned(pipeline: Pipeline, actions: list[Action], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `plan` says besides."""
    for name in ("migrations", "needed", "evolving"):
        monkeypatch.setattr(planning, name, lambda *_: [])
    monkeypatch.setattr(planning, "plan_pipeline", lambda _: actions)
    monkeypatch.setattr(planning, "refuse_wrong_views", lambda *_: None)
    monkeypatch.setattr(planning, "_mending", lambda _: {})
    said: list[str] = []
    planning.plan(pipeline, say=said.append)
    return said


@pytest.mark.parametrize(("actions", "warned"), [([], True), ([SET], True), ([AGAIN], True), ([CREATED], False)])
def test_a_folder_without_state_of_a_captured_pipeline_is_told(
    files: Files, monkeypatch: pytest.MonkeyPatch, actions: list[Action], warned: bool
) -> None:
    """`plan` saw no `run`, and `apply` left the file where that one never looks; both without a word."""
    said = planned(files.load(), actions, monkeypatch)
    assert [str(files.folder) in one and "warning: pipeline p is captured already" in one for one in said] == [
        True
    ] * warned
    hand_over(files.load(), Text("p.yaml", files.text(), 1.0))
    assert bool(planned(files.load(), actions, monkeypatch)) is warned, "that a file was applied here is no capture"
    note_captured(files.load())
    assert planned(files.load(), actions, monkeypatch) == []


def test_what_any_verb_leaves_in_a_fresh_folder_ends_no_warning(files: Files) -> None:
    """A `pause`, an `erase` or a `verify` was enough, and no `apply` warned of the folder any more."""
    numbered_state_dir(files.load())
    assert not is_begun(files.load())


def test_the_state_of_an_older_headwater_counts(files: Files) -> None:
    assert not is_begun(files.load())
    filled(files.load(), "cache")
    (files.folder / "p" / "format.json").unlink(missing_ok=True)
    assert is_begun(files.load())


@pytest.mark.parametrize(
    ("begun", "actions", "warned"),
    [(False, [], True), (False, [AGAIN], True), (False, [CREATED], False), (True, [], False)],
)
def test_so_does_apply(
    files: Files, monkeypatch: pytest.MonkeyPatch, begun: bool, actions: list[Action], warned: bool
) -> None:
    if begun:
        note_captured(files.load())
    done = Result(actions, Catalogue(), fresh=False)
    monkeypatch.setattr("operations.gate.refuse_wrong_views", lambda *_: None)
    monkeypatch.setattr("operations.edits.handing.let_through", lambda _: None)

    def apply(_pipeline: Pipeline, progress: Show, *, begins: Begins, within: Any) -> Result:
        with within:
            run_all(NO_SERVERS, done.actions, progress, begins)
            return done

    monkeypatch.setattr("connectors.apply.apply", apply)
    found = CliRunner().invoke(apply_command, [str(files.path)], catch_exceptions=False)
    assert ("is captured already" in found.stderr) is warned and found.exit_code == 0
    done = Result([], Catalogue(), fresh=False)
    again = CliRunner().invoke(apply_command, [str(files.path)], catch_exceptions=False).stderr
    assert ("is captured already" in again) is warned, "it was told once, and that `run` never heard of any later file"
    assert bool(planned(files.load(), [], monkeypatch)) is warned
    pipeline = files.load()
    if warned and again:
        note_running(pipeline, this_process(Text("p.yaml", files.text(), 2.0)))  # one that is started here
        assert planned(pipeline, [], monkeypatch) == []
        (files.folder / "p" / "running.json").unlink()
    done = Result([CREATED], Catalogue(), fresh=False)
    assert CliRunner().invoke(apply_command, [str(files.path)], catch_exceptions=False).stderr == "", (
        "captured from here"
    )
    assert planned(pipeline, [], monkeypatch) == [], "and nobody has run it yet"


@pytest.mark.parametrize("cut", [ConnectError("a rebalance"), KeyboardInterrupt()], ids=["failed", "interrupted"])
@pytest.mark.parametrize(("action", "warned"), [(SET, True), (AGAIN, True), (CREATED, False)])
def test_an_apply_that_failed_half_way_leaves_the_next_one_to_say_so(
    files: Files, monkeypatch: pytest.MonkeyPatch, action: Action, warned: bool, cut: BaseException
) -> None:
    """It had put something into the folder by then, and the same again was silent of a capture from elsewhere. One
    that was cut while it made the connector, which is there from its first request on, must not be told of another
    folder by the next, and refused by `pause`, `erase` and `drop`."""
    monkeypatch.setattr("operations.gate.refuse_wrong_views", lambda *_: None)
    monkeypatch.setattr("operations.edits.handing.let_through", lambda _: None)
    actions = [replace(action, run=Mock(side_effect=cut))]

    def apply(_pipeline: Pipeline, progress: Show, *, begins: Begins, within: Any) -> Result:
        with within:
            run_all(NO_SERVERS, actions, progress, begins)
            return Result([], Catalogue(), fresh=False)

    monkeypatch.setattr("connectors.apply.apply", apply)
    assert CliRunner().invoke(apply_command, [str(files.path)]).exit_code == 1
    actions = []
    found = CliRunner().invoke(apply_command, [str(files.path)], catch_exceptions=False)
    assert ("is captured already" in found.stderr) is warned


# -- verbs that change sinks, in a folder that knows nothing of them ---------------------------------------------------

CONNECTOR = Action("connector", "p", "stop, forget its offsets, delete", "present", None)
SLOT = Action("slot", "p", "drop", "present", None)
PUBLICATION = Action("publication", "p", "drop", "present", None)


def refused(*words: str) -> str:
    """What a verb is refused with."""
    error = CliRunner().invoke(cli, words).exception
    assert isinstance(error, StateError), error
    return str(error)


def test_a_pause_that_no_run_would_see_is_refused(files: Files) -> None:
    """It said that nothing is written to the sink, which `run` went on with."""
    said = refused("pause", str(files.path), "cache")
    assert f"nothing of pipeline p in engine.state_dir ({files.folder})" in said and "absolute path" in said
    assert "start `run` here once" in said
    assert not list(files.folder.glob("**/*")), "by what it left the folder was taken for the pipeline's"
    note_captured(files.load())  # and nobody has run it yet
    assert CliRunner().invoke(cli, ["pause", str(files.path), "cache"]).exit_code == 0


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_an_erasure_that_knows_of_no_build_is_refused(files: Files, words: tuple[str, ...]) -> None:
    """It waited for nobody, looked into no sink, and certified that nothing is left."""
    assert "nothing was looked at" in refused("erase", str(files.path), "t", "1", *words)


@pytest.fixture
def dropping(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What there is to drop, and what was dropped."""
    made = SimpleNamespace(actions=[CONNECTOR], gone=[])

    def planned(*_: Any, **__: Any) -> list[Action]:
        return list(made.actions)

    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", planned)
    monkeypatch.setattr("connectors.drop.is_captured", lambda _: any(one in (CONNECTOR, SLOT) for one in made.actions))
    monkeypatch.setattr("connectors.drop.drop", lambda *_, **__: made.gone.append("capture"))
    monkeypatch.setattr(targets, "drop_sink_state", lambda _, only: made.gone.append(tuple(only)))
    monkeypatch.setattr("cdc.log.forgotten.forget_sinks", lambda *_: None)
    return made


@pytest.mark.parametrize("words", [("--yes",), ("--dry-run",), ("--yes", "--sink", "cache")])
@pytest.mark.parametrize("left", [CONNECTOR, SLOT])
def test_a_drop_that_would_leave_sinks_behind_or_take_them_from_under_a_run_is_refused(
    files: Files, dropping: SimpleNamespace, words: tuple[str, ...], left: Action
) -> None:
    """The capture went, "removed" was printed, and indices and keys stayed; of a single sink the first generation went,
    which a `run` with another folder was writing to."""
    dropping.actions = [left]
    said = refused("drop", str(files.path), *words)
    assert str(files.folder) in said and "--keep-sinks" in said and dropping.gone == []


def test_what_is_left_of_a_pipeline_whose_folder_is_lost_can_be_dropped(
    files: Files, dropping: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop(*words: str) -> str:
        return CliRunner().invoke(cli, ["drop", str(files.path), "--yes", *words], catch_exceptions=False).output

    assert "removed" in drop("--keep-sinks") and dropping.gone == ["capture"]
    dropping.actions = []
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", None)  # who asks all servers fails where Kafka is gone
    assert "removed" in drop("--sink", "cache") and dropping.gone == ["capture", ("cache",)]
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: dropping.actions)
    dropping.actions = [PUBLICATION]  # of a first `apply` that failed before there was a connector: nobody can run it
    assert "removed" in drop()


def test_a_drop_where_the_state_is_asks_for_the_capture_only_if_it_goes(
    files: Files, dropping: SimpleNamespace
) -> None:
    note_captured(files.load())
    assert CliRunner().invoke(cli, ["drop", str(files.path), "--yes"]).exit_code == 0
    note_captured(files.load())
    dropping.actions = None  # asked for, it would fail
    assert CliRunner().invoke(cli, ["drop", str(files.path), "--yes", "--sink", "cache"]).exit_code == 0
    assert dropping.gone[-1] == ("cache",)


@pytest.mark.parametrize("away", [ConnectUnavailable("no answer", fix="start it"), SourceUnavailable("no answer")])
def test_a_sink_of_a_lost_folder_whose_servers_are_gone_is_told_the_way_out(
    files: Files, dropping: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, away: HeadwaterError
) -> None:
    monkeypatch.setattr("connectors.drop.is_captured", Mock(side_effect=away))
    assert CliRunner().invoke(cli, ["drop", str(files.path), "--yes", "--sink", "cache"]).exception is away
    assert "nothing was removed" in away.means and "at the sink's own server" in away.fix and dropping.gone == []


def test_what_is_captured_has_a_connector_or_a_slot(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    there: dict[str, Any] = {"connector": None, "slot": None}
    monkeypatch.setattr("connectors.drop.ConnectClient.config", lambda *_: there["connector"])
    monkeypatch.setattr("connectors.drop.connect", lambda _: nullcontext())
    monkeypatch.setattr("connectors.drop.read_slot", lambda *_: there["slot"])
    assert not is_captured(files.load())
    for one in there:
        there[one] = {}
        assert is_captured(files.load())
        there[one] = None


def test_a_folder_whose_pipeline_was_dropped_has_nothing_of_it_any_more(
    files: Files, dropping: SimpleNamespace
) -> None:
    """The pipeline was captured from elsewhere then, and `pause` and `erase` went by this folder all the same."""
    pipeline, text = files.load(), Text("p.yaml", files.text(), 1.0)
    ended = Running(text, pid=2**22 + 1, started=9.0, host=this_process(text).host)
    note_captured(pipeline)
    for words, left in (("--dry-run",), True), (("--yes", "--sink", "cache"), True), (("--yes",), False):
        note_running(pipeline, ended)
        assert CliRunner().invoke(cli, ["drop", str(files.path), *words]).exit_code == 0
        assert is_begun(pipeline) is left


def test_what_goes_on_at_a_drop_keeps_its_note(files: Files, dropping: SimpleNamespace) -> None:
    pipeline, text = files.load(), Text("p.yaml", files.text(), 1.0)
    for one, words in (Running(text, 1, 1.0), ("--keep-sinks",)), (this_process(text), ()):
        note_captured(pipeline)
        note_running(pipeline, one)
        assert CliRunner().invoke(cli, ["drop", str(files.path), "--yes", *words]).exit_code == 0
        assert not captured_path(pipeline).exists() and running_notes(pipeline)
