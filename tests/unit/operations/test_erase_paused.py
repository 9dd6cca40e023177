"""A sink that an operator has paused is left alone by an erasure, also where that came while it was at work."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cdc.errors import EraseUnfinished, StateError
from cdc.view import View
from operations.erase import eraser, warehouse
from operations.erase.eraser import Eraser, Options
from operations.erase.log import InLog
from operations.erase.note import Note
from operations.erase.readers import Build
from operations.erase.subject import Subject
from operations.state import pausing
from operations.state.folder import note_captured, register_of
from operations.state.pausing import pause, paused, resume
from tests.support.erase_cases import PERSONS, build, pipeline, subject

WHY = "new disks"


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    monkeypatch.setattr(warehouse, "histories_of", lambda _: [])
    row = subject(tmp_path)
    note_captured(row.pipeline)
    return row


def why(row: Subject) -> str | None:
    found = paused(row.pipeline, "cache")
    return None if found is None else found.why


def test_a_pause_that_came_while_the_topic_was_compacted_stands_and_nothing_is_written(row: Subject) -> None:
    pause(row.pipeline, "cache", WHY, print)
    with pytest.raises(EraseUnfinished, match=f"sink cache is paused .*{WHY}") as error, warehouse._alone(row, "cache"):
        pytest.fail("it writes to a sink that is to be left alone")
    assert "headwater resume" in error.value.fix
    assert "others may still hold the row" in str(error.value.means), "files of all sinks come later"
    assert why(row) == WHY


def test_its_own_pause_ends_with_it_and_another_one_of_meanwhile_does_not(row: Subject) -> None:
    with warehouse._alone(row, "cache"):
        assert why(row) == warehouse.reason(row)
    assert why(row) is None
    with warehouse._alone(row, "cache"):
        resume(row.pipeline, "cache")
        pause(row.pipeline, "cache", WHY, print)
    assert why(row) == WHY


def holding(row: Subject, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """There is something that the erasure holds, for which a pause waits so long."""
    monkeypatch.setattr(pausing, "LET_GO_SECONDS", seconds)
    register_of(row.pipeline, "cache").generation(1).folder.mkdir(parents=True, exist_ok=True)


def test_a_person_who_pauses_while_it_works_is_not_told_of_its_own_pause(
    row: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "already paused … nothing is written to it", by the erasure, which resumed the sink a moment later."""
    holding(row, monkeypatch, 10.0)
    waits, found = threading.Event(), list[Any]()
    person = threading.Thread(
        target=lambda: found.append(pause(row.pipeline, "cache", WHY, lambda _line: waits.set())), daemon=True
    )
    with warehouse._alone(row, "cache"):
        person.start()
        assert waits.wait(10)
    person.join(20)
    [(made, new)] = found
    assert new and made.why == WHY and paused(row.pipeline, "cache") == made


def test_a_person_who_gives_up_waiting_for_it_has_paused_the_sink(
    row: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding(row, monkeypatch, 0.3)
    with warehouse._alone(row, "cache"), pytest.raises(StateError, match="is paused, but generation 1 is still held"):
        pause(row.pipeline, "cache", WHY, print)
    assert why(row) == WHY


def test_what_a_person_pauses_that_a_killed_one_has_left_paused_is_not_resumed_by_the_same_again(
    row: Subject, tmp_path: Path
) -> None:
    pause(row.pipeline, "cache", warehouse.reason(row), print)
    assert pause(row.pipeline, "cache", WHY, print)[1]
    warehouse.go_on(row.pipeline)
    with pytest.raises(StateError, match="is paused"):
        warehouse.refuse_paused_before(row, [build(tmp_path, View.identity(PERSONS, "person"))])
    assert why(row) == WHY


@pytest.mark.parametrize("then", ["resumed", "paused by an erasure"])
def test_a_pause_that_was_taken_back_while_it_waited_is_told(
    row: Subject, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """An erasure that ends may have looked at the note just before the person's was written."""
    note = pausing._path(row.pipeline, "cache")

    def meanwhile(*_: Any) -> None:
        if then == "resumed":
            note.unlink()
        else:
            note.write_text(json.dumps({"since": 1.0, "by": "ann@host", "why": warehouse.reason(row)}))

    monkeypatch.setattr(pausing, "_wait_for_holders", meanwhile)
    with pytest.raises(StateError, match="sink cache is not paused"):
        pause(row.pipeline, "cache", WHY, print)


def test_a_cache_that_is_paused_is_refused_before_anything_is_erased(row: Subject, tmp_path: Path) -> None:
    pause(row.pipeline, "cache", WHY, print)
    with pytest.raises(StateError, match="is paused"):
        warehouse.refuse_paused_before(row, [build(tmp_path, View.identity(PERSONS, "person"))])
    assert why(row) == WHY


class _Letters:
    look = staticmethod(lambda _: InLog("letters", {}))

    def supersede(self) -> None:
        """Nothing stands."""


def test_a_cache_that_is_paused_while_the_tables_are_written_anew_is_left_alone(
    row: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = [build(tmp_path, View.identity(PERSONS, "person"))]

    def tables(*_: Any, **__: Any) -> list[Any]:
        pause(pipeline(tmp_path), "cache", WHY, print)
        return []

    def never(*_: Any) -> NoReturn:
        pytest.fail("it writes to a sink that is to be left alone")

    def begun(_: Eraser, known: list[Build]) -> tuple[list[Build], list[Build]]:
        return known, []

    monkeypatch.setattr(eraser.servers, "erase_changes", lambda _: None)
    monkeypatch.setattr(eraser.servers, "mark_indices", lambda *_: {})
    for name in ("erase_indices", "erase_marks", "erase_files"):
        monkeypatch.setattr(eraser.servers, name, never)
    monkeypatch.setattr(Eraser, "_builds_now", begun)
    monkeypatch.setattr(eraser, "erase_tables", tables)
    one: Any = Eraser(row, Options(act=True))
    look: Any = type("Look", (), {"log": InLog("topic", {}), "letters": InLog("letters", {})})()
    with pytest.raises(EraseUnfinished, match="sink cache is paused"):
        one._erase(_Letters(), builds, look)


@pytest.mark.parametrize("when", ["while the delete was waited for", "while a generation that began was waited for"])
def test_changes_of_a_cache_that_is_paused_meanwhile_are_left_alone(
    row: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It was asked for a pause before tables and files are written, and not before these."""
    builds, late, written = [build(tmp_path, View.identity(PERSONS, "person"))], "began" in when, list[int]()

    def begun(_: Eraser, known: list[Build]) -> tuple[list[Build], list[Build]]:
        pause(row.pipeline, "cache", WHY, print)
        return known, known

    monkeypatch.setattr(eraser.servers, "erase_changes", lambda _: written.append(1))
    monkeypatch.setattr(eraser.servers, "mark_indices", lambda *_: {})
    monkeypatch.setattr(Eraser, "_builds_now", begun)
    if not late:
        pause(row.pipeline, "cache", WHY, print)
    one: Any = Eraser(row, Options(act=True))
    look: Any = type("Look", (), {"log": InLog("topic", {}), "letters": InLog("letters", {})})()
    with pytest.raises(EraseUnfinished, match="sink cache is paused"):
        one._erase(_Letters(), builds, look)
    assert len(written) == late and why(row) == WHY


OTHER_ROW = "headwater erase 0123456789ab"


@pytest.mark.parametrize("refused", ["the row is in the source", "its topic keeps all versions"])
@pytest.mark.parametrize("whose", ["the same row's", "another row's"])
def test_what_a_killed_one_has_left_paused_goes_on_also_where_the_next_is_refused(
    row: Subject, monkeypatch: pytest.MonkeyPatch, refused: str, whose: str
) -> None:
    """The sink stayed paused, and the only way that was told was the erasure that is refused."""
    pause(row.pipeline, "cache", OTHER_ROW if "another" in whose else warehouse.reason(row), print)

    def refuse(_: Any) -> NoReturn:
        raise StateError(refused)

    monkeypatch.setattr(eraser, "builds_of", lambda _: [])
    monkeypatch.setattr(Eraser, "_refuse_versions", refuse if "topic" in refused else lambda _: None)
    monkeypatch.setattr(Subject, "refuse_present", refuse)
    with pytest.raises(StateError, match=refused):
        Eraser(row, Options(act=True)).run()
    assert why(row) is None


def test_one_that_is_refused_for_another_at_work_leaves_its_pause(row: Subject) -> None:
    pause(row.pipeline, "cache", OTHER_ROW, print)
    with Note(row.pipeline).alone(), pytest.raises(StateError, match="is at work"):
        Eraser(row, Options(act=True)).run()
    assert why(row) == OTHER_ROW


def test_whoever_meets_what_a_dead_one_has_left_paused_is_told_the_way_out(row: Subject) -> None:
    """It "goes on when that erasure has ended": nobody else knows the key, and the table may have left the file."""
    pause(row.pipeline, "cache", OTHER_ROW, print)
    found = pausing.paused_sinks(row.pipeline, ())
    with Note(row.pipeline).alone():
        [line] = pausing.paused_lines(row.pipeline, found)
        with pytest.raises(StateError) as error:
            pausing.refuse_paused(row.pipeline, ["cache"], "nothing")
        for said in (line, str(error.value)):
            assert "it goes on when that erasure has ended" in said and "resume" not in said
    [line] = pausing.paused_lines(row.pipeline, found)
    with pytest.raises(StateError) as error:
        pausing.refuse_paused(row.pipeline, ["cache"], "nothing")
    for said in (line, str(error.value)):
        assert "at work no more: `headwater resume FILE cache`, or any next `headwater erase --yes`" in said
    with Note(row.pipeline).alone():
        """Who looked holds nothing."""
