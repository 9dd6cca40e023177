"""A history's columns follow the source's: by their numbers where a name alone may be another column's."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.records.history import COLUMNS, set_aside
from cdc.shapes import Shape, Shapes
from cdc.view import View
from spark.warehouse import table as warehouse
from spark.warehouse.history.tables import follow, numbers_of


def table(**numbers: int) -> Table:
    names = sorted({"id": 1, **numbers}.items(), key=lambda one: one[1])
    return Table("public", "t", tuple(Column(name, "text", "text", ordinal=number) for name, number in names), ("id",))


class History:
    """A table of history that keeps of each column whose values it has; the source's columns come one after another.

    Args:
        source: as it was when history began.
    """

    def __init__(self, source: Table) -> None:
        self.shapes: tuple[Shape, ...] = (Shape(source),)
        self.holds = {name: name for name in (*source.by_name, *COLUMNS)}
        self.numbers, self.left = numbers_of(self.view), 99

    @property
    def view(self) -> View:
        renamed = Shapes({"public.t": self.shapes}).renamed("public.t")
        return View.identity(replace(self.shapes[-1].table, renamed=renamed), "public.t")

    @property
    def own(self) -> dict[str, str]:
        """Column -> under which name what it holds was written."""
        return {name: what for name, what in self.holds.items() if name not in COLUMNS and name != "id"}

    def follows(self, *sources: Table, known: bool = True) -> None:
        """The source becomes each of these, and then it is looked at; ``known``: the numbers of before are known."""
        self.shapes += tuple(Shape(source) for source in sources)
        there = [SimpleNamespace(name=name, dataType=_Kind(COLUMNS.get(name, "string"))) for name in self.holds]
        spark: Any = SimpleNamespace(sql=self._sql, table=lambda _name: SimpleNamespace(schema=there))
        spark.catalog = SimpleNamespace(refreshTable=lambda _name: None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(warehouse, "loaded", lambda *_: SimpleNamespace(updateSchema=lambda: _Update(self)))
            follow(spark, "h", self.view, self.numbers if known else {})
        self.numbers = numbers_of(self.view)

    def _sql(self, text: str) -> None:
        if found := re.fullmatch("ALTER TABLE h RENAME COLUMN `(.+)` TO `(.+)`", text):
            self.gives(found[2])
            self.holds[found[2]] = self.holds.pop(found[1])
        for name in re.findall("`(.+?)` string", text):
            self.gives(name)
            self.holds[name] = f"new {name}"

    def gives(self, name: str, *, to: str | None = None) -> None:
        """A column is to have a name that none has: to Spark none in another letter case either."""
        if self.left == 0:
            raise RuntimeError("killed")
        self.left -= 1
        assert name.lower() not in {one.lower() for one in self.holds if one != to}, "FIELD_ALREADY_EXISTS"


class _Update:
    """A change of a table's columns that is made by Iceberg itself."""

    def __init__(self, history: History) -> None:
        self._history, self._names = history, ("", "")

    def renameColumn(self, name: str, other: str) -> _Update:
        self._names = name, other
        return self

    def commit(self) -> None:
        name, other = self._names
        self._history.gives(other, to=name)
        self._history.holds[other] = self._history.holds.pop(name)


class _Kind:
    def __init__(self, kind: str) -> None:
        self.simpleString = lambda: kind


DROPPED = {"b": "a", "b__dropped": "b"}


@pytest.mark.parametrize("at_once", [True, False])
def test_a_column_that_was_dropped_makes_room_for_one_that_has_its_name_now(at_once: bool) -> None:
    """Cuts showed what the dropped one had held as if it were there still."""
    history, steps = History(table(a=2, b=3)), [table(a=2), table(b=2)]
    for looked in [steps] if at_once else [[step] for step in steps]:
        history.follows(*looked)
    assert history.own == DROPPED
    history.follows()
    assert history.own == DROPPED, "once"
    assert set_aside(["b", "b__dropped", "b__dropped_2", "b__int"]) == {"b": ["b__int"]}, "none has values of b"


def test_one_that_was_killed_in_between_ends_it() -> None:
    history = History(table(a=2, b=3))
    history.left = 1
    with pytest.raises(RuntimeError):
        history.follows(table(a=2), table(b=2))
    assert history.own == {"a": "a", "b__dropped": "b"}
    history.left = 99
    history.follows()
    assert history.own == DROPPED


def test_a_column_that_was_renamed_to_make_room_is_followed_to_its_name() -> None:
    history = History(table(price=2, price_new=3))
    history.follows(table(price_old=2, price=3))
    assert history.own == {"price_old": "price", "price": "price_new"}


def test_a_column_that_was_added_and_dropped_is_not_taken_for_a_former_one() -> None:
    """It has the name that another had before; by names alone what is there would have been put aside for it."""
    history = History(table(a=2))
    history.follows(table(b=2))
    history.follows(table(b=2, a=3))
    history.follows(table(b=2))
    history.follows(table(b=2, c=4))
    assert history.own == {"b": "a", "a": "new a", "c": "new c"}
    history.follows(table(c=4, d=2))
    assert history.own == {"d": "a", "a": "new a", "c": "new c"}, "b is d now, and a is what it was"


def test_a_history_that_knows_no_numbers_goes_by_names() -> None:
    history = History(table(a=2, b=3))
    history.follows(table(c=2, b=3), known=False)
    assert history.own == {"c": "a", "b": "b"}
    history.follows(table(b=2), known=False)
    assert history.own == {"c": "a", "b": "b"}, "b may be either"


@pytest.mark.parametrize("known", [True, False])
def test_a_column_whose_name_changes_in_letter_case_keeps_what_it_holds(known: bool) -> None:
    """Spark refused it, and one query writes the histories of all tables: all of them stood still."""
    history = History(table(Name=2))
    history.follows(table(name=2), known=known)
    assert history.own == {"name": "Name"}
    history.follows()
    assert history.own == {"name": "Name"}


@pytest.mark.parametrize("known", [True, False])
def test_a_column_makes_room_for_one_whose_name_differs_in_letter_case(known: bool) -> None:
    history = History(table(Note=2))
    history.follows(table(), known=known)
    history.follows(table(note=3), known=known)
    assert history.own == {"note": "new note", "Note__dropped": "Note"}
    history.follows(table())
    history.follows(table(NOTE=4), known=known)
    assert history.own == {"NOTE": "new NOTE", "note__dropped_2": "new note", "Note__dropped": "Note"}


def test_a_column_gets_the_name_of_one_that_was_renamed_in_another_letter_case() -> None:
    history = History(table(Price=2, price_new=3))
    history.follows(table(price_old=2, price=3))
    assert history.own == {"price_old": "Price", "price": "price_new"}
    history.follows(table(PRICE=3))
    assert history.own == {"price_old": "Price", "PRICE": "price_new"}


def test_a_name_of_the_sources_own_is_not_taken_for_one_that_was_put_aside() -> None:
    """`as-of` said of a column `price` that what it held under a former type was in `price__net`."""
    columns = ["id", "price", "price__net", "price__int"]
    assert set_aside(columns, {"id", "price", "price__net"}) == {"price": ["price__int"]}
    assert set_aside(columns[:3], {"id", "price", "price__net"}) == {}


class Warehouse:
    """A view's table, to Spark: its columns, and what is in each."""

    def __init__(self, *names: str) -> None:
        self.holds = {name: name for name in names}

    def follows(self, *columns: str, renamed: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
        view: Any = SimpleNamespace(table=SimpleNamespace(renamed=renamed))
        there = [SimpleNamespace(name=name, dataType=_Kind("string")) for name in self.holds]
        spark: Any = SimpleNamespace(sql=self._sql, table=lambda _name: SimpleNamespace(schema=there))
        spark.catalog = SimpleNamespace(refreshTable=lambda _name: None)
        history: Any = SimpleNamespace(holds=self.holds, gives=lambda *_, **__: None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(warehouse, "loaded", lambda *_: SimpleNamespace(updateSchema=lambda: _Update(history)))
            warehouse.follow_columns(spark, "v", view, [(name, "string") for name in columns])
        return self.holds

    def _sql(self, text: str) -> None:
        found = re.findall("`(.+?)`", text)
        if "DROP" in text:
            del self.holds[found[0]]
            return
        assert found[-1].lower() not in {name.lower() for name in self.holds}, "FIELD_ALREADY_EXISTS"
        self.holds[found[-1]] = self.holds.pop(found[0]) if "RENAME" in text else f"new {found[-1]}"


def test_a_views_table_follows_a_name_that_changes_in_letter_case() -> None:
    """Its flow ended at every start."""
    assert Warehouse("Name").follows("name", renamed=(("Name", "name"),)) == {"name": "Name"}
    assert Warehouse("Name", "a").follows("name", renamed=(("a", "name"),)) == {"name": "a"}
    assert Warehouse("Note").follows("note") == {"note": "new note"}
