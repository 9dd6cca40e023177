"""Tables that are altered while sinks are compared: of their views nothing is told, and the others are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ShapeUnknown, SourceUnavailable
from cdc.shapes import Shape
from cdc.view import View
from operations import opened
from operations.rebuild.compared import compare
from operations.state.shapes import remember_shapes
from operations.verify import tables_now
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
    assert source.looks == 1
    source.alter(WIDER)
    for _ in range(2):
        tables.refuse_altered(View.identity(ORDERS))
        with pytest.raises(ShapeUnknown, match=r"public\.lines, of which view lines is made, was altered"):
            tables.refuse_altered(View.identity(LINES))
    assert source.looks == 2 and tables.catalogue.tables["public.lines"] == LINES


def test_values_that_were_made_anew_are_an_alteration_too(source: Source, tables: TablesNow) -> None:
    """`ALTER … TYPE … USING`: Postgres has others at once, and a sink only once they were read again."""
    shape = source.shapes["public.lines"]
    source.shapes["public.lines"] = replace(shape, since=9, files="g", written=((1, "7"),))
    with pytest.raises(ShapeUnknown, match=r"public\.lines"):
        tables.refuse_altered(View.identity(LINES))


def test_a_table_that_was_dropped_is_another_one(source: Source, tables: TablesNow) -> None:
    dropped = source.shapes.pop("public.lines")
    with pytest.raises(ShapeUnknown):
        tables.refuse_altered(View.identity(LINES))
    source.shapes["public.lines"] = dropped
    tables.refuse_altered(View.identity(LINES))


class Compared:
    """Comparisons of a cache of both tables, `lines` first; something happens while that is made."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pipeline = load(tmp_path, NAMED)
        remember_shapes(self.pipeline, {name: Shape(one, 1) for name, one in BOTH.tables.items()})
        fill(self.pipeline, "cache", monkeypatch)
        self.views = list[View]()

    def told(self, meanwhile: Callable[[], None], **asked: Any) -> dict[str, Any]:
        def made(view: View, holders: Sequence[opened.Opened], _folder: Path) -> dict[str, Comparison]:
            if not self.views:
                meanwhile()
            self.views.append(view)
            return {build.sink: Comparison(view.name, repaired=3) for build in holders}

        subject = Verifier(self.pipeline, BOTH, Asked(["cache"], **asked))
        subject._view = made  # type: ignore[method-assign]
        (report,) = subject.sinks()
        return report


@pytest.fixture
def compared(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> Compared:
    return Compared(tmp_path, monkeypatch)


def test_a_view_of_a_table_that_was_altered_before_its_turn_is_not_compared(source: Source, compared: Compared) -> None:
    """`run` may not have brought the sink there, and would be accused of that. What was found, and repaired, before is
    told, also of a single sink."""
    report = compared.told(lambda: source.alter(WIDER_ORDERS))
    assert [view.name for view in compared.views] == ["lines"]
    assert "public.orders, of which view orders is made, was altered" in report["error"]
    assert [(view["view"], view["repaired"]) for view in report["views"]] == [("lines", 3)]


def test_views_of_other_tables_go_on_as_they_were_resolved(source: Source, compared: Compared) -> None:
    report = compared.told(lambda: source.alter(WIDER))
    assert report["error"] is None and [view["view"] for view in report["views"]] == ["lines", "orders"]


def test_of_what_a_gate_compares_all_must_be_known(
    source: Source, compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That some views are equal shows nothing to readers, and that the rest could not be compared is no difference."""
    asked = list[Asked]()
    monkeypatch.setattr("operations.verify.report.verified", lambda _pipeline, one, _say: asked.append(one) or {})
    compare(print, compared.pipeline, "cache", 2)
    assert asked[0].whole and not Asked().whole
    with pytest.raises(ShapeUnknown):
        compared.told(lambda: source.alter(WIDER_ORDERS), whole=asked[0].whole)


def test_where_nothing_could_be_compared_that_is_the_error(source: Source, compared: Compared) -> None:
    source.away = True
    with pytest.raises(SourceUnavailable):
        compared.told(lambda: None)


def test_a_source_that_is_away_for_a_moment_keeps_one_view_from_being_compared(
    source: Source, compared: Compared
) -> None:
    report = compared.told(lambda: setattr(source, "away", True))
    assert "does not answer" in report["error"] and [view["view"] for view in report["views"]] == ["lines"]
