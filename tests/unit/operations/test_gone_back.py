"""What a person has gone back from comes back when he asks for it, and not by the next `apply`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from console.cli.main import cli
from operations.edits import file_watch
from operations.edits.changes import changes_between
from operations.generations import outdated, promote
from operations.generations.outdated import gone_back_from, line, needed
from operations.opened import Opened
from operations.run.engine import warn_outdated
from operations.state.folder import register_of
from spark.disk.made_of import define
from spark.disk.register import Register
from tests.support.promoted import promoted
from tests.unit.operations.test_file_edits import Files, Run, files, filled, run

__all__ = ["files", "run"]


def built(pipeline: Pipeline) -> Register:
    """The next generation of the cache is as a file says, and readers see it."""
    register = register_of(pipeline, "cache")
    generation = register.generation(register.create("the file").number)
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    define(generation, pipeline, [])
    promoted(register, generation.number)
    return register


def test_an_apply_for_another_reason_builds_nothing_of_it(files: Files, run: Run) -> None:
    """New passwords: `run` built it a third time, promoted it, and removed the one to go back to."""
    wrong = files.load(column="title")
    register = built(wrong)
    promoted(register, 1)
    said = run.apply(files.text(column="title", port=2))
    assert not [told for told in said if "next generation" in told] and not run.children
    assert not run.apply(files.text(column="title", port=2)) and not run.children
    run.apply(files.text(column="other"))
    assert [child.arguments[2] for child in run.children] == ["cache"], "what nobody has gone back from is built"


def test_a_builder_whose_end_nobody_noted_makes_none_of_it_again(
    files: Files, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed behind its promotion, which a person took back before it was tried again."""
    monkeypatch.setattr(file_watch, "FIRST_PAUSE", 0.0)
    text = files.text(column="title")
    run.apply(text)
    [child] = run.children
    promoted(built(files.load(column="title")), 1)
    child.finish(error=HeadwaterError("it was killed"))
    said = [line for _ in range(3) for line in run.watch.step()]
    assert len(run.children) == 1 and not run.watch.building
    assert any("readers were taken back from generation 2" in line for line in said)


def test_the_start_says_so_too(files: Files) -> None:
    right, wrong = files.load(), files.load(column="title")
    filled(right, "cache")
    [before] = warn_outdated(wrong, [opened(right)])
    assert "`headwater rebuild FILE cache` makes a new generation" in before
    promoted(built(wrong), 1)
    [text] = warn_outdated(wrong, [opened(right)])
    assert "`headwater promote FILE cache --generation 2` shows it again" in text


def opened(pipeline: Pipeline) -> Opened:
    return Opened(pipeline, register_of(pipeline, "cache").generation(1), [], 1)


def test_it_is_told_with_the_ways_out(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outdated, "cost", lambda *_: {"documents": None, "bytes": None, "row_store_bytes": None})
    right, wrong = files.load(), files.load(column="title")
    filled(right, "cache")
    register = built(wrong)
    assert needed(wrong) == [] and gone_back_from(wrong, register) is None
    promoted(register, 1)
    changes = changes_between(right, wrong)
    assert changes.rebuilt == {} and changes.to_dict()["gone_back_from"] == {"cache": 2}
    way = "`headwater promote FILE cache --generation 2` shows it again"
    assert way in changes.lines()[0] and changes.lines(told=["cache"]) == []
    [one] = needed(wrong)
    assert one["gone_back_from"] == 2 and way in line(one, "FILE")
    assert changes_between(wrong, right).lines() == [], "the file was put back"
    other = files.load(column="other")
    assert list(changes_between(right, other).rebuilt) == ["cache"]
    register.remove(2)
    assert list(changes_between(right, wrong).rebuilt) == ["cache"], "nothing is kept that says so"


def test_a_file_that_was_set_back_is_built(files: Files) -> None:
    """A, B, A: the generation of A is kept to go back to, and nobody has gone back from it."""
    right = files.load()
    filled(right, "cache")
    built(files.load(column="title"))
    assert list(changes_between(right, right).rebuilt) == ["cache"]


def test_a_rollback_says_what_the_file_still_asks_for(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(files.load(), "cache")
    register = built(files.load(column="title"))
    files.path.write_text(files.text(column="title"))
    target = SimpleNamespace(living=lambda _: 2, promote=lambda *_: None, close=lambda: None)
    monkeypatch.setattr(promote, "open_target", lambda _: target)
    monkeypatch.setattr("operations.state.letters.refuse_more_letters", lambda *_: None)
    for number in (1, 2):
        (register.generation(number).folder / "views.json").write_text('["v"]')

    def asked(*words: str) -> Any:
        found = CliRunner().invoke(cli, [words[0], str(files.path), "cache", "--force", *words[1:]])
        assert found.exit_code == 0, found.output
        return found.output

    said = asked("rollback")
    assert "the file asks for something else still (views.v.columns" in said and "put it back" in said
    assert '"differs_from_file": [\n    "views.v.columns' in asked("promote", "--generation", "1", "--json")
    target.living = lambda _: 1
    again = asked("promote", "--generation", "2", "--json")
    assert '"differs_from_file": []' in again and "something else" not in again


def test_nothing_is_gone_back_from_before_anything_was_built(tmp_path: Path) -> None:
    made = Files(tmp_path)
    pipeline = made.load()
    assert gone_back_from(pipeline, register_of(pipeline, "cache")) is None
