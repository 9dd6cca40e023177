"""A view in a search server and in a Redis with changes, queries that stand on it, and what their matches must be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc.pipeline import Pipeline, load
from operations.push.following import follow
from operations.push.source import Source
from operations.standing.matcher import Matcher
from operations.standing.place import Caching, Searching, standing_place
from operations.standing.queries import list_queries, put_query, remove_query
from operations.standing.registered import ServerSearches
from operations.standing.seen import Seen
from sinks.contract import Item, Sink
from tests.support.sinks import PROPERTIES, VIEW, Subject

# The view whose documents are the queries, where a test says so.
SAVED = "saved"
FILE = """
version: 1
name: standing
source: {{host: 127.0.0.1, port: 1, database: x, user: y, password: z, tables: [public.t]}}
kafka: {{bootstrap: "{kafka}", replication_factor: 1, partitions: 2}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{{view}: {{root: t}}, saved: {{root: t}}}}
sinks:
  cache: {{type: redis, url: "{redis}", key_prefix: "{prefix}:", views: [{view}, saved], changes: {{keep: {keep}}}}}
  tested: {{type: {kind}, url: "{search}", index: "{index}", view: {view}}}
queries: {{{view}: {{search: tested, changes: cache{more}}}}}
engine: {{state_dir: {folder}/state}}
"""


@dataclass
class StandingWorld:
    """The world of a test: the cache's sink writes, as a flow would."""

    cache: Subject
    search: Subject
    folder: Path
    keep: int = 100_000
    more: str = ""
    kafka: str = "127.0.0.1:1"
    properties: dict[str, Any] = field(default_factory=lambda: dict(PROPERTIES))
    sinks: dict[int, Sink] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.file = self.folder / "standing.yaml"
        self.file.write_text(
            FILE.format(
                view=VIEW,
                redis=self.cache.url,
                prefix=self.cache.name,
                search=self.search.url,
                kind=self.search.type,
                index=self.search.name,
                folder=self.folder,
                keep=self.keep,
                more=self.more,
                kafka=self.kafka,
            )
        )
        self.index(1)
        self.sink = self.generation(1)

    def index(self, number: int) -> Sink:
        """A generation of the index, empty: what judges needs its fields, and none of its documents."""
        target = {"index": self.search.name, "generation": number, "properties": self.properties}
        sink = self.search.open(number, targets={VIEW: target})
        sink.setup()
        return sink

    @property
    def pipeline(self) -> Pipeline:
        return load(self.file)

    def generation(self, number: int) -> Sink:
        targets = {view: {"generation": number} for view in (VIEW, SAVED)}
        sink = self.sinks[number] = self.cache.open(number, keep=self.keep, targets=targets)
        sink.setup()
        return sink

    def write(self, version: int, **documents: Any) -> None:
        """Values are documents; None deletes."""
        self._write(VIEW, version, documents)

    def save(self, version: int, **queries: Any) -> None:
        """Rows of the queries' own view, as ``write``."""
        documents = {name: None if one is None else {"name": name, "query": one} for name, one in queries.items()}
        self._write(SAVED, version, documents)

    def _write(self, view: str, version: int, documents: dict[str, Any]) -> None:
        plain = {key: None if one is None else json.dumps(one).encode() for key, one in documents.items()}
        self.sink.write(view, [Item(key, version, document) for key, document in plain.items()])

    def put(self, name: str, **query: Any) -> dict[str, Any]:
        return put_query(self.pipeline, VIEW, name, json.dumps(query).encode())

    def remove(self, name: str) -> None:
        remove_query(self.pipeline, VIEW, name)

    def listed(self) -> list[dict[str, Any]]:
        """As `queries list --json`."""
        found: list[dict[str, Any]] = list_queries(self.pipeline, VIEW)["queries"]
        return found

    def states(self) -> dict[str, str]:
        return {one["name"]: one["state"] for one in self.listed()}

    def saved(self) -> dict[str, Any]:
        """The queries as the documents of their own view have them."""
        documents = {one.key: one.document for one in self.sink.scan(SAVED)}
        return {key: json.loads(one)["query"] for key, one in documents.items() if isinstance(one, bytes)}

    def matching(self) -> Matching:
        return Matching(self.pipeline)

    def told(self, *names: str) -> list[dict[str, Any]]:
        """Every event that there is, from the stream's beginning."""
        cache = Caching(standing_place(self.pipeline, VIEW))
        try:
            found = cache.client.xrange(cache.matches.keys.matches)
            entries = [one for _, one in found if one[b"v"] != b"-1"]
            return [
                {
                    "key": one[b"k"].decode(),
                    "version": int(one[b"v"]),
                    "queries": json.loads(one[b"q"]),
                    "document": json.loads(one[b"d"]) if one[b"d"] else None,
                    "cause": one[b"c"].decode(),
                }
                for one in entries
                if not names or set(names) & json.loads(one[b"q"]).keys()
            ]
        finally:
            cache.close()

    def snapshot(self) -> dict[str, set[str]]:
        """Who matches what, as a subscriber is told who comes now."""
        source, found = Source(standing_place(self.pipeline, VIEW)), dict[str, set[str]]()
        try:
            for events in follow(source, Seen()):
                for one in events:
                    if one.name == "snapshot":
                        found |= {each["key"]: set(each["queries"]) for each in one.value["documents"]}
                if any(one.name == "ready" for one in events):
                    break
        finally:
            source.close()
        return found

    def close(self) -> None:
        """Remove what no sink's clean-up knows of."""
        server = Searching(standing_place(self.pipeline, VIEW))
        server.store.drop()
        server.close()


class Matching:
    """A matcher with connections of its own, as a process has it."""

    def __init__(self, pipeline: Pipeline) -> None:
        place = standing_place(pipeline, VIEW)
        self._caching, self._searching = Caching(place), Searching(place)
        self.matches = self._caching.matches
        self.searches = ServerSearches(self._searching)
        self.matcher = Matcher(self.searches, self._caching.tail, self.matches)

    def until_idle(self, steps: int = 200) -> None:
        """Do all there is to do."""
        self.matcher._looked = -1e9
        for _ in range(steps):
            if not self.matcher.step():
                return
        raise AssertionError("it never comes to an end")

    def close(self) -> None:
        self._caching.close()
        self._searching.close()


def folded(events: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Who matches what, by the events alone; each is held to what was before it."""
    state: dict[str, set[str]] = {}
    for one in events:
        names = state.setdefault(one["key"], set())
        for name, op in one["queries"].items():
            assert (op == "entered") == (name not in names), (one, names)
            names.discard(name) if op == "left" else names.add(name)
    return {key: names for key, names in state.items() if names}
