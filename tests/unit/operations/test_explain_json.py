"""``headwater explain`` of JSON that is more than readers take."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cdc.join.incoming import RowMaker
from cdc.join.view import JoinedView
from cdc.records.change import Change, Op
from cdc.view import View
from operations.explain.report import _differing, _held, _row_store, plain
from operations.held import Found, held_under
from operations.holding import Holding
from sinks.contract import Held
from spark.join.engine import Joiner
from spark.join.explain import explain
from spark.join.task import Task
from tests.support.trees import node, table
from tests.unit.operations.test_explain import Kept, _refuse

NOTES = table("notes", "id", id="int4", j="jsonb")
REALS = table("notes", "id", id="int4", j="jsonb", r="float4")
EXACT = b'{"r":0.1,"j":{"n":12345678901234567890.123},"id":1}'


def test_what_the_row_store_would_make_may_be_more_than_readers_of_json_take() -> None:
    """`explain` ended in an error at such a row of a joined view."""
    root = node(NOTES)
    joined, made = JoinedView("notes", NOTES, ("id",), root.columns, root=root), Kept()
    after = {"id": 1, "j": '{"a": 1e400}'}
    change = Change(NOTES.qualified, Op.CREATE, {"id": 1}, after, 1000, "t", 3, 0, 0)
    incoming = RowMaker(joined.layout.tables[NOTES.qualified]).make(change)
    for _ in Joiner(joined, made).process([incoming], Task(0, 0), _refuse):
        pass
    made.end(0)
    stored = explain(joined, made, "1")
    found = {"id": 1, "j": {"a": "1e400"}}
    for columns in (False, True):
        shown = _row_store(joined, Found(5, found), stored, columns=columns)
        assert (shown["equal"], shown["differences"]) == (True, [])
        text = b'{"id":1,"j":{"a":"1e400"}}' if columns else b'{"id":1,"j":{"a":1e400}}'
        assert orjson.dumps(shown["document"]) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (EXACT, EXACT),
        (b'{"id":1,"j":{"far":1e400}}', b'{"id":1,"j":{"far":1e400}}'),
        (b'{"id":', b'{"(no document)":"{\\"id\\":"}'),
    ],
)
def test_what_is_held_is_shown_as_the_sink_holds_it(monkeypatch: pytest.MonkeyPatch, text: bytes, shown: bytes) -> None:
    """The form for comparing was shown: `1.2345678901234567e+19`, a `real` as the double next to it, names sorted."""
    view = View("notes", REALS, ("id",), (("id", "id"), ("j", "j"), ("r", "r")))
    made = Holding.__new__(Holding)
    made.view, made.bounds, made.within = view, lambda _: {}, 0
    made.target = cast(Any, SimpleNamespace(get=lambda _view, keys: {key: Held(key, 5, text) for key in keys}))
    monkeypatch.setattr("operations.held.holding", lambda *_: nullcontext(made))
    found = held_under(cast(Any, None), view, "1")
    told = _held(view, found)
    assert told is not None and orjson.dumps(told["document"]) == shown
    if text == EXACT:
        assert found.document is not None and found.document["j"] == {"n": 12345678901234567890.123}  # compared so
        assert _differing(found.document, plain(view, text), ()) == []
