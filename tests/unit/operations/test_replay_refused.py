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
from sinks.contract import Answer, Item, rejected
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


@pytest.mark.parametrize("there", [False, True], ids=["nothing", "something"])
@pytest.mark.parametrize("joined", [False, True], ids=["plain", "joined"])
def test_a_row_that_is_gone_under_a_key_that_no_document_can_have_is_told_as_gone(
    joined: bool, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_target: str, items: Sequence[Item]) -> list[Answer]:
        return [rejected("the key must have 1 to 511 bytes, this one has 0") for _ in items]

    def noted(work: Any, *_: Any) -> None:
        work.refused.add("", "refused")

    gone = Entry("v", "", 16, None, "", -1, -1, 0)
    sink = SimpleNamespace(write=refuse, get=lambda _view, keys: dict.fromkeys(keys) if there else {})
    view = VIEW if joined else SimpleNamespace(name="v", table=TABLE, needs_spark=False)
    build = SimpleNamespace(warehouse=False, pipeline=None, sink="s")
    work = SimpleNamespace(sink=sink, view=view, build=build, flow=SimpleNamespace(spec=None), refused=Refused("?"))
    monkeypatch.setattr(rewrite, "joiner_of", lambda _work: work)
    monkeypatch.setattr(rewrite, "made_of", lambda *_: [gone])
    monkeypatch.setattr(rewrite, "write_made", lambda *_: [])
    monkeypatch.setattr(rewrite, "write_higher", noted)
    monkeypatch.setattr(rewrite, "newest_records", lambda *_: {"": SimpleNamespace(entry=gone, record=None)})
    rewritten = rewrite._joined if joined else rewrite._plain
    outcome = rewritten(cast(Any, work), {"": DeadLetter("s", "v", "", 8, "no")})[""]
    assert (outcome is False) if not there else isinstance(outcome, str)
