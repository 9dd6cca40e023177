"""``headwater explain`` of JSON that is more than readers take."""

from __future__ import annotations

from cdc.join.incoming import RowMaker
from cdc.join.view import JoinedView
from cdc.records.change import Change, Op
from operations.explain.report import _row_store
from operations.held import Found
from spark.join.engine import Joiner
from spark.join.explain import explain
from spark.join.task import Task
from tests.support.trees import node, table
from tests.unit.operations.test_explain import Kept, _refuse

NOTES = table("notes", "id", id="int4", j="jsonb")


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
        assert (shown["document"], shown["equal"], shown["differences"]) == (found, True, [])
