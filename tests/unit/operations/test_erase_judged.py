"""What is laid out to be judged by standing queries is deleted once nobody can lay it out anew, and not before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from operations.erase import eraser, judged, servers
from operations.erase.eraser import Eraser, Options
from operations.erase.judged import remove_judged
from operations.erase.log import InLog
from operations.erase.subject import Subject
from operations.standing.note import MatcherNote, read_note
from tests.support.erase_cases import subject

VIEW = "person"


class Judge:
    """Of an index in which some batches are laid out; ``removed`` says which were deleted, and when."""

    def __init__(self, *marks: str) -> None:
        self.marks, self.removed = list(marks), list[tuple[str, float]]()

    def laid_out(self) -> list[str]:
        return list(self.marks)

    def remove(self, marks: list[str]) -> None:
        self.removed += [(mark, time.monotonic()) for mark in marks if mark in self.marks]
        self.marks = [mark for mark in self.marks if mark not in marks]


def removing(one: Subject, judge: Judge | None) -> None:
    remove_judged(one, cast(Any, SimpleNamespace(judge=lambda view: judge if view == VIEW else None)), VIEW)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    monkeypatch.setattr(judged, "LOOK_SECONDS", 0.01)
    return replace(subject(tmp_path), say=lambda _: None)


def steps(one: Subject, *between: Callable[[], None], pause: float = 0.2) -> threading.Thread:
    """A matcher that leaves a note after each of these."""

    def work() -> None:
        for step in between:
            time.sleep(pause)
            step()
            MatcherNote().write(one.pipeline, VIEW)

    MatcherNote().write(one.pipeline, VIEW)
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_what_a_killed_matcher_has_left_goes_and_a_batch_that_is_judged_now_is_left_alone(one: Subject) -> None:
    """Documents of the row lay there for an hour after a crash, while `erase` said that nothing was left."""
    judge = Judge("left")
    # What it had read before is laid out after `erase` has begun, and the next batch while it looks.
    matcher = steps(one, lambda: judge.marks.append("next"), lambda: judge.marks.remove("next"))
    removing(one, judge)
    matcher.join()
    assert [mark for mark, _ in judge.removed] == ["left"] and not judge.marks


def test_what_was_in_memory_is_waited_for(one: Subject) -> None:
    """A batch that was read before the row's changes went, and is laid out only after the index was looked into."""
    judge = Judge()

    def killed_then() -> None:
        judge.marks.append("late")  # and never removed: that delete did not come through

    matcher = steps(one, killed_then, lambda: None)
    removing(one, judge)
    matcher.join()
    assert [mark for mark, _ in judge.removed] == ["late"]


@pytest.mark.parametrize("noted", [True, False])
def test_nobody_waits_for_a_matcher_that_is_gone(one: Subject, monkeypatch: pytest.MonkeyPatch, noted: bool) -> None:
    monkeypatch.setattr(judged, "AT_WORK_SECONDS", 0.3)
    if noted:
        MatcherNote().write(one.pipeline, VIEW)
    judge, began = Judge("left"), time.monotonic()
    removing(one, judge)
    assert [mark for mark, _ in judge.removed] == ["left"]
    waited = time.monotonic() - began
    assert (waited >= 0.2) == noted and waited < 5
    MatcherNote(at=time.time() - 1).write(one.pipeline, VIEW)
    removing(one, Judge("left"))
    assert time.monotonic() - began < 5


def test_of_a_clock_that_is_ahead_it_waits_no_longer(one: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "AT_WORK_SECONDS", 0.2)
    MatcherNote(at=time.time() + 3600).write(one.pipeline, VIEW)
    began = time.monotonic()
    removing(one, Judge())
    assert 0.1 < time.monotonic() - began < 5


def test_where_nothing_is_laid_out_nobody_is_waited_for(one: Subject) -> None:
    MatcherNote().write(one.pipeline, VIEW)
    began = time.monotonic()
    removing(one, None)
    assert time.monotonic() - began < 5 and read_note(one.pipeline, VIEW) is not None


def test_changes_that_show_the_row_go_first(one: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matcher that is behind would lay the row out anew from them, after the index was merged."""
    order: list[str] = []

    def called(name: str) -> list[Any]:
        order.append(name)
        return []

    steps = ("erase_changes", "mark_indices", "erase_indices", "erase_marks", "erase_files", "look_again", "copies")
    for name in steps:
        monkeypatch.setattr(servers, name, lambda *_, name=name: called(name))
    monkeypatch.setattr(Eraser, "_builds_now", lambda _, known: (list(known), []))
    monkeypatch.setattr(eraser, "erase_tables", lambda *_, **__: [])
    monkeypatch.setattr(eraser, "row_in_log", lambda *_: InLog("t"))
    letters = SimpleNamespace(supersede=lambda: 0, look=lambda _: InLog("letters"))
    looked = SimpleNamespace(log=InLog("t"), letters=InLog("letters"))
    Eraser(one, Options(act=True))._erase(cast(Any, letters), [], cast(Any, looked))
    assert order[:2] == ["erase_changes", "mark_indices"]
    assert order.index("erase_changes") < order.index("erase_files")
