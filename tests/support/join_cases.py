"""Tables, and files of joined views over them."""

from __future__ import annotations

import pytest

from cdc.catalogue import Catalogue, Column, NotUnique, Table
from cdc.errors import PipelineFileError
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline, loads
from cdc.resolve.views import resolve_view

FILE = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.*]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
row_store: {url: "redis://h:6379/1"}
views:
  v:
    root: ROOT
    JOINS
sinks:
  s: {type: redis, url: "redis://h", view: v}
"""


def table(called: str, key: str, /, *unique: str, not_unique: tuple[NotUnique, ...] = (), **columns: str) -> Table:
    found = []
    for name, kind in columns.items():
        base = kind.removesuffix("[]")
        found.append(Column(name.removesuffix("_"), kind, base, array=kind.endswith("[]")))
    others = tuple(tuple(one.split()) for one in unique)
    return Table("public", called, tuple(found), tuple(key.split()), unique_keys=others, not_unique=not_unique)


TABLES = (
    table(
        "flights", "id", id="int8", carrier="text", tailnum="text", origin="text", dest="text", airline_code="citext",
        distance="int4", cancelled="bool", time_hour="timestamptz", notes="json", labels="text[]", where_="point",
        area="polygon", plane_no="int4",
    ),
    table("airlines", "carrier", carrier="text", name="text", parent="text"),
    table("planes", "tailnum", tailnum="text", year="int4", maker="varchar"),
    table("airports", "faa", faa="text", name="text", country="int4"),
    table("countries", "id", id="int8", name="text"),
    table("lines", "order_id line", order_id="int8", line="int4", title="text"),
    table("returns", "id", id="int8", order_ref="int4", line_ref="int2", why="text"),
    table("staff", "id", id="int4", name="text", boss="int4"),
    table("posts", "id", id="int4", title="text"),
    table("tags", "id", id="int4", word="text"),
    table("posts_tags", "post tag", post="int4", tag="int4"),
    table(
        "books", "id", "isbn", "shelf place", id="int4", isbn="text", shelf="int4", place="int4", slug="text",
        title="text", lang="text",
        not_unique=(
            NotUnique("books_slug_live", ("slug", "lang"), "it is partial (WHERE (lang IS NOT NULL))"),
            NotUnique("books_title_lower", ("title",), "it is over an expression (btree (lower(title)))"),
        ),
    ),
    table("loans", "id", id="int8", book="varchar", at_shelf="int4", at_place="int8", titled="text"),
    table("comments", "path", path="int4[]", post="int4", said="text"),
    table("marks", "post about", post="int4", about="jsonb"),
    table("log", "", id="int4", flight="int8"),
)  # fmt: skip
CATALOGUE = Catalogue({table.qualified: table for table in TABLES})


def pipeline(root: str, joins: str) -> Pipeline:
    return loads(FILE.replace("ROOT", root).replace("JOINS", joins), "p.yaml", {})


def resolve(root: str, joins: str) -> JoinedView:
    view = resolve_view(pipeline(root, joins), CATALOGUE, "v")
    assert isinstance(view, JoinedView)
    return view


def said(root: str, joins: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        resolve(root, joins)
    return str(caught.value)
