"""A history's columns follow the source's: by their numbers where a name alone may be another column's."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import SinkRefused
from cdc.records.history import COLUMNS, set_aside
from cdc.shapes import Shape, Shapes
from cdc.view import View
from sinks.iceberg.numbers import NUMBERS, NUMBERS_OF
from spark.warehouse import table as warehouse
from spark.warehouse.history import tables as histories
from spark.warehouse.history.tables import follow
from spark.warehouse.whose import IDS


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
        self.numbers, self.left = self.view.numbers, 99

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
        self.numbers = self.view.numbers

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
    """A view's table, to Spark and to Iceberg: its columns, what is in each, and its properties."""

    def __init__(self, *names: str) -> None:
        self.holds, self.properties, self.kill = {name: name for name in names}, dict[str, str](), False
        self.ids, self.kill_last = {name: number for number, name in enumerate(names, 1)}, False

    def follows(
        self, *columns: str, renamed: tuple[tuple[str, str], ...] = (), oid: int = 7, **numbers: int
    ) -> dict[str, str]:
        """The view has these columns, ``numbers`` are those of the source's."""
        shown = table(**numbers) if numbers else Table("public", "t", (Column("id", "text", "text", ordinal=0),))
        view = View.identity(replace(shown, renamed=renamed, oid=oid), "v")
        there = [SimpleNamespace(name=name, dataType=_Kind("string")) for name in self.holds]
        spark: Any = SimpleNamespace(sql=self._sql, table=lambda _name: SimpleNamespace(schema=there))
        spark.catalog = SimpleNamespace(refreshTable=lambda _name: None)
        handle = SimpleNamespace(properties=lambda: self.properties, newTransaction=lambda: _Transaction(self))
        handle.schema, handle.updateProperties = lambda: _schema(self.ids), lambda: _Properties(self)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(warehouse, "loaded", lambda *_: handle)
            listed = columns or tuple(view.table.by_name)
            warehouse.follow_columns(spark, "v", view, [(name, "string") for name in listed])
        return {name: what for name, what in self.holds.items() if name != "id"}

    def _sql(self, text: str) -> None:
        if self.kill:
            raise RuntimeError("killed")
        for name in re.findall("`(.+?)`", text):
            self.add(name, f"new {name}")

    def add(self, name: str, what: str) -> None:
        """By whomever."""
        assert name.lower() not in {one.lower() for one in self.holds}, "FIELD_ALREADY_EXISTS"
        self.holds[name], self.ids[name] = what, max(self.ids.values(), default=0) + 1

    def call(self, names: dict[str, str]) -> None:
        """Rename columns, by whomever; all at once."""
        self.holds = {names.get(name, name): what for name, what in self.holds.items()}
        self.ids = {names.get(name, name): number for name, number in self.ids.items()}


def _schema(ids: dict[str, int]) -> Any:
    def field(name: str, number: int) -> Any:
        return SimpleNamespace(name=lambda: name, fieldId=lambda: number)

    return SimpleNamespace(columns=lambda: [field(*one) for one in ids.items()])


class _Properties:
    """A change of a table's properties."""

    def __init__(self, made: Warehouse) -> None:
        self._made, self._said = made, dict[str, str]()
        self.set = self._said.__setitem__

    def commit(self) -> None:
        if self._made.kill_last:
            raise RuntimeError("killed")
        self._made.properties |= self._said


class _Transaction:
    """Iceberg's own: what it does to columns is done by their ids, all at once, and nothing before its commit."""

    def __init__(self, made: Warehouse) -> None:
        self._made, self._gone, self._names = made, set[str](), dict[str, str]()
        self._properties = dict[str, str]()
        self.updateSchema = self.updateProperties = lambda: self
        self.deleteColumn, self.set = self._gone.add, self._properties.__setitem__
        self.commit = lambda: None

    def renameColumn(self, name: str, other: str) -> None:
        assert name in self._made.holds and name not in self._gone
        self._names[name] = other

    def commitTransaction(self) -> None:
        left = [name for name in self._made.holds if name not in self._gone]
        called = [self._names.get(name, name) for name in left]
        assert len(called) == len({name.lower() for name in called})
        self._made.holds = {name: self._made.holds[name] for name in left}
        self._made.ids = {name: self._made.ids[name] for name in left}
        self._made.call(self._names)
        self._made.properties |= self._properties


def test_a_views_table_follows_a_name_that_changes_in_letter_case() -> None:
    """Its flow ended at every start."""
    assert Warehouse("Name").follows("name", renamed=(("Name", "name"),)) == {"name": "Name"}
    assert Warehouse("Name", "a").follows("name", renamed=(("a", "name"),)) == {"name": "a"}
    assert Warehouse("Note").follows("note") == {"note": "new note"}
    numbered = Warehouse("id", "Name")
    numbered.follows(Name=2)
    assert numbered.follows(name=2) == {"name": "Name"}
    assert numbered.follows(NAME=3) == {"NAME": "new NAME"}


@pytest.mark.parametrize(
    ("numbers", "renamed", "holds"),
    [
        ({"b": 2, "a": 3, "c": 9}, (), {"b": "a", "a": "new a", "c": "c"}),
        ({"a": 3, "c": 9}, (), {"a": "new a", "c": "c"}),
        ({"a": 9, "c": 2}, (), {"a": "c", "c": "a"}),
        ({"x": 2, "a": 9}, (("c", "a"),), {"x": "a", "a": "c"}),
        ({"x": 2, "c": 9}, (("a", "x"),), {"x": "a", "c": "c"}),
    ],
    ids=["renamed, and another one added", "dropped and added again", "swapped", "moved on", "renamed"],
)
def test_a_views_table_that_has_missed_a_step_follows_by_numbers(
    numbers: dict[str, int], renamed: tuple[tuple[str, str], ...], holds: dict[str, str]
) -> None:
    """Its sink was paused over two changes: the whole current table had one column's values under another's name."""
    made = Warehouse("id", "a", "c")
    made.follows(a=2, c=9)
    for _ in range(2):
        assert made.follows(renamed=renamed, **numbers) == holds
    assert made.properties[NUMBERS_OF] == "7" and numbers.items() <= json.loads(made.properties[NUMBERS]).items()


def test_a_views_table_whose_follower_was_killed_in_between_is_followed_to_the_end() -> None:
    made = Warehouse("id", "a", "c")
    made.follows(a=2, c=9)
    made.kill = True
    with pytest.raises(RuntimeError, match="killed"):
        made.follows(c=2, a=9, b=10)
    made.kill = False
    assert made.follows(c=2, a=9, b=10) == {"c": "a", "a": "c", "b": "new b"}


def test_a_views_table_of_an_older_version_or_of_a_table_made_anew_goes_by_names() -> None:
    """Then the numbers are noted: the next change goes by them."""
    made = Warehouse("id", "a", "c")
    assert made.follows(x=2, c=9, renamed=(("a", "x"),)) == {"x": "a", "c": "c"}
    assert made.follows(c=2, x=9) == {"c": "a", "x": "c"}
    assert made.follows(x=2, c=9, oid=8) == {"c": "a", "x": "c"}, "by another table's numbers"
    assert made.follows(c=2, x=9, oid=8) == {"x": "a", "c": "c"}


def test_what_a_view_computes_has_no_number_and_stays_by_its_name() -> None:
    made = Warehouse("id", "a", "big", "_version")
    made.follows("id", "a", "big", "_version", a=2)
    assert made.follows("id", "b", "big", "_version", b=2) == {"b": "a", "big": "big", "_version": "_version"}


def test_a_column_that_somebody_has_renamed_in_a_views_table_is_renamed_back(caplog: pytest.LogCaptureFixture) -> None:
    """It was dropped, and an empty one made: each unchanged row read NULL, and the sink was well."""
    made = Warehouse("id", "carrier", "_hw_version")
    made.follows("id", "carrier", "_hw_version", carrier=2)
    made.call({"carrier": "airline"})
    assert made.follows("id", "carrier", "_hw_version", carrier=2) == {
        "carrier": "carrier",
        "_hw_version": "_hw_version",
    }
    assert "renamed column carrier to airline; it is renamed back" in caplog.text
    made.call({"carrier": "_hw_version", "_hw_version": "carrier"})
    assert made.follows("id", "carrier", "_hw_version", carrier=2) == {
        "carrier": "carrier",
        "_hw_version": "_hw_version",
    }


def test_one_that_the_source_has_renamed_or_dropped_meanwhile_is_followed_too() -> None:
    made = Warehouse("id", "a", "b")
    made.follows(a=2, b=3)
    made.call({"a": "x", "b": "y"})
    assert made.follows(c=2, renamed=(("a", "c"),)) == {"c": "a"}


def test_a_column_that_somebody_has_added_to_a_views_table_is_left_alone() -> None:
    """It was dropped, with what was in it, at the next start."""
    made = Warehouse("id", "a")
    made.add("early", "theirs")
    made.follows(a=2)
    made.add("note", "theirs")
    for _ in range(2):
        assert made.follows(b=2, c=3) == {"b": "a", "early": "theirs", "note": "theirs", "c": "new c"}
    assert made.follows(b=2) == {"b": "a", "early": "theirs", "note": "theirs"}
    assert made.follows(b=2, oid=8) == {"b": "a", "early": "theirs", "note": "theirs"}


def test_a_column_of_somebodys_that_has_a_name_of_ours_is_refused_by_name() -> None:
    made = Warehouse("id", "a")
    made.follows(a=2)
    made.add("Note", "theirs")
    with pytest.raises(SinkRefused, match="a column Note that Headwater has not made"):
        made.follows(a=2, note=3)
    assert made.holds == {"id": "id", "a": "a", "Note": "theirs"}
    made.call({"Note": "remark"})
    assert made.follows(a=2, note=3) == {"a": "a", "remark": "theirs", "note": "new note"}


def test_a_column_of_ours_that_somebody_has_dropped_is_said(caplog: pytest.LogCaptureFixture) -> None:
    made = Warehouse("id", "a", "b")
    made.follows(a=2, b=3)
    del made.holds["a"], made.ids["a"]
    assert made.follows(a=2, b=3) == {"b": "b", "a": "new a"}
    assert "column a is gone" in caplog.text


def test_one_that_an_older_version_has_made_and_somebody_has_renamed_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Warehouse("id", "airline")
    made.properties = {NUMBERS: json.dumps({"id": 1, "carrier": 2}), NUMBERS_OF: "7"}
    assert made.follows(carrier=2) == {"airline": "airline", "carrier": "new carrier"}
    assert "left alone: airline" in caplog.text


def test_a_column_that_was_added_by_one_who_was_killed_then_is_ours() -> None:
    made = Warehouse("id", "a")
    made.kill_last = True
    with pytest.raises(RuntimeError, match="killed"):
        made.follows(a=2, b=3)
    made.kill_last = False
    assert made.follows(a=2, b=3) == {"a": "a", "b": "new b"}
    assert made.follows(a=2) == {"a": "a"}


def test_ids_that_were_noted_before_an_older_version_has_followed_count_no_more() -> None:
    """It swaps two names and notes new numbers alone: by the ids it was somebody's renaming."""
    made = Warehouse("id", "a", "c")
    made.follows(a=2, c=9)
    made.call({"a": "c", "c": "a"})
    made.properties[NUMBERS] = json.dumps({"id": 1, "a": 9, "c": 2})
    assert made.follows(a=9, c=2) == {"c": "a", "a": "c"}


def test_a_column_that_0_2_0_has_added_in_between_is_taken_once_the_table_s_notes_are_gone() -> None:
    """It notes neither numbers nor ids: nothing in the table tells its column from somebody's."""
    made = Warehouse("id", "a")
    made.follows(a=2, c=3)
    made.holds["c"], made.ids["c"] = "0.2.0's", 9  # c was dropped, and added anew as another one
    with pytest.raises(SinkRefused, match="a column c that Headwater has not made") as refused:
        made.follows(a=2, c=4)
    assert "docs/upgrade.md#back-again" in refused.value.fix
    for name in (NUMBERS, IDS):  # as docs/upgrade.md says
        del made.properties[name]
    for _ in range(2):
        assert made.follows(a=2, c=4) == {"a": "a", "c": "0.2.0's"}


class Renamed:
    """A table of history of which columns may have been renamed."""

    def __init__(self, **ids: int) -> None:
        self.ids, self.names = ids, dict[str, str]()
        self.renameColumn = self.names.__setitem__

    def back(self, noted: dict[str, int]) -> dict[str, str]:
        spark: Any = SimpleNamespace(catalog=SimpleNamespace(refreshTable=lambda _name: None))
        handle = SimpleNamespace(schema=lambda: _schema(self.ids), updateSchema=lambda: self)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(histories, "loaded", lambda *_: handle)
            done = histories.rename_back(spark, "h", View.identity(table(carrier=2), "public.t"), noted)
        assert done == bool(self.names)
        return self.names

    def commit(self) -> None:
        pass


def test_a_column_that_somebody_has_renamed_in_a_history_is_renamed_back() -> None:
    """A new one was made: in every earlier cut it was null."""
    noted = {"id": 1, "carrier": 2}
    assert Renamed(id=1, airline=2).back(noted) == {"airline": "carrier"}
    assert Renamed(carrier=1, id=2).back(noted) == {"carrier": "id", "id": "carrier"}
    assert Renamed(id=1, carrier=2, note=3).back(noted) == {}
    assert Renamed(id=1, airline=2).back({}) == {}, "of an older version"
    assert Renamed(id=1, carrier__int=2, carrier=3).back(noted) == {}, "put aside by one who was killed then"
