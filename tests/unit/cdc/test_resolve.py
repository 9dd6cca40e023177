"""Errors against the catalogue name the very place in the file; and what a warehouse asks of its views."""

from __future__ import annotations

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import PipelineFileError
from cdc.pipeline import loads
from cdc.resolve.views import resolve_views
from cdc.view import View

FILE = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.*]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
views:
  line:
    root: lines
    VIEW
sinks:
  s:
    type: TYPE
    KEEP
"""
TYPES = {
    "iceberg": "iceberg\n    catalog_uri: c.db\n    warehouse: w\n    namespace: n",
    "redis": "redis\n    url: redis://h",
}


def table(name: str, *columns: str, key: tuple[str, ...]) -> Table:
    return Table("public", name, tuple(Column(column, "text", "text") for column in columns), key)


LINES = table("lines", "order_id", "line", "title", key=("order_id", "line"))
CATALOGUE = Catalogue({LINES.qualified: LINES})


def resolve(
    view: str = "", keep: str = "view: line", kind: str = "redis", catalogue: Catalogue = CATALOGUE
) -> list[View]:
    text = FILE.replace("VIEW", view).replace("KEEP", keep).replace("TYPE", TYPES[kind])
    return resolve_views(loads(text, "p.yaml", {}), catalogue, "s")


def said(view: str = "", keep: str = "view: line", kind: str = "redis", catalogue: Catalogue = CATALOGUE) -> str:
    with pytest.raises(PipelineFileError) as caught:
        resolve(view, keep, kind, catalogue)
    return str(caught.value)


@pytest.mark.parametrize(
    ("view", "place", "message"),
    [
        ("columns: [order_id, line, tilte]", "9:31", "what to do: did you mean title?"),
        ("columns: [order_id, {tilte: name}]", "9:25", "no column tilte"),
        ("key: [order_id, lin]", "9:21", "did you mean line?"),
        ("key: [order_id]", "9:5", "the key must be public.lines's primary key (order_id, line)"),
        ("fields: {title: upper(title)}", "7:3", "view line gives two fields the name title"),
    ],
)  # fmt: skip
def test_the_place_is_named(view: str, place: str, message: str) -> None:
    found = said(view)
    assert found.startswith(f"p.yaml:{place}: ")
    assert message in found


def test_the_key_may_have_another_order() -> None:
    (view,) = resolve("key: [line, order_id]")
    assert view.key == ("line", "order_id")


def test_a_warehouse_needs_the_key_among_the_columns() -> None:
    assert said("columns: [order_id, title]", kind="iceberg").startswith(
        "p.yaml:9:5: sink s merges rows by key, but view line leaves out its key column line"
    )
    # A document may leave it out (its id holds it), and a renamed column is still there.
    assert resolve("columns: [order_id, title]")
    assert resolve("columns: [{order_id: of}, {line: nth}, title]", kind="iceberg")


def test_a_warehouse_refuses_names_that_spark_does_not_tell_apart() -> None:
    assert "title and TITLE are one column to Spark" in said("fields: {TITLE: upper(title)}", kind="iceberg")
    assert resolve("fields: {TITLE: upper(title)}")


def test_a_warehouse_refuses_iceberg_s_own_columns_in_whole_tables_too() -> None:
    own = table("own", "id", "_file", key=("id",))
    found = said(keep="tables: all", kind="iceberg", catalogue=Catalogue({own.qualified: own}))
    assert found.startswith("p.yaml:16:5: ") or found.startswith("p.yaml:16:13: ")
    assert "Iceberg has a column _file of its own" in found


@pytest.mark.parametrize("keep", ["tables: all", "tables: [lines, log]"])
def test_a_table_without_a_key_is_refused_where_it_is_named(keep: str) -> None:
    log = table("log", "id", key=())
    found = said(keep=keep, catalogue=Catalogue({LINES.qualified: LINES, log.qualified: log}))
    assert found.startswith("p.yaml:14:21: " if "[" in keep else "p.yaml:14:13: ")
    assert "public.log has no primary key" in found
    assert "ALTER TABLE public.log ADD PRIMARY KEY" in found
