"""Joins by a unique key, step by step: two holders in passing, NULL, moves, and what ``explain`` says of them.

The search through histories is tests/property/test_join_convergence.py; here is what it can't look at: documents that
stand in passing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from cdc.catalogue import Catalogue, Column, NotUnique, Table
from cdc.join.incoming import RowMaker
from cdc.join.layout import Layout
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from cdc.records.change import Change, Op
from connectors.tables.catalogue import unique_keys
from sinks.rowstore.memory.store import MemoryStore
from spark.join.engine import Joiner
from spark.join.explain import explain
from spark.join.task import Task
from truth.assembled import marked, shape_of, sparks


def table(called: str, *unique: tuple[str, ...], **columns: str) -> Table:
    named = tuple(Column(name, kind, kind) for name, kind in columns.items())
    return Table("public", called, named, ("id",), unique_keys=unique)


BOOKS = table("books", ("isbn",), id="int4", isbn="text", title="text")
LOANS = table("loans", id="int4", book="text", days="int4")


def view_of(root: Table, **below: Any) -> JoinedView:
    columns = tuple((name, name) for name in root.by_name)
    return JoinedView("v", root, ("id",), columns, root=Node("v", "root", root, (), columns, **below))


BOOK = Node("of", "ref", BOOKS, (("book", "isbn"),), (("id", "id"), ("title", "title")))
LOANS_OF = (("isbn", "book"),)
CARD = view_of(
    BOOKS,
    children=(Node("loans", "child", LOANS, LOANS_OF, (("id", "id"),)),),
    aggregates=(
        Aggregate("total", LOANS, LOANS_OF, "count"),
        Aggregate("longest", LOANS, LOANS_OF, "max", value="days"),
    ),
)
LOAN = view_of(LOANS, refs=(BOOK,))


class Kept(MemoryStore):
    """With ``get`` of a version, as a server has it."""

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return [str(value).encode() if isinstance(value, int) else value for value in super().get(keys)]


class Live:
    """A view kept live, a change a batch."""

    def __init__(self, view: JoinedView) -> None:
        self.view, self.store, self.documents = view, Kept(), dict[str, Any]()
        self._joiner, self._offsets = Joiner(view, self.store), iter(range(1000))
        self._makers = {name: RowMaker(layout) for name, layout in view.layout.tables.items()}

    def change(self, of: Table, row: tuple[Any, ...] | int) -> list[str]:
        """A row, or the id of a deleted one; returns ids of the documents that are made."""
        offset, after = next(self._offsets), dict(zip(of.by_name, row, strict=True)) if isinstance(row, tuple) else None
        key = {"id": row[0] if isinstance(row, tuple) else row}
        op = Op.UPDATE if after else Op.DELETE
        change = Change(of.qualified, op, key, after, 1000 + offset, f"t.{of.name}", 0, offset, 0)
        made = list(self._made(change, offset))
        self.store.end(offset)
        return made

    def _made(self, change: Change, offset: int) -> Iterator[str]:
        incoming = self._makers[change.table].make(change, [None] * 2)
        for piece in self._joiner.process([incoming], Task(offset, offset), _refuse):
            for item, document in zip(piece, self._joiner.documents(piece), strict=True):
                self.documents[item.key] = None if document is None else orjson.loads(document)
                yield item.key


def _refuse(*_: object) -> None:
    raise AssertionError("nothing is to be refused")


@pytest.fixture
def loans() -> Live:
    """Two books, a loan of each, one of none, and one of a book that is not there."""
    live = Live(LOAN)
    for book in ((1, "x", "One"), (2, "y", "Two"), (3, None, "Three")):
        live.change(BOOKS, book)
    for loan in ((10, "x", 1), (11, "y", 1), (12, None, 1), (13, "z", 1)):
        live.change(LOANS, loan)
    return live


def titles(live: Live) -> dict[str, Any]:
    return {key: made["of"] and made["of"]["title"] for key, made in live.documents.items()}


def test_a_reference_reaches_a_row_by_its_unique_value_and_null_joins_nothing(loans: Live) -> None:
    assert titles(loans) == {"10": "One", "11": "Two", "12": None, "13": None}
    assert loans.documents["10"]["of"] == {"id": 1, "title": "One"}


def test_of_two_rows_with_one_value_the_newest_shows_and_the_other_says_so(loans: Live) -> None:
    assert loans.change(BOOKS, (2, "x", "Two")) == ["10", "11"]
    assert titles(loans) == {"10": "Two", "11": None, "12": None, "13": None}
    rows = [(row.path, row.key, row.state) for row in explain(LOAN, loans.store, "10").rows]
    assert rows == [("v", "10", "shown"), ("v.of", "2", "shown"), ("v.of", "1", "older")]
    rows = [(row.path, row.key, row.state, row.stamp) for row in explain(LOAN, loans.store, "11").rows]
    assert rows[1:] == [("v.of", "y", "missing", None)]
    # The other half of the exchange.
    assert sorted(loans.change(BOOKS, (1, "y", "One"))) == ["10", "11"]
    assert titles(loans) == {"10": "Two", "11": "One", "12": None, "13": None}


def test_a_value_is_taken_from_a_deleted_row_given_back_and_made_null(loans: Live) -> None:
    assert loans.change(BOOKS, 1) == ["10"]
    assert titles(loans)["10"] is None
    assert loans.change(BOOKS, (3, "x", "Three")) == ["10"]
    assert titles(loans)["10"] == "Three"
    assert loans.change(BOOKS, (3, None, "Three")) == ["10"]
    assert titles(loans)["10"] is None
    assert loans.change(BOOKS, (3, None, "3")) == []


def test_children_and_aggregates_follow_a_parents_unique_value() -> None:
    live = Live(CARD)
    for book in ((1, "x", "One"), (2, None, "Two")):
        live.change(BOOKS, book)
    for loan in ((10, "x", 5), (11, "x", 7), (12, None, 9), (13, "y", 1)):
        live.change(LOANS, loan)

    def shown(key: str) -> tuple[list[int], int, int | None]:
        made = live.documents[key]
        return [loan["id"] for loan in made["loans"]], made["total"], made["longest"]

    assert (shown("1"), shown("2")) == (([10, 11], 2, 7), ([], 0, None))
    assert live.change(BOOKS, (1, "y", "One")) == ["1"]
    assert (shown("1"), shown("2")) == (([13], 1, 1), ([], 0, None))
    live.change(BOOKS, (2, "y", "Two"))
    # In passing both have it, and a change of their loan makes both anew.
    assert sorted(live.change(LOANS, (13, "y", 2))) == ["1", "2"]
    assert shown("1") == shown("2") == ([13], 1, 2)
    live.change(BOOKS, (1, None, "One"))
    assert (shown("1"), shown("2")) == (([], 0, None), ([13], 1, 2))
    found = explain(CARD, live.store, "1")
    assert [(total.path, total.value, total.count) for total in found.totals] == [
        ("v.total", 0, 0),
        ("v.longest", None, None),
    ]
    assert [row.path for row in found.rows] == ["v"]


def test_two_parents_with_one_value_are_put_together_at_once() -> None:
    """A child that two parents of one piece share must not be filled twice."""
    view = view_of(BOOKS, children=(Node("loans", "child", LOANS, LOANS_OF, (("id", "id"),), refs=(BOOK,)),))
    live = Live(view)
    live.change(BOOKS, (1, "x", "One"))
    live.change(BOOKS, (2, "x", "Two"))
    assert sorted(live.change(LOANS, (10, "x", 5))) == ["1", "2"]
    assert live.documents["1"]["loans"] == live.documents["2"]["loans"] == [{"id": 10, "of": {"id": 2, "title": "Two"}}]


def test_the_second_opinion_knows_what_spark_sees_of_a_row_that_is_summed_up_by_a_unique_key() -> None:
    total = Aggregate("total", LOANS, LOANS_OF, "count")
    book = Node("of", "ref", BOOKS, (("days", "id"),), (("title", "title"),), aggregates=(total,))
    root = view_of(LOANS, refs=(book,)).tree
    engine = [*Layout.of(root, ["to_json(of)"]).tables["public.books"].columns, "total"]
    said = ["to_json(of)"]
    assert list(shape_of(sparks(marked(root, said), said), {}).structs["of"].columns) == engine
    assert "isbn" in engine


def test_a_catalogue_of_before_unique_keys_can_still_be_read() -> None:
    kept = Catalogue({"public.books": BOOKS}, "1", 1, "d")
    raw = orjson.loads(kept.to_json())
    assert Catalogue.from_json(kept.to_json()).tables["public.books"].unique_keys == (("isbn",),)
    for one in raw["tables"]:
        del one["unique_keys"], one["not_unique"]
    old = Catalogue.from_json(orjson.dumps(raw).decode()).tables["public.books"]
    assert (old.unique_keys, old.not_unique) == ((), ())
    assert old == BOOKS  # an index makes no other table


def test_which_indexes_make_a_key() -> None:
    plain = [
        ("books_pkey", False, True, None, "", ["id"], []),
        ("books_isbn", False, True, None, "", ["isbn"], ["isbn"]),
        ("books_isbn_again", False, True, None, "", ["isbn"], ["isbn"]),
        ("books_place", False, True, None, "", ["place", "shelf"], []),
        ("books_shelf", False, True, None, "", ["shelf", "place"], []),
    ]
    assert unique_keys(plain, ["id"]) == ((("isbn",), ("place", "shelf")), ())
    odd = [
        ("by_slug", True, True, "(live)", "", ["slug"], ["live", "slug"]),
        ("by_lower", False, True, None, "btree (lower(title))", [None], ["title"]),
        ("by_half", False, False, None, "", ["half"], []),
        ("by_name", True, True, None, "", ["name"], []),  # its table is locked
    ]
    assert unique_keys(odd, ["id"]) == (
        (),
        (
            NotUnique("by_slug", ("slug", "live"), "it is partial (WHERE (live))"),
            NotUnique("by_lower", ("title",), "it is over an expression (btree (lower(title)))"),
            NotUnique("by_half", ("half",), "it is invalid: building it failed, or has not ended"),
            NotUnique("by_name", ("name",), "it is partial"),
        ),
    )
