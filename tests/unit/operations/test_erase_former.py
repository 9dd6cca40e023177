"""Sinks that the file names no more: what they hold was neither looked at nor told, and the row certified as erased."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.cli import erase as verb
from operations.erase import eraser, servers
from operations.erase.eraser import Eraser, Options
from operations.erase.left import left_places
from operations.erase.log import InLog
from operations.erase.subject import Subject
from operations.state.folder import left_sinks
from operations.state.history import FORMER, HISTORY, IDENTITY
from tests.support.erase_cases import pipeline, subject

TOPIC = "p.public.persons"
BOUND = {"system_identifier": "7", "timeline": 1, "database": "d", "slot": "s", "spec_hash": "h"}


def filled(folder: Path, sink: str, number: int = 1, *topics: str) -> Path:
    """A generation that has read these topics; of none nobody knows what it has read."""
    made = folder / "p" / sink / f"g{number}"
    (made / "main" / "checkpoint").mkdir(parents=True)
    if topics:
        (made / IDENTITY).write_text(json.dumps(BOUND | {"topic_ids": dict.fromkeys(topics, "id")}))
    return made


def history(folder: Path, sink: str, namespace: str | None, *topics: str) -> None:
    folder = folder / "p" / sink / HISTORY
    if namespace is not None:
        folder = folder / FORMER / namespace
    folder.mkdir(parents=True, exist_ok=True)
    note = {"topic_ids": dict.fromkeys(topics, "id"), "namespace": namespace or "now"}
    (folder / IDENTITY).write_text(json.dumps(note))


def told(folder: Path) -> dict[str, tuple[int, str]]:
    return {str(one.sink): (one.hidden, one.words) for one in left_places(subject(folder))}


def test_a_sink_that_has_read_the_tables_topic_is_told(tmp_path: Path) -> None:
    filled(tmp_path, "cache", 1, TOPIC)  # the file has it, so it is looked into
    filled(tmp_path, "search", 1, TOPIC, "p.public.lines")
    filled(tmp_path, "others", 1, "p.public.lines")
    (tmp_path / "p" / "empty" / "g1").mkdir(parents=True)
    (tmp_path / "p" / ".push").mkdir()
    assert left_sinks(pipeline(tmp_path)) == ["empty", "others", "search"]
    [place] = left_places(subject(tmp_path))
    assert (place.kind, place.sink, place.words, place.found) == ("sink", "search", "generation 1", 0)
    assert place.name == str(tmp_path / "p" / "search") and not place.empty
    assert place.note is not None and "headwater drop FILE --sink search" in place.note


def test_of_every_generation_that_its_register_has(tmp_path: Path) -> None:
    for number, topic in enumerate((TOPIC, "p.public.lines", TOPIC), 1):
        filled(tmp_path, "search", number, topic)
    register = tmp_path / "p" / "search" / "generations.json"
    entries = [{"number": number, "stage": "previous"} for number in (1, 2, 3)]
    register.write_text(json.dumps({"last": 3, "generations": entries}))
    assert told(tmp_path) == {"search": (2, "generation 1, generation 3")}
    register.write_text("{")
    [(number, words)] = told(tmp_path).values()
    assert number == 1 and "generations.json can't be read" in words
    register.write_text(json.dumps({"last": 3, "generations": [{**one, "since": 1} for one in entries]}))
    [(number, words)] = told(tmp_path).values()
    assert number == 1 and "generations.json can't be read" in words, "it was a bare TypeError"


def test_of_generations_that_no_register_has(tmp_path: Path) -> None:
    """Without generations.json the first alone was looked at, and the row certified as erased."""
    filled(tmp_path, "search", 2, TOPIC)
    filled(tmp_path, "search", 10, TOPIC)
    filled(tmp_path, "search", 3, "p.public.lines")
    (tmp_path / "p" / "search" / "g4-before").mkdir()
    unknown = " (not in the register)"
    assert told(tmp_path) == {"search": (2, f"generation 2{unknown}, generation 10{unknown}")}


def test_one_of_which_nobody_knows_what_it_has_read_may_hold_the_row(tmp_path: Path) -> None:
    filled(tmp_path, "search")
    (filled(tmp_path, "other") / IDENTITY).write_text("{")
    assert told(tmp_path) == dict.fromkeys(("other", "search"), (1, "generation 1"))


def test_histories_of_a_warehouse_that_was_dropped_are_told(tmp_path: Path) -> None:
    """`drop --sink` leaves them, and nothing named them any more."""
    history(tmp_path, "lake", None, TOPIC)
    history(tmp_path, "lake", "before", TOPIC)
    history(tmp_path, "lake", "others", "p.public.lines")
    assert told(tmp_path) == {"lake": (2, "history (before), history (now)")}
    [place] = left_places(subject(tmp_path))
    assert place.name == str(tmp_path / "p" / "lake" / HISTORY)
    (tmp_path / "p" / "lake" / HISTORY / IDENTITY).write_text("{")
    assert told(tmp_path)["lake"] == (2, "history (before), history (nobody knows where)")


def test_so_is_a_history_of_a_sink_that_is_of_another_kind_by_now(tmp_path: Path) -> None:
    history(tmp_path, "cache", None, TOPIC)
    history(tmp_path, "cache", "before", TOPIC)
    assert told(tmp_path) == {"cache": (2, "history (before), history (now)")}
    [place] = left_places(subject(tmp_path))
    assert place.name == str(tmp_path / "p" / "cache" / HISTORY) and place.note is not None
    assert "drop --sink" not in place.note and "--sink cache" not in place.note, "it would empty the living cache"
    assert "the tables of its history (before), history (now): drop them yourself" in place.note


@pytest.mark.parametrize("left", [True, False])
def test_a_row_that_such_a_sink_may_hold_is_not_certified_as_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], left: bool
) -> None:
    """The certificate said `"erased": true`, of an index that readers of its alias still saw."""
    if left:
        filled(tmp_path, "search", 1, TOPIC)
    letters = SimpleNamespace(look=lambda _: InLog("letters"), supersede=lambda: 0, builds=[])
    monkeypatch.setattr(eraser, "Letters", lambda *_: letters)
    monkeypatch.setattr(eraser, "builds_of", lambda _: [])
    monkeypatch.setattr(eraser, "row_in_log", lambda *_: InLog("t"))
    monkeypatch.setattr(eraser, "source_catalogue", lambda _: None)
    for name in ("tables_of", "erase_tables"):
        monkeypatch.setattr(eraser, name, lambda *_, **__: [])
    for name in ("look", "look_again", "copies", "erase_files"):
        monkeypatch.setattr(servers, name, lambda *_: [])
    for name in ("_refuse_versions", "_await_delete", "_refuse_return"):
        monkeypatch.setattr(Eraser, name, lambda *_: None)
    monkeypatch.setattr(Subject, "refuse_present", lambda _: None)
    report: dict[str, Any] = Eraser(subject(tmp_path), Options(act=True)).run()
    assert report["erased"] is not left
    assert [one["sink"] for one in report["places"] if one["kind"] == "sink"] == ["search"] * left
    verb._print(report, True)
    said = capsys.readouterr().out
    assert ("former sink" in said, "1 that may hold it (generation 1); nothing left" in said) == (left, left)
    assert ("NOT ALL ERASED" in said) is left
