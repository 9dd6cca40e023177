"""A pipeline whose index does not take everything: a text that it maps as a number, and texts that are too long."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from elasticsearch import Elasticsearch

from cdc.log.letter_log import LetterLog
from cdc.pipeline import load
from examples.common import ensure_database
from tests.support.own_tables import OwnTables

OWNER = "lettered_owner"
ROWS = 40
TABLES = """
CREATE TABLE things (id int PRIMARY KEY, code text, name text, note text);
CREATE TABLE parts (id int PRIMARY KEY, thing int, label text);
"""
VIEWS: dict[str, Any] = {
    "thing": {"root": "things"},
    "card": {
        "root": "things",
        "columns": ["id", "code"],
        "aggregates": {"sum": {"table": "parts", "on": {"id": "thing"}, "value": "sum(CAST(label AS int))"}},
    },
}
# Elasticsearch takes no keyword above 32,766 bytes.
LONG = 40_000


@dataclass
class Lettered(OwnTables):
    """The pipeline: ``thing`` and the joined ``card`` in Elasticsearch, ``thing`` in Redis, which takes everything."""

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(TABLES.encode())
            connection.execute("INSERT INTO things SELECT i, i::text, 'n' FROM generate_series(1, %s) i", [ROWS])
            connection.execute("INSERT INTO parts SELECT i, i, '7' FROM generate_series(1, %s) i", [ROWS])
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        mapping = {"code": {"type": "integer"}, "name": {"type": "keyword"}, "note": {"type": "keyword"}}
        sinks = {"search": self.search(VIEWS, mapping=mapping), "cache": self.cache(["thing"])}
        self.write_own(["public.things", "public.parts"], VIEWS, sinks)

    # -- letters -------------------------------------------------------------------------------------------------------

    def letters(self, verb: str, *options: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """``headwater letters FILE VERB --json``."""
        report: dict[str, Any] = json.loads(self.run("letters", verb, "--json", *options, ok=ok))
        return report

    def about(self, *options: str) -> set[tuple[str, str, str]]:
        """Letters that stand: (sink, view without the test's name, key), a row's with its table before the key."""
        report = self.letters("list", "--each", "--limit", "1000", *options)
        return {
            (
                one["sink"],
                one["view"].removeprefix(f"{self.name}_"),
                f"{one['table']} {one['key']}" if one["row"] else one["key"],
            )
            for one in report["letters"]
        }

    def on_record(self) -> set[str]:
        """Keys of letters that nobody has cleared, as the topic has them."""
        log = LetterLog(load(self.file, self.environment()))
        return {logged.letter.key for _, logged in log.follow()}

    def eventually(self, read: Callable[[], Any], wanted: Any, seconds: float = 60.0) -> None:
        """Read until it is as wanted."""
        until = time.monotonic() + seconds
        while (found := read()) != wanted:
            assert time.monotonic() < until, f"{found} is not {wanted}\n{self.log()}"
            time.sleep(0.3)

    def indexed(self, view: str, key: str) -> dict[str, Any] | None:
        """A document as Elasticsearch has it."""
        with Elasticsearch(self.stack.endpoints.elasticsearch_url) as client:
            found = client.options(ignore_status=404).get(index=self.view(view), id=key).body
        source: dict[str, Any] | None = found.get("_source")
        return source

    def mend_mapping(self, view: str, **properties: dict[str, Any]) -> None:
        """Change a mapping in place, as an operator does."""
        with Elasticsearch(self.stack.endpoints.elasticsearch_url) as client:
            client.indices.put_mapping(index=self.view(view), properties=properties)
