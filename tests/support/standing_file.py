"""A file with standing queries, and what is noted of them."""

from __future__ import annotations

from pathlib import Path

from cdc.pipeline import Pipeline, loads
from operations.standing.note import MatcherNote

FILE = """
version: 1
name: standing
source: {{host: h, database: d, user: u, password: p, tables: [public.t]}}
kafka: {{bootstrap: "h:1"}}
connect: {{url: "http://h:1"}}
views: {{order: {{root: t}}, other: {{root: t}}}}
sinks:
  search: {{type: opensearch, url: "http://h:9200", view: order}}
  cache: {{type: redis, url: "redis://h:1/0", views: [order, other], changes: {{}}}}
  plain: {{type: redis, url: "redis://h:1/1", view: order}}
queries: {queries}
engine: {{state_dir: "{folder}"}}
"""


STANDING = "{order: {search: search, changes: cache}}"


def load(queries: str, folder: str = "s") -> Pipeline:
    return loads(FILE.format(queries=queries, folder=folder).encode(), "p.yaml")


def noted(folder: Path) -> Pipeline:
    """One whose matcher has left a note."""
    made = load(STANDING, str(folder))
    MatcherNote(7, 3, 1, 2.5, 4, 1, 0).write(made, "order")
    return made
