"""Writes the table of docs/schema-changes.md by the deciding function: ``.venv/bin/python docs/schema_changes.py``.

``--check`` exits 1 when the page and the function differ; a test runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError
from cdc.pipeline import Pipeline, loads
from cdc.resolve.views import resolve_view
from cdc.shapes import Shapes
from cdc.view import View
from operations.schema.decide import ALL_ROWS, Decision, decide, together
from tests.support.migrations import BEFORE, MIGRATIONS, Migration

PAGE = Path(__file__).with_name("schema-changes.md")
BEGIN, END = "<!-- by docs/schema_changes.py: do not edit -->\n", "<!-- end -->\n"

FILE = """
version: 1
name: p
source: {database: d, user: u, tables: [public.things]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:1"}
views:
  thing: {root: things}
  named: {root: things, columns: [id, a, price]}
  card: {root: things, columns: [id, n, a], aggregates: {same: {table: things, "on": {id: n}, value: count(*)}}}
  whole: {root: things, aggregates: {same: {table: things, "on": {id: n}, value: count(*)}}}
row_store: {url: "redis://127.0.0.1:1"}
sinks:
  search: {type: elasticsearch, url: "http://127.0.0.1:1", views: [thing, named, card, whole]}
  cache: {type: redis, url: "redis://127.0.0.1:1", views: [thing, named, card, whole]}
  warehouse: {type: iceberg, catalog_uri: x, warehouse: x, namespace: n, views: [thing, named]}
"""
CASES = (
    ("search", "thing", "all columns, Elasticsearch"),
    ("cache", "thing", "all columns, Redis"),
    ("warehouse", "thing", "all columns, Iceberg"),
    ("search", "named", "`[id, a, price]`, Elasticsearch"),
    ("search", "card", "joined, `[id, n, a]`, Elasticsearch"),
    ("cache", "card", "joined, Redis"),
    ("search", "whole", "joined, all columns, Elasticsearch"),
    ("cache", "whole", "joined, all columns, Redis"),
)


def decided(pipeline: Pipeline, one: Migration) -> list[Decision]:
    """For each of CASES."""
    now = one.made(BEFORE)
    shapes = Shapes({"public.things": (BEFORE, now)})
    before = Catalogue({"public.things": BEFORE.table})
    after = shapes.told_to(Catalogue({"public.things": now.table}))
    told = replace(now, table=after.tables["public.things"])
    return [
        decide(BEFORE, told, _resolved(pipeline, before, view), _resolved(pipeline, after, view), pipeline.sinks[sink])
        for sink, view, _ in CASES
    ]


def _resolved(pipeline: Pipeline, catalogue: Catalogue, name: str) -> View:
    try:
        return resolve_view(pipeline, catalogue, name)
    except ConfigError as error:
        return error  # type: ignore[return-value]


def table() -> Iterator[str]:
    """The page's table, a line each."""
    pipeline = loads(FILE)
    yield "| migration of `things` | " + " | ".join(title for _, _, title in CASES) + " | rows read again |\n"
    yield "| --- " * (len(CASES) + 2) + "|\n"
    for one in MIGRATIONS:
        decisions = decided(pipeline, one)
        read = together(decisions)
        rows = "none" if read is None else "all" if read == ALL_ROWS else f"where `{read}`"
        cells = " | ".join(decision.verdict.words for decision in decisions)
        yield f"| {one.name}<br>`{one.sql}` | {cells} | {rows} |\n"


def render(text: str) -> str:
    """The page with its table made anew."""
    head, _, rest = text.partition(BEGIN)
    return head + BEGIN + "\n" + "".join(table()) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if page == render(page) else f"{PAGE.name} is stale: run docs/schema_changes.py")
    PAGE.write_text(render(page), encoding="utf-8")
