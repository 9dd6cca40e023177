"""What `verify --repair` says in the end: rows that it could not decide stay told, and what it has written, too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import ShapeUnknown, SinkUnavailable, StateError
from cdc.letters.words import REFUSED
from operations.verify import settle, verifier
from operations.verify.buckets import Keys
from operations.verify.comparison import Comparison, marked, unmarked
from operations.verify.repair import repair as repairing
from operations.verify.repair.work import Refused
from operations.verify.settle import Settler
from operations.verify.verifier import Asked, Verifier
from operations.verify.work_folder import work_folder

VIEW: Any = SimpleNamespace(name="v", event_types=())
Looks = Sequence[Mapping[str, str]]


class Told(Settler):
    """Is told what it sees: in each look some keys are certain, and others move."""

    looks: list[Mapping[str, str]]
    asked: list[list[str]]

    def _suspects(self, keys: Keys, deadline: float) -> tuple[bool, Keys]:
        names = [unmarked(key)[1] for page in keys.pages(100) for key in page]
        self.asked.append(names)
        return True, keys

    def _standing_still(self, suspects: Keys) -> tuple[Keys, Keys]:
        same, moved, found = self._keys(), self._keys(), self.looks.pop(0)
        for page in suspects.pages(100):
            for key in page:
                how = found.get(unmarked(key)[1])
                if how is not None:
                    {"wrong": same, "moves": moved}[how].add(key)
        same.flush()
        moved.flush()
        return same, moved


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], list[str]]]:
    """(sink, keys that were certain, those of them that may not be right), for each time that letters were cleared."""
    found: list[tuple[str, list[str], list[str]]] = []

    def forget_written(_pipeline: Any, sink: str, _number: int, _view: str, written: Any, left: Any) -> None:
        found.append((sink, sorted(written), sorted(left)))

    monkeypatch.setattr("cdc.log.forgotten.forget_written", forget_written)
    monkeypatch.setattr(repairing, "repair", lambda *_, **__: Refused("somehow"))
    monkeypatch.setattr(verifier, "differing_columns", lambda *_, **__: {})
    monkeypatch.setattr(verifier, "LEAST_WAIT", 0.0)
    monkeypatch.setattr(settle, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(settle, "MOST_ROUNDS", 1)
    return found


class Verifying(Verifier):
    """Finds keys different in every sink; what looks at them again is told what it sees, sink by sink."""

    def __init__(self, sinks: Mapping[str, Looks | Exception]) -> None:
        self.pipeline: Any = None
        self.tables: Any = SimpleNamespace(catalogue=None, refuse_altered=self._refused)
        self.asked_of, self.altered_at = 0, 0  # how often the tables were looked at; when one was altered
        self.asked, self.progress, self.on_pause = Asked(repair=True), lambda _line: None, lambda: None
        self.failed, self.paused, self._looks = {}, {}, sinks
        self.compared, self.looked = list[list[str]](), dict[str, list[list[str]]]()

    def run(self, tmp_path: Path) -> dict[str, Comparison]:
        self._folder = lambda: work_folder(tmp_path)  # type: ignore[method-assign]
        return self._each(VIEW, [SimpleNamespace(sink=sink, number=1) for sink in self._looks])  # type: ignore[misc]

    def _refused(self, view: Any) -> None:
        self.asked_of += 1
        if self.asked_of == self.altered_at:
            raise ShapeUnknown("a table was altered")

    def _typed(self, view: Any, holders: Any) -> Any:
        return view

    def session(self) -> Any:
        return None

    def _whole(self, view: Any, holders: Any, folder: Path, results: Any) -> dict[str, Keys]:
        self.compared.append([build.sink for build in holders])
        found = {}
        for build in holders:
            keys = found[build.sink] = Keys(folder / f"{build.sink}-differing")
            for key in "abcdefg":
                keys.add(marked("changed", key))
            keys.flush()
        return found

    @contextmanager
    def _settler(self, view: Any, build: Any, folder: Path) -> Iterator[Settler]:
        looks = self._looks[build.sink]
        if isinstance(looks, Exception):
            raise looks
        told = Told(view, None, None, None, folder)  # type: ignore[arg-type]
        told.looks, told.asked = list(looks), self.looked.setdefault(build.sink, [])
        yield told


FIRST = {"a": "wrong", "b": "wrong", **dict.fromkeys("cdefg", "moves")}


def test_rows_that_never_stood_still_are_told_also_after_others_were_repaired(tmp_path: Path, cleared: Any) -> None:
    result = Verifying({"cache": [FIRST, {}]}).run(tmp_path)["cache"]
    assert (result.repaired, result.differences, result.undecided) == (2, 0, 5)
    assert result.moving == list("cdefg")
    assert cleared == [("cache", ["a", "b"], [])]


def test_rows_that_moved_while_they_were_repaired_count_as_undecided_and_not_as_repaired(
    tmp_path: Path, cleared: Any
) -> None:
    """Of four, one is right after the first attempt and one moves; of two, one is right after the second."""
    first = dict.fromkeys("abcd", "wrong")
    verifying = Verifying({"cache": [first, {"b": "moves", "c": "wrong", "d": "wrong"}, {"d": "wrong"}]})
    result = verifying.run(tmp_path)["cache"]
    assert (result.repaired, result.differences, result.undecided) == (2, 1, 1)
    assert (result.moving, result.changed) == (["b"], ["d"])
    assert verifying.looked["cache"] == [list("abcdefg"), list("abcd"), list("cd")]
    assert cleared == [("cache", list("abcd"), ["b", "d"])]


def test_what_was_repaired_in_one_sink_is_told_when_another_fails_in_its_part(tmp_path: Path, cleared: Any) -> None:
    """It was compared again, found equal, and said to have been so: nothing repaired, after it had written."""
    away = SinkUnavailable("search does not answer")
    verifying = Verifying({"cache": [FIRST, {}], "search": away, "lake": [{"a": "wrong"}, {}]})
    results = verifying.run(tmp_path)
    assert {name: result.repaired for name, result in results.items()} == {"cache": 2, "lake": 1}
    assert verifying.failed == {"search": away} and verifying.compared == [["cache", "search", "lake"]]


@pytest.mark.parametrize(("at", "looks"), [(2, 0), (3, 1)])
def test_what_differs_of_a_table_that_was_altered_meanwhile_is_neither_told_nor_repaired(
    tmp_path: Path, cleared: Any, monkeypatch: pytest.MonkeyPatch, at: int, looks: int
) -> None:
    """`run` brings the sink to the new table: each row that it had read again was `changed`, and proved. Repaired, it
    would have lost the new column."""
    done = list[str]()
    monkeypatch.setattr(repairing, "repair", lambda build, *_, **__: done.append(build.sink) or Refused("somehow"))
    verifying = Verifying({"cache": [{"a": "wrong"}] * 3, "lake": [{"a": "wrong"}, {}]})
    verifying.altered_at = at
    results = verifying.run(tmp_path)
    assert (len(verifying.looked.get("cache", [])), done, list(results)) == (looks, ["lake"], ["lake"])
    assert isinstance(verifying.failed["cache"], ShapeUnknown) and results["lake"].repaired == 1


def test_what_was_repaired_before_a_table_was_altered_is_told(tmp_path: Path, cleared: Any) -> None:
    """It was denied, with 500 documents written, and their letters stayed. What still differs may be right by now."""
    verifying = Verifying({"cache": [{"a": "wrong", "b": "wrong"}, {"b": "wrong"}]})
    verifying.altered_at = 4
    result = verifying.run(tmp_path)["cache"]
    assert (result.repaired, result.changed, verifying.failed) == (1, [], {})
    assert (result.differences, result.undecided, result.moving) == (0, 1, ["b"])
    assert result.not_repaired == [{"key": "b", "why": "nobody knows whether it differs: a table was altered"}]
    assert len(verifying.looked["cache"]) == 2 and cleared == [("cache", ["a", "b"], ["b"])]


@pytest.mark.parametrize("fails", [False, True])
def test_reasons_quote_no_rows_also_where_it_fails_behind_the_repair(
    tmp_path: Path, cleared: Any, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """What a repair has done is told whatever comes then; with it went the words of the sink, and a value in them."""

    def repair(*_: Any, **__: Any) -> Refused:
        refused = Refused("somehow")
        refused.add("b", f"{REFUSED}mapper_parsing_exception: failed to parse field [ssn] of value '123-45-6789'")
        return refused

    def columns(*_: Any, **__: Any) -> dict[str, Any]:
        if fails:
            raise SinkUnavailable("search does not answer")
        return {}

    monkeypatch.setattr(repairing, "repair", repair)
    monkeypatch.setattr(verifier, "differing_columns", columns)
    both = {"a": "wrong", "b": "wrong"}
    result = Verifying({"cache": [both, *[{"b": "wrong"}] * 5]}).run(tmp_path)["cache"]
    [left] = result.not_repaired
    assert result.repaired == 1 and "mapper_parsing" in left["why"] and "123-45" not in left["why"]


def test_where_nobody_knows_which_sink_fails_each_is_compared_alone(
    tmp_path: Path, cleared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, away = Verifying._whole, SinkUnavailable("search does not answer")

    def fails(self: Verifying, view: Any, holders: Any, folder: Path, results: Any) -> dict[str, Keys]:
        found = whole(self, view, holders, folder, results)
        if any(build.sink == "search" for build in holders):
            raise away
        return found

    monkeypatch.setattr(Verifying, "_whole", fails)
    verifying = Verifying({"cache": [FIRST, {}], "search": []})
    assert {name: result.repaired for name, result in verifying.run(tmp_path).items()} == {"cache": 2}
    assert verifying.failed == {"search": away}
    assert verifying.compared == [["cache", "search"], ["cache"], ["search"]]


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_repaired_is_told_though_its_folder_was_removed_then(
    tmp_path: Path, cleared: Any, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def removed(settler: Settler, *_: Any, **__: Any) -> dict[str, Any]:
        if settler.folder.name == "lake-keys":
            shutil.rmtree(settler.folder.parent)
            if fails:
                (settler.folder / "page").read_bytes()
        return {}

    monkeypatch.setattr(verifier, "differing_columns", removed)
    verifying = Verifying({"cache": [FIRST, {}], "lake": [{"a": "wrong"}, {}]})
    told = {name: result.repaired for name, result in verifying.run(tmp_path).items()}
    assert told == {"cache": 2, "lake": 1}
    assert [type(error) for error in verifying.failed.values()] == ([StateError] if fails else [])
    assert verifying.compared == [["cache", "lake"]]


def test_what_was_compared_in_a_folder_that_was_removed_is_not_told(
    tmp_path: Path, cleared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Verifying._whole

    def removed(self: Verifying, view: Any, holders: Any, folder: Path, results: Any) -> dict[str, Keys]:
        found = whole(self, view, holders, folder, results)
        if len(holders) > 1 or holders[0].sink == "lake":
            shutil.rmtree(folder)
        return found

    monkeypatch.setattr(Verifying, "_whole", removed)
    verifying = Verifying({"cache": [FIRST, {}], "lake": []})
    assert {name: result.repaired for name, result in verifying.run(tmp_path).items()} == {"cache": 2}
    assert isinstance(verifying.failed["lake"], StateError) and "cache" not in verifying.failed
