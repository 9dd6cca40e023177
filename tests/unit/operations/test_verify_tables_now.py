"""Tables that are altered while sinks are compared: views are held against them as they are, or nothing is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, ShapeUnknown, SourceUnavailable
from cdc.shapes import Shape
from cdc.view import View
from operations import opened
from operations.state.shapes import remember_shapes
from operations.verify import tables_now, verifier
from operations.verify.comparison import Comparison
from operations.verify.tables_now import TablesNow
from operations.verify.verifier import Asked, Verifier
from tests.unit.operations.test_gone_tables import BOTH, LINES, NAMED, ORDERS, fill, load

X = Column("x", "integer", "int4", ordinal=2)
WIDER, WIDER_ORDERS = (replace(one, columns=(*one.columns, X)) for one in (LINES, ORDERS))


class Source:
    """Postgres with two tables.

    Attributes:
        shapes: as they are now.
        looks: how often they were read.
        away: it does not answer.
    """

    def __init__(self) -> None:
        self.shapes = {
            one.qualified: Shape(one, 1, oid, "f", written=((1, "6"),)) for oid, one in enumerate((ORDERS, LINES), 1)
        }
        self.looks, self.away = 0, False

    def alter(self, table: Table, **shape: Any) -> None:
        self.shapes[table.qualified] = replace(self.shapes[table.qualified], table=table, since=9, **shape)

    def read(self, *_: object, absent: Sequence[object]) -> tuple[Catalogue, Mapping[str, Shape]]:
        self.looks += 1
        return replace(BOTH, tables={name: shape.table for name, shape in self.shapes.items()}), dict(self.shapes)

    def connect(self, _source: object) -> Any:
        if self.away:
            raise SourceUnavailable("Postgres does not answer")
        return nullcontext()


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    made = Source()
    monkeypatch.setattr(tables_now, "connect", made.connect)
    monkeypatch.setattr(tables_now, "fingerprint", lambda *_: repr(made.shapes))
    monkeypatch.setattr(tables_now, "read_shapes", made.read)
    return made


@pytest.fixture
def tables(tmp_path: Path, source: Source) -> TablesNow:
    """As they were when a comparison began."""
    pipeline = load(tmp_path, NAMED)
    catalogue, shapes = source.read(absent=[])
    source.looks = 0
    return TablesNow(pipeline, remember_shapes(pipeline, shapes).told_to(catalogue))


def test_a_table_is_read_again_only_where_something_may_have_been_altered(source: Source, tables: TablesNow) -> None:
    for _ in range(3):
        tables.refuse_altered(View.identity(LINES))
        assert not tables.renewed()
    assert source.looks == 1
    source.alter(WIDER)
    tables.refuse_altered(View.identity(ORDERS))
    with pytest.raises(ShapeUnknown, match=r"public\.lines, of which view lines is made, was altered"):
        tables.refuse_altered(View.identity(LINES))
    assert source.looks == 2 and tables.catalogue.tables["public.lines"] == LINES
    assert tables.renewed() and tables.catalogue.tables["public.lines"] == WIDER
    tables.refuse_altered(View.identity(WIDER))
    assert not tables.renewed() and source.looks == 2


def test_values_that_were_made_anew_are_an_alteration_too(source: Source, tables: TablesNow) -> None:
    """`ALTER … TYPE … USING`: Postgres has others at once, and a sink only once they were read again."""
    shape = source.shapes["public.lines"]
    source.shapes["public.lines"] = replace(shape, since=9, files="g", written=((1, "7"),))
    with pytest.raises(ShapeUnknown, match=r"public\.lines"):
        tables.refuse_altered(View.identity(LINES))
    assert tables.renewed() and not tables.renewed()


def test_a_table_that_was_dropped_or_came_is_another_one(source: Source, tables: TablesNow) -> None:
    dropped = source.shapes.pop("public.lines")
    with pytest.raises(ShapeUnknown):
        tables.refuse_altered(View.identity(LINES))
    assert tables.renewed() and "public.lines" not in tables.catalogue.tables
    source.shapes["public.lines"] = dropped
    assert tables.renewed() and "public.lines" in tables.catalogue.tables


class Compared:
    """Comparisons of a cache of both tables; something happens while the first is made."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pipeline = load(tmp_path, NAMED)
        remember_shapes(self.pipeline, {name: Shape(one, 1) for name, one in BOTH.tables.items()})
        fill(self.pipeline, "cache", monkeypatch)
        self.views = list[View]()

    def told(self, meanwhile: Callable[[], None]) -> dict[str, Any]:
        def compare(view: View, holders: Sequence[opened.Opened], _folder: Path) -> dict[str, Comparison]:
            if not self.views:
                meanwhile()
            self.views.append(view)
            return {build.sink: Comparison(view.name) for build in holders}

        subject = Verifier(self.pipeline, BOTH, Asked(["cache"]))
        # As where there is another sink, which can be compared.
        subject._view, subject._refuse_nothing = compare, lambda: None  # type: ignore[method-assign]
        (report,) = subject.sinks()
        return report


@pytest.fixture
def compared(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> Compared:
    return Compared(tmp_path, monkeypatch)


def test_what_is_compared_later_is_held_against_the_table_as_it_is_then(source: Source, compared: Compared) -> None:
    """It was held against the table of the start: `changed`, of all rows that `run` had read again meanwhile."""
    report = compared.told(lambda: source.alter(WIDER_ORDERS))
    assert [[name for name, _ in view.columns] for view in compared.views] == [["id"], ["id", "x"]]
    assert report["error"] is None and [view["view"] for view in report["views"]] == ["lines", "orders"]


def test_a_sink_whose_views_do_not_fit_any_more_keeps_what_was_found_before(
    source: Source, compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfit(*_: object) -> opened.Opened:
        raise ConfigError("there is no column id")

    def meanwhile() -> None:
        source.alter(WIDER_ORDERS)
        monkeypatch.setattr(verifier, "peek", unfit)

    report = compared.told(meanwhile)
    assert [view.name for view in compared.views] == ["lines"]
    assert "there is no column id" in report["error"] and [view["view"] for view in report["views"]] == ["lines"]


def test_a_source_that_is_away_between_two_views_is_met_by_who_compares(source: Source, compared: Compared) -> None:
    report = compared.told(lambda: setattr(source, "away", True))
    assert report["error"] is None and [view["view"] for view in report["views"]] == ["lines", "orders"]
