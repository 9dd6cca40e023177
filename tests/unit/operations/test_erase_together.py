"""Erasure beside others: two of them at once, and a generation that begins while one works."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import Behind, RowInSource, StateError
from cdc.log.client import Topic
from cdc.view import View
from connectors.topics import FOR_EVER
from operations.erase import eraser, servers
from operations.erase.compaction import LAG
from operations.erase.eraser import Eraser, Options
from operations.erase.log import InLog
from operations.erase.note import Note
from operations.erase.readers import Build
from operations.erase.subject import Subject
from tests.support.erase_cases import PERSONS, build, pipeline, subject

# -- one at a time -----------------------------------------------------------------------------------------------------

HOLDS = """
import sys, time
from pathlib import Path
from operations.erase.note import Note
from tests.support.erase_cases import pipeline
with Note(pipeline(Path(sys.argv[1]))).alone():
    print("held", flush=True)
    time.sleep(60)
"""


def eraser_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, act: bool = True) -> Eraser:
    """One whose servers are not there, and that finds nothing."""
    monkeypatch.setattr(eraser, "builds_of", lambda _: [])
    made = Eraser(subject(tmp_path), Options(act=act))
    monkeypatch.setattr(made, "_look", lambda _: SimpleNamespace(places=lambda _: []))
    monkeypatch.setattr(made, "_why_not", lambda _: ([], []))
    return made


def test_a_second_erasure_is_refused_before_it_puts_back_what_the_first_one_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgot the first one's note and noted its settings as the topic's own, which so stayed for good."""
    second, back = eraser_of(tmp_path, monkeypatch), list[str]()
    monkeypatch.setattr(second._kafka, "alter", lambda topic, _: back.append(topic))
    first = Note(pipeline(tmp_path))
    noted = {"topics": {"t": {"min.compaction.lag.ms": "3600000"}}}
    with first.alone():
        first.begin("topics", "t", noted["topics"]["t"])
        with pytest.raises(StateError, match="another erasure of pipeline p is at work"):
            second.run()
        assert not back and first.read() == noted
        assert eraser_of(tmp_path, monkeypatch, act=False).run()["found"] == 0, "who only looks is let"
    with first.alone():
        pass


def test_one_that_was_killed_holds_up_nobody(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(StateError, match="at work"), Note(pipeline(tmp_path)).alone():
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    with Note(pipeline(tmp_path)).alone():
        pass


@pytest.mark.parametrize("lag", [FOR_EVER, "3600000", None])
def test_a_topic_that_keeps_all_versions_is_refused_whatever_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: str | None
) -> None:
    """The file was read before another one was applied, which shows the rows as they were: their versions were gone."""
    made = eraser_of(tmp_path, monkeypatch)
    there = {made.subject.topic: Topic(made.subject.topic, 1, 1, {} if lag is None else {LAG: lag})}
    monkeypatch.setattr(made._kafka, "describe", lambda _: there)

    def next_step(_: Subject) -> None:
        raise RowInSource("it went on")

    monkeypatch.setattr(Subject, "refuse_present", next_step)
    with pytest.raises(StateError, match="keeps all versions" if lag == FOR_EVER else "it went on") as refused:
        made.run()
    # A generation that shows them keeps them, too: `apply` alone would change nothing.
    assert lag != FOR_EVER or "`headwater retire` the generations that show them" in refused.value.fix


# -- a generation that begins meanwhile --------------------------------------------------------------------------------


@dataclass
class Working:
    """An erasure without servers: which generations each step is asked to see to, in their order."""

    monkeypatch: pytest.MonkeyPatch
    steps: list[tuple[str, list[int]]] = field(default_factory=list)
    there: list[Build] = field(default_factory=list)

    def seen(self, step: str, back: Any = None) -> Callable[..., Any]:
        def call(*args: Any, **_: Any) -> Any:
            builds = next(one for one in args if isinstance(one, list))
            self.steps.append((step, [one.opened.number for one in builds]))
            return [] if back is None else back

        return call

    def letters(self, _subject: Subject, builds: list[Build]) -> Any:
        return SimpleNamespace(
            look=lambda _: self.seen("letters", InLog("letters", {0: [len(builds)]}, {0: b""}))(builds),
            supersede=lambda: self.seen("supersede")(builds),
            builds=builds,
        )

    def begin_while(self, topic: str, build: Build) -> None:
        def compact(_kafka: object, _note: object, name: str, *_: object) -> None:
            self.steps.append((f"compact {name}", []))
            if name == topic:
                self.there.append(build)

        self.monkeypatch.setattr(eraser, "compact", compact)


@pytest.fixture
def working(monkeypatch: pytest.MonkeyPatch) -> Working:
    made = Working(monkeypatch)
    monkeypatch.setattr(eraser, "builds_of", lambda _: list(made.there))
    monkeypatch.setattr(eraser, "source_catalogue", lambda _: None)
    monkeypatch.setattr(eraser, "settings_of", lambda *_: {LAG: "3600000"})
    monkeypatch.setattr(eraser, "row_in_log", lambda *_: InLog("t"))
    monkeypatch.setattr(eraser, "Letters", made.letters)
    monkeypatch.setattr(eraser, "erase_tables", made.seen("tables"))
    monkeypatch.setattr(Eraser, "_ends", lambda _: {"p.public.persons": {0: 5}})
    for name in ("erase_indices", "erase_marks", "erase_changes", "erase_files", "look_again", "copies"):
        monkeypatch.setattr(servers, name, made.seen(name))
    monkeypatch.setattr(servers, "mark_indices", made.seen("mark", {}))
    return made


def erase(working: Working, tmp_path: Path, **options: Any) -> None:
    builds = list(working.there)
    look: Any = SimpleNamespace(log=InLog("t", {0: [1]}, {0: b""}), letters=InLog("letters"))
    made = Eraser(subject(tmp_path, "7"), Options(act=True, **options))
    made._erase(working.letters(made.subject, builds), builds, look)


def test_a_generation_that_begins_while_the_topic_is_compacted_is_erased_too(
    working: Working, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had read the row from the topic's beginning, and a certificate without it said that nothing is left."""
    working.there.append(build(tmp_path, View.identity(PERSONS), "living"))
    working.begin_while("t", build(tmp_path, View.identity(PERSONS), "filling", 3))
    monkeypatch.setattr(eraser, "await_readers", working.seen("await"))
    erase(working, tmp_path)
    begun = working.steps.index(("compact t", [])) + 1
    assert working.steps[:begun] == [("erase_changes", [2]), ("mark", [2]), ("compact t", [])]
    assert working.steps[begun:] == [
        ("await", [3]),
        ("erase_changes", [3]),
        ("mark", [3]),
        ("letters", [2, 3]),
        ("supersede", [2, 3]),
        ("compact letters", []),
        ("tables", [2, 3]),
        ("erase_indices", [2, 3]),
        ("erase_marks", [2, 3]),
        ("erase_files", [2, 3]),
        ("look_again", [2, 3]),
        ("copies", [2, 3]),
        ("letters", [2, 3]),
    ]


def test_nothing_is_compacted_before_everybody_has_read_what_was_closed(
    working: Working, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions of other rows that a history has still to read would be missing in it for good."""
    working.there.append(build(tmp_path, View.identity(PERSONS), "living"))
    ends = [{"p.public.persons": {0: 5}}, {"p.public.persons": {0: 7}}]
    monkeypatch.setattr(Eraser, "_ends", lambda _: ends.pop(0))
    goals, waits = list[Any](), list[float]()

    def waited(_subject: object, builds: list[Build], goal: Any, seconds: float, **_: Any) -> None:
        working.steps.append(("await", [one.opened.number for one in builds]))
        goals.append(goal)
        waits.append(seconds)

    def compact(*args: Any) -> None:
        _kafka, _note, topic, _keys, _left, closed, _say, _seconds = args
        if topic == "t":
            ends.pop(0)  # more is written until the segments are closed
        working.steps.append((f"close {topic}", []))
        closed()
        working.steps.append((f"compact {topic}", []))

    monkeypatch.setattr(eraser, "await_readers", waited)
    monkeypatch.setattr(eraser, "compact", compact)
    erase(working, tmp_path, wait=9.0)
    closed = working.steps.index(("close t", []))
    assert working.steps[closed : closed + 3] == [("close t", []), ("await", [2]), ("compact t", [])]
    assert goals == [{"p.public.persons": {0: 7}}] and waits == [9.0]


def test_who_begins_meanwhile_and_does_not_read_the_delete_in_time_is_named(working: Working, tmp_path: Path) -> None:
    working.there.append(build(tmp_path, View.identity(PERSONS), "living"))
    working.begin_while("t", build(tmp_path, View.identity(PERSONS), "filling", 3))
    with pytest.raises(Behind, match="sink cache, generation 3, flow main, which nobody runs") as late:
        erase(working, tmp_path, wait=0.0)
    assert "generation 2" not in late.value.what
    assert (
        "what the topic held is erased, and changes that caches keep; nothing else was" in str(late.value)
        and "headwater rebuild FILE cache" in late.value.fix
    )


def test_a_generation_that_is_removed_meanwhile_is_not_asked_any_more(working: Working, tmp_path: Path) -> None:
    working.there += [build(tmp_path, View.identity(PERSONS)), build(tmp_path, View.identity(PERSONS), "living", 3)]
    working.monkeypatch.setattr(eraser, "compact", lambda *_: working.there.pop(0))
    erase(working, tmp_path)
    asked = dict(working.steps)
    assert asked["mark"] == [2, 3] and "await" not in asked
    assert asked["tables"] == asked["erase_indices"] == asked["copies"] == [3]


def test_a_row_that_has_come_back_meanwhile_is_not_certified_as_erased(
    working: Working, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_present(_: Subject) -> None:
        if working.steps:
            raise RowInSource("the row of public.persons is in the source")

    monkeypatch.setattr(Subject, "refuse_present", refuse_present)
    monkeypatch.setattr(Eraser, "_await_delete", lambda *_: None)
    found = SimpleNamespace(log=InLog("t"), letters=InLog("letters"), held=[], places=lambda _: [])
    monkeypatch.setattr(Eraser, "_look", lambda *_: found)
    with pytest.raises(RowInSource, match="has come back to the source meanwhile"):
        Eraser(subject(tmp_path, "7"), Options(act=True)).run()
    assert ("tables", []) in working.steps, "it was refused at the end"
