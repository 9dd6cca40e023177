"""Views of a pipeline file against a catalogue: what is wrong is named, with what was probably meant."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from cdc.resolve.views import resolve_view, resolve_views


def table(schema: str, name: str, *columns: str, key: tuple[str, ...] = ("id",)) -> Table:
    return Table(schema, name, tuple(Column(c, "text", "text") for c in ("id", *columns)), key)


SHAPES = Table(
    "public",
    "shapes",
    (Column("id", "text", "text"), Column("area", "polygon", "polygon")),
    ("id",),
    generated=("size",),
)
CATALOGUE = Catalogue(
    {
        t.qualified: t
        for t in (
            table("public", "flights", "carrier", "dep_time"),
            table("old", "flights"),
            table("public", "planes"),
            table("public", "log", key=()),
            SHAPES,
        )
    }
)


def pipeline(views: dict[str, Any], sink: dict[str, Any]) -> Pipeline:
    content = {
        "version": 1,
        "name": "p",
        "source": {"host": "h", "database": "d", "user": "u", "password": "x", "tables": ["public.*", "old.*"]},
        "kafka": {"bootstrap": "k:1"},
        "connect": {"url": "http://c"},
        "views": views,
        "sinks": {"s": {"type": "redis", "url": "redis://r", **sink}},
    }
    made = Pipeline.model_validate(content)  # not `loads`, whose own checks would come first
    made.read_from("test.yaml", {("views",): (7, 1)})
    return made


def resolve(view: dict[str, Any]) -> Any:
    return resolve_view(pipeline({"v": view}, {"view": "v"}), CATALOGUE, "v")


def test_a_view_with_everything() -> None:
    view = resolve(
        {
            "root": "public.flights",
            "key": ["id"],
            "columns": ["id", {"dep_time": "departed"}],
            "fields": {"late": "dep_delay > 15"},
            "where": "true",
        }
    )
    assert view.columns == (("id", "id"), ("dep_time", "departed"))
    assert (view.key, view.fields, view.where) == (("id",), {"late": "dep_delay > 15"}, "true")


def test_columns_left_out_are_all_that_can_be_delivered() -> None:
    assert resolve({"root": "planes"}).columns == (("id", "id"),)
    assert resolve({"root": "shapes"}).columns == (("id", "id"),)


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ({"root": "flihgts"}, "did you mean flights"),
        ({"root": "flights"}, "write old.flights or public.flights"),
        ({"root": "nowhere.at_all"}, "add it to source.tables"),
        ({"root": "planes", "columns": ["ids"]}, "did you mean id"),
        (
            {"root": "shapes", "columns": ["size"]},
            "public.shapes.size is a generated column",
        ),
        ({"root": "planes", "columns": [{"x": "y"}]}, "public.planes has no column x"),
        ({"root": "planes", "key": ["idd"]}, "did you mean id"),
        ({"root": "public.flights", "key": ["carrier"]}, "primary key (id)"),
        ({"root": "public.flights", "columns": ["id", {"carrier": "id"}]}, "two fields the name id"),
        ({"root": "public.flights", "fields": {"carrier": "1"}}, "two fields the name carrier"),
        ({"root": "log"}, "no primary key"),
        ({"root": "shapes", "columns": ["area"]}, "can't be in a view"),
    ],
)
def test_what_is_wrong_is_named(view: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(view)
    assert says in str(caught.value)
    assert str(caught.value).startswith("test.yaml:7:1: ")


def test_a_sinks_views() -> None:
    views = {"a": {"root": "planes"}, "b": {"root": "shapes"}}

    def names(sink: dict[str, Any]) -> list[str]:
        return [view.name for view in resolve_views(pipeline(views, sink), CATALOGUE, "s")]

    assert names({"view": "a"}) == ["a"]
    assert names({"views": ["b", "a"]}) == ["b", "a"]
    assert names({"tables": ["planes", "public.flights"]}) == ["planes", "flights"]
    for sink, says in (
        ({"tables": ["plane"]}, "did you mean planes"),
        ({"tables": ["old.flights", "public.flights"]}, "two of its views are called flights"),
        ({"tables": "all"}, "two of its views are called flights"),
        ({"tables": ["log"]}, "no primary key"),
    ):
        with pytest.raises(ConfigError) as caught:
            names(sink)
        assert says in str(caught.value)
