"""Several `run --sink` of one pipeline: what each has noted of itself, and what is read of all of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import orjson
import pytest

from cdc.pipeline import loads
from operations.edits import file_watch
from operations.edits.pending import let_go, pending, under_way
from operations.state.accepted import (
    Text,
    cut_builds,
    file_status,
    note_running,
    read_runs,
    runs_without,
    this_process,
)
from operations.state.folder import is_begun, running_path
from tests.unit.operations.test_edited_beside import OTHER
from tests.unit.operations.test_file_edits import NEW, Files, Run, files, filled

__all__ = ["files"]

DEAD = 2**22 + 1


@pytest.fixture
def runs(files: Files, monkeypatch: pytest.MonkeyPatch) -> dict[str, Run]:
    """One for each sink; that of ``other`` was started last."""
    monkeypatch.setattr(file_watch, "source_catalogue", lambda _pipeline: None)
    monkeypatch.setattr(file_watch, "check_machines", lambda *_: None)
    for sink in ("cache", "other"):
        filled(files.load(), sink)
    return {sink: Run(files, only=[sink]) for sink in ("cache", "other")}


def noted(files: Files, text: str, only: Sequence[str], at: float, **more: Any) -> None:
    """A note of a `run`, written at a time."""
    running = replace(this_process(Text("p.yaml", text, 2.0), only=tuple(only)), **more)
    note_running(files.load(), running)
    os.utime(running_path(files.load(), only), (at, at))


def built(run: Run) -> list[str]:
    run.watch.step()
    return [child.arguments[2] for child in run.children]


def test_a_killed_run_of_a_sink_goes_on_though_another_has_noted_something_since(
    files: Files, runs: dict[str, Run]
) -> None:
    """The next generation that `apply` had promised was forgotten, and nothing was said."""
    text = files.text(column="title")
    runs["cache"].apply(text)
    files.path.write_text(text)
    assert built(runs["cache"]) == ["cache"] and built(runs["other"]) == []
    assert runs["other"].watch.taken.digest == runs["cache"].watch.taken.digest, "it has noted last"
    assert built(Run(files, only=["other"])) == [], "what another one builds is that one's"
    assert built(Run(files, only=["cache"])) == ["cache"]


def test_what_was_cut_goes_on_also_in_a_run_of_other_sinks(files: Files, runs: dict[str, Run]) -> None:
    text = files.text(column="title")
    runs["cache"].apply(text)
    files.path.write_text(text)
    assert built(Run(files, only=["other", "cache"])) == ["cache"]
    again = Run(files)
    assert built(again) == ["cache"]
    again.children[0].finish(False)
    again.watch.step()
    assert built(Run(files, only=["cache"])) == [], "the older note is of what has ended since"


def test_of_each_sink_the_newest_word_counts(files: Files) -> None:
    taken = Text("p.yaml", files.text(), 1.0)
    every = this_process(taken, building=("cache", "other", "gone"))
    one = this_process(taken, only=("cache",))
    assert cut_builds([one, every], taken, ["cache", "other"]) == ["other"]
    assert cut_builds([every, one], taken, ["cache", "other"]) == ["cache", "other"]
    later = this_process(Text("p.yaml", files.text(column="title"), 1.0))
    assert cut_builds([later, every], taken, ["cache", "other"]) == []
    assert cut_builds([], taken, ["cache"]) == []


def test_a_note_of_an_older_headwater_is_read_for_its_own_sinks(files: Files, runs: dict[str, Run]) -> None:
    """All of them wrote into one file."""
    for sink in ("cache", "other"):
        running_path(files.load(), [sink]).unlink()
    taken = this_process(Text("p.yaml", files.text(), 2.0), only=("cache",), building=("cache",))
    running_path(files.load(), ()).write_bytes(orjson.dumps(asdict(taken)))
    assert built(Run(files, only=["other"])) == []
    assert built(Run(files, only=["cache"])) == ["cache"]


def test_a_run_that_lets_go_of_one_of_its_sinks_keeps_one_note(files: Files, runs: dict[str, Run]) -> None:
    run = Run(files, only=["cache", "other"])
    before = running_path(files.load(), ["other", "cache"]).stat().st_mtime_ns
    assert "taken up" in run.apply(files.text().replace(OTHER, ""))[0]
    assert run.watch.only == ("cache",)
    assert running_path(files.load(), ["other", "cache"]).stat().st_mtime_ns > before
    assert len(read_runs(files.load())) == 3


def test_what_all_of_them_build_and_what_one_has_refused_is_told(files: Files) -> None:
    text = files.text()
    why = {"digest": "x", "at": 1.0, "reason": "no"}
    noted(files, text, ["cache"], 1.0, building=("cache",), refused=why)
    noted(files, text, ["other"], 2.0, building=("other",))
    noted(files, text, (), 3.0, building=("third",), pid=DEAD)
    told = file_status(files.load())
    assert told["building"] == ["other", "cache"] and told["refused"] == why and told["pid"] == os.getpid()
    assert under_way(files.load()) == ({"cache", "other"}, set())
    assert is_begun(files.load()), "somebody has run it here"


def test_a_sink_is_applied_that_one_of_them_has_in_its_file(files: Files) -> None:
    noted(files, files.text(more=NEW), ["cache"], 1.0)
    noted(files, files.text(), ["other"], 2.0)
    assert not runs_without(files.load(), "third") and runs_without(files.load(), "fourth")


def test_each_of_them_is_asked_about_and_told_by_the_file_that_it_goes_by(files: Files) -> None:
    """Of the one that was started before only what the newest goes by was known, and a lease, which a pause ends."""
    old, without = files.text(more=NEW), files.text()
    noted(files, old, ["cache", "third"], 1.0)
    noted(files, without, ["other"], 2.0)
    assert tuple(let_go(files.load())) == ("third",)
    changed = loads(without.replace(OTHER, ""), "p.yaml")
    assert tuple(let_go(changed)) == ("third",), "the newest asks to be started again"
    filled(files.load(), "cache")
    filled(files.load(), "other")
    found = pending(loads(files.text(column="title"), "p.yaml"))
    assert found is not None and list(found.beside) == ["cache"] and list(found.beside["cache"].rebuilt) == ["cache"]
    noted(files, old, ["cache", "third"], 1.0, pid=DEAD)
    found = pending(loads(files.text(column="title"), "p.yaml"))
    assert found is not None and found.beside == {} and found.others == ("cache",)
    assert tuple(let_go(files.load())) == ()
