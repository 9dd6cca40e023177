"""What an erasure says of what it could not remove: a document that is still there, files of nobody's."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.view import View
from operations.erase import eraser, servers, warehouse
from operations.erase.eraser import Eraser, Options
from operations.erase.log import InLog
from operations.erase.note import Note
from operations.erase.places import Place, settled
from operations.erase.tables import Held
from operations.erase.warehouse import SINCE, TABLES, UNTOLD
from sinks.iceberg.remains import Remains
from spark.warehouse import erasing
from tests.support.erase_cases import PERSONS, build, subject


@pytest.mark.parametrize(("there", "left"), [([], 0), (["7"], 1)])
def test_a_document_that_is_still_there_is_left_and_changes_that_came_since_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], left: int
) -> None:
    """A view whose changes are kept was left out of the last look, and its document told as gone."""
    made, one = [build(tmp_path, View.identity(PERSONS))], subject(tmp_path, "7")
    target = SimpleNamespace(get=lambda _, keys: {key: 1 for key in keys if key in there}, kept_changes=lambda _: 3)
    monkeypatch.setattr(servers, "holding", lambda *_: nullcontext(SimpleNamespace(target=target)))
    monkeypatch.setattr(servers, "files_of", lambda _: [])
    before = servers.look(one, made)
    assert [(place.kind, place.found, place.hidden) for place in before] == [("cache", left, 3)]

    monkeypatch.setattr(servers, "erase_files", lambda *_: [Place("cache", "files of h", "cache")])
    monkeypatch.setattr(servers, "erase_changes", lambda *_: None)
    moved = list[bool]()

    def erased(*_: object, move_tags: bool) -> list[Place]:
        moved.append(move_tags)
        return []

    monkeypatch.setattr(eraser, "row_in_log", lambda *_: InLog("t"))
    monkeypatch.setattr(eraser, "erase_tables", erased)
    monkeypatch.setattr(eraser, "builds_of", lambda _: made)
    monkeypatch.setattr(eraser, "source_catalogue", lambda _: None)
    letters = SimpleNamespace(supersede=lambda: 0, look=lambda _: InLog("letters"))
    looked = SimpleNamespace(log=InLog("t"), letters=InLog("letters"))
    after = Eraser(one, Options(act=True))._erase(cast(Any, letters), made, cast(Any, looked))
    assert moved == [False]
    [cache, *_] = settled(before, after)
    assert (cache.left, cache.hidden_left, cache.empty) == (left, 0, not left)
    assert [place.name for place in after].count("files of h") == 1


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Erases a history's table of which one was killed before: what is there then, and what a remover has found."""
    one, held = subject(tmp_path, "7"), Held("lake", None, "", "n.past", Remains())
    Note(one.pipeline).begin(TABLES, "lake: n.past", {SINCE: "5"})
    monkeypatch.setattr(warehouse, "warehouses", lambda *_: ["lake"])
    monkeypatch.setattr(warehouse, "open_spark", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(warehouse, "_alone", lambda *_: nullcontext())
    monkeypatch.setattr(warehouse, "tables_of", lambda *_: [held])
    monkeypatch.setattr(warehouse, "forget_rows", lambda *_: None)
    monkeypatch.setattr(warehouse, "rewrite", lambda *_, files: "written anew")

    def erase(found: int | None) -> list[Place]:
        monkeypatch.setattr(warehouse, "remove_left", lambda *_: found)
        return warehouse.erase_tables(one, [], move_tags=False)

    return one, erase


def test_files_that_are_not_told_from_another_tables_are_said_to_be_left(killed: Any) -> None:
    """Each erasure after a kill failed there, also once somebody had removed them."""
    one, erase = killed
    for _ in range(2):  # killed again before its certificate was written
        found = erase(None)
        [place] = settled([Place("history", "n.past", "lake", found=1)], found)
        assert (place.left, place.hidden_left, place.empty, place.note) == (0, 1, False, UNTOLD)
    warehouse.end_untold(one, found)
    assert Note(one.pipeline).read() == {}


def test_files_that_were_removed_are_not_left(killed: Any) -> None:
    one, erase = killed
    [place] = settled([], erase(2))
    assert place.empty and place.note is None and Note(one.pipeline).read() == {}


def test_in_a_folder_of_two_tables_no_file_of_nobodys_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "loaded", lambda *_: None)
    monkeypatch.setattr(erasing, "others_in", lambda *_: True)
    assert erasing.remove_left(cast(Any, SimpleNamespace(_jvm=None)), "`c`.`n`.`past`", 5.0) is None
