"""A file that is applied beside others: another file meanwhile, or an erasure. No server is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cdc.catalogue import Catalogue
from cdc.errors import StateError
from cdc.log.client import Topic
from cdc.pipeline import Pipeline
from connectors import apply as place
from console.cli.main import cli
from operations.edits.handing import applied_last, handing
from operations.erase.note import Note
from operations.state.accepted import Text, accepted_path, hand_over, note_running, read_accepted, this_process
from tests.unit.operations.test_file_edits import NEW, Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.path.write_text(made.text())
    return made


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done on the servers."""
    made: list[str] = []

    def apply(_pipeline: Pipeline, *_: Any, within: AbstractContextManager[None], **__: Any) -> place.Result:
        with within:
            made.append("applied")
        return place.Result([], Catalogue(), fresh=False)

    monkeypatch.setattr("connectors.apply.apply", apply)
    monkeypatch.setattr("operations.gate.refuse_wrong_views", lambda *_: None)
    monkeypatch.setattr("operations.edits.handing.let_through", lambda _: None)
    return made


def applied(files: Files, *words: str) -> Result:
    return CliRunner().invoke(cli, ["apply", str(files.path), *words])


def text(files: Files, **more: Any) -> Text:
    return Text("theirs.yaml", files.text(**more), 2.0)


def test_whose_question_was_answered_while_another_file_was_applied_is_refused(
    files: Files, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that one had more than this one was let go of, and nobody was asked about it."""
    pipeline, theirs = files.load(), text(files, more=NEW.replace("third", "fourth"))
    note_running(pipeline, this_process(text(files, more=NEW)))
    hand_over(pipeline, text(files, more=NEW))
    asked: list[str] = []

    def confirm(question: str) -> None:
        asked.append(question)
        hand_over(pipeline, theirs)

    monkeypatch.setattr("console.cli.apply.confirm", confirm)
    told = applied(files)
    assert isinstance(told.exception, StateError) and "another file was applied meanwhile" in str(told.exception)
    assert "third" in asked[0] and "fourth" not in asked[0]
    assert done == [] and read_accepted(pipeline) == theirs


def test_who_is_asked_nothing_applies_after_whoever_was_first(files: Files, done: list[str]) -> None:
    pipeline = files.load()
    hand_over(pipeline, text(files, more=NEW))
    for words in ((), ("--yes",)):
        assert applied(files, *words).exit_code == 0
    last = read_accepted(pipeline)
    assert last is not None and last.text == files.text() and done == ["applied"] * 2
    with handing(pipeline, text(files, more=NEW), None):
        pass
    assert applied_last(pipeline) == text(files, more=NEW).digest


def test_what_can_not_be_read_is_written_anew(files: Files, done: list[str]) -> None:
    pipeline = files.load()
    hand_over(pipeline, text(files))
    accepted_path(pipeline).write_text("{")
    assert applied(files).exit_code == 0 and done == ["applied"]
    assert read_accepted(pipeline) is not None


def test_a_file_that_could_not_be_applied_is_not_handed_over(files: Files, done: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), handing(files.load(), text(files), ""):
        raise KeyboardInterrupt
    assert read_accepted(files.load()) is None


def test_a_file_is_not_applied_while_an_erasure_is_at_work_nor_the_other_way_round(
    files: Files, done: list[str]
) -> None:
    """It put back the settings that topics had before, and `apply` had said that they are made: of rows that are to be
    shown as they were the versions were lost."""
    note = Note(files.load())
    with note.alone():
        told = applied(files)
    assert isinstance(told.exception, StateError) and "an erasure of pipeline p is at work" in str(told.exception)
    assert done == [] and read_accepted(files.load()) is None
    refused = pytest.raises(StateError, match="is at work, or an `apply`")
    with handing(files.load(), text(files), ""), refused, note.alone():
        pass
    assert applied(files).exit_code == 0


def test_a_file_that_was_applied_meanwhile_by_somebody_else_is_no_other_one(files: Files, done: list[str]) -> None:
    """Two jobs with one commit: the second one waits, and finds everything done."""
    pipeline = files.load()
    hand_over(pipeline, text(files))
    with handing(pipeline, text(files), applied_last(pipeline)):
        pass
    hand_over(pipeline, text(files, more=NEW))
    with handing(pipeline, text(files, more=NEW), "of before"):
        pass


def test_what_a_killed_erasure_has_left_of_topics_is_settled(
    files: Files, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one put back what was before both, over what the file says; what no file says stayed for ever."""
    note, left, altered = Note(files.load()), {"indices": {"i": {"a": None}}}, list[tuple[str, Any]]()
    kafka = SimpleNamespace(
        describe=lambda names: {name: None for name in names if name != "gone"},
        alter=lambda name, settings: altered.append((name, dict(settings))),
    )
    wanted = [Topic("t", 1, 1, {"min.compaction.lag.ms": "9"})]
    monkeypatch.setattr("operations.edits.handing.Kafka", lambda _: kafka)
    monkeypatch.setattr("operations.edits.handing.connect", lambda _: nullcontext())
    monkeypatch.setattr("operations.edits.handing.read_catalogue", lambda *_: Catalogue())
    monkeypatch.setattr("operations.edits.handing.wanted_topics", lambda *_: wanted)
    for topic in ("t", "not in the file any more", "gone"):
        note.begin("topics", topic, {"min.compaction.lag.ms": "1", "file.delete.delay.ms": None})
    note.begin("indices", "i", {"a": None})
    assert applied(files).exit_code == 0 and note.read() == left
    assert dict(altered) == {
        "t": {"file.delete.delay.ms": None},
        "not in the file any more": {"min.compaction.lag.ms": "1", "file.delete.delay.ms": None},
    }
    (files.folder / "p" / "erasing.json").write_text("{")
    assert applied(files).exit_code == 0  # else nothing led out: it names `apply` as the way


def test_it_is_within_the_lock_and_before_anything_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def step(name: str, answer: Any = None) -> Any:
        return lambda *_, **__: (steps.append(name), answer)[1]

    @contextmanager
    def block(name: str) -> Iterator[None]:
        steps.append(f"begin {name}")
        yield
        steps.append(f"end {name}")

    monkeypatch.setattr(place, "open_servers", lambda _: block("servers"))
    monkeypatch.setattr(place, "changing", lambda _: block("changing"))
    monkeypatch.setattr(place, "observe", step("observe", SimpleNamespace(catalogue=Catalogue(), fresh=False)))
    for name in ("plan", "run_all", "wait_ready"):
        monkeypatch.setattr(place, name, step(name))
    nothing: Any = None
    place.apply(nothing, within=block("within"))
    begun = ["begin servers", "begin changing", "begin within", "observe", "plan", "run_all", "wait_ready"]
    assert steps == [*begun, "end within", "end changing", "end servers"]
