"""A state folder that no `run` looks at: another one in the file, another machine, another working folder."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from cdc.catalogue import Catalogue
from cdc.pipeline import Pipeline
from connectors.actions import Action
from connectors.apply import Result
from console.cli.apply import command as apply_command
from operations import plan as planning
from operations.state.accepted import Text, hand_over, note_running, this_process
from operations.state.folder import is_begun
from tests.unit.operations.test_file_edits import Files, files, filled

__all__ = ["files"]

CREATED = Action("connector", "p", "create", None, {})
SET = Action("connector", "p", "set a", {}, {})


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


@pytest.mark.parametrize(("actions", "warned"), [([], True), ([SET], True), ([CREATED], False)])
def test_a_folder_without_state_of_a_captured_pipeline_is_told(
    files: Files, monkeypatch: pytest.MonkeyPatch, actions: list[Action], warned: bool
) -> None:
    """`plan` saw no `run`, and `apply` left the file where that one never looks; both without a word."""
    said = planned(files.load(), actions, monkeypatch)
    assert [str(files.folder) in one and "warning: pipeline p is captured already" in one for one in said] == [
        True
    ] * warned
    hand_over(files.load(), Text("p.yaml", files.text(), 1.0))
    assert planned(files.load(), actions, monkeypatch) == []


def test_the_state_of_an_older_headwater_counts(files: Files) -> None:
    assert not is_begun(files.load())
    filled(files.load(), "cache")
    (files.folder / "p" / "format.json").unlink(missing_ok=True)
    assert is_begun(files.load())


@pytest.mark.parametrize(
    ("begun", "actions", "warned"), [(False, [], True), (False, [CREATED], False), (True, [], False)]
)
def test_so_does_apply(
    files: Files, monkeypatch: pytest.MonkeyPatch, begun: bool, actions: list[Action], warned: bool
) -> None:
    if begun:
        hand_over(files.load(), Text("p.yaml", files.text(), 1.0))
    done = Result(actions, Catalogue(), fresh=False)
    monkeypatch.setattr("operations.gate.refuse_wrong_views", lambda *_: None)
    monkeypatch.setattr("operations.edits.handing.let_through", lambda _: None)

    def apply(*_: Any, within: Any, **__: Any) -> Result:
        with within:
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
