"""Letters that are written again: what the sink refuses once more stands, however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.join.view import JoinedView
from cdc.letters.deadletter import DeadLetter
from operations.letters import rewrite
from operations.verify.repair.work import REASONS, Refused
from spark.reading.entries import Entry
from tests.support.trees import node, table

TABLE = table("t", "id", id="int4", v="text")
VIEW = JoinedView("v", TABLE, ("id",), (("id", "id"), ("v", "v")), root=node(TABLE, "t"))
KEYS = [str(number) for number in range(REASONS + 1)]
LETTERS = {key.encode(): DeadLetter("s", "v", key, 8, "no") for key in KEYS}


def test_of_each_reason_that_is_asked_for_none_is_forgotten() -> None:
    some, each = Refused("?"), Refused("?", limit=None)
    for key in KEYS:
        some.add(key, "no")
        each.add(key, "no")
    assert len(some.reasons) == REASONS, "verify names fewer, of millions perhaps"
    assert list(each.reasons) == KEYS


@pytest.mark.parametrize("warehouse", [False, True], ids=["documents", "rows"])
def test_a_joined_document_that_is_refused_again_keeps_its_letter(
    warehouse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def opened(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(get=dict.fromkeys)

    def work_of(build: Any, _catalogue: Any, held: Any, _spark: Any, refused: Refused) -> Any:
        return SimpleNamespace(build=build, view=VIEW, holding=held, refused=refused, sink=held_by_sink)

    def refuse(work: Any, entries: Sequence[Entry]) -> list[Entry]:
        for entry in entries:
            work.refused.add(entry.id, f"no room for {entry.id}")
        return []

    def not_there(_joiner: Any, work: Any, kinds: dict[str, str], *_: Any) -> dict[str, bool]:
        for key in kinds:
            work.refused.add(key, f"no room for {key}")
        return {}

    held_by_sink = SimpleNamespace(get=lambda _view, _keys: {})
    made = [Entry("v", key, 16, b"{}", "", -1, -1, 0) for key in KEYS]
    monkeypatch.setattr(rewrite, "holding", opened)
    monkeypatch.setattr(rewrite, "work_of", work_of)
    monkeypatch.setattr(rewrite, "joiner_of", lambda _work: SimpleNamespace(view=VIEW))
    monkeypatch.setattr(rewrite, "made_of", lambda *_: made)
    monkeypatch.setattr(rewrite, "write_made", refuse)
    monkeypatch.setattr(rewrite, "write_higher", lambda *_: None)
    monkeypatch.setattr("operations.verify.repair.joined.repair_documents", not_there)
    build = SimpleNamespace(views=[VIEW], warehouse=warehouse, sink="s")
    openings = SimpleNamespace(build=lambda *_: build, catalogue=None, spark=lambda *_: None)
    outcomes = rewrite.written_again(cast(Any, openings), "s", 1, "v", LETTERS)
    assert outcomes == {key.encode(): f"no room for {key}" for key in KEYS}
