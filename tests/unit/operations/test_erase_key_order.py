"""Erasure where a view names the primary key in another order: the row's id is one, its document's another."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.catalogue import Catalogue
from cdc.fold import FoldView
from cdc.letters.deadletter import DeadLetter
from cdc.view import View
from operations.erase import servers
from operations.erase.letters import Letters
from operations.erase.shown import Shown, places_of, shows
from operations.erase.subject import Subject
from tests.support.erase_cases import LINES, PERSONS, build, joined, pipeline

ROW, DOCUMENT = "7|2", "2|7"
TURNED = View("card", LINES, ("line", "id"), (("line", "line"), ("id", "number")))
TURNED_JOINED = replace(joined((("id", "no"),)), key=("line", "id"))


def row(tmp_path: Path) -> Subject:
    return Subject(pipeline(tmp_path), cast(Catalogue, None), LINES, ROW, print)


def test_a_document_shows_its_row_in_the_order_of_the_tables_key() -> None:
    assert places_of(TURNED, "public.lines") == [Shown((), ("number", "line"))]
    assert places_of(TURNED_JOINED, "public.lines") == [Shown((), ("id", "line"))]
    assert shows({"line": 2, "number": 7}, places_of(TURNED, "public.lines"), ROW)
    assert not shows({"line": 7, "number": 2}, places_of(TURNED, "public.lines"), ROW)
    assert shows({"line": 2, "id": 7}, places_of(TURNED_JOINED, "public.lines"), ROW)


def test_the_document_of_a_row_is_named_in_the_views_order() -> None:
    assert TURNED.document_of(ROW) == TURNED_JOINED.document_of(ROW) == DOCUMENT
    assert TURNED.document_of(r"a\|b|2") == r"2|a\|b"
    assert View.identity(LINES).document_of(ROW) == ROW


def test_of_events_that_are_folded_by_another_column_the_key_is_that_column() -> None:
    folded = FoldView("sums", PERSONS, ("name",), (("name", "name"),), initial="", step="")
    assert folded.row_key == ("name",) and folded.document_of("7") == "7"
    assert places_of(folded, "public.persons") == [Shown((), ("name",))]


@pytest.mark.parametrize("view", [TURNED, TURNED_JOINED])
@pytest.mark.parametrize(("key", "own"), [(DOCUMENT, True), (ROW, False)])
def test_a_letter_about_the_rows_document_is_its_own(tmp_path: Path, view: View, key: str, own: bool) -> None:
    letter = DeadLetter("cache", "card", key, 1, "no", b"{}")
    assert Letters(row(tmp_path), [build(tmp_path, view)]).own(letter) is own


@pytest.mark.parametrize("view", [TURNED, TURNED_JOINED])
def test_a_sink_is_asked_for_the_rows_document(tmp_path: Path, view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(name: str, keys: list[str]) -> dict[str, Any]:
        return {key: name for key in keys if key == DOCUMENT}

    held = SimpleNamespace(target=SimpleNamespace(get=get))
    monkeypatch.setattr(servers, "holding", lambda *_: nullcontext(held))
    assert servers._own(row(tmp_path), build(tmp_path, view), view) == 1
