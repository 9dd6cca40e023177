"""Standing queries: how many new versions of documents a second are held against ten thousand of them, and a thousand.

``python -m benchmarks.run standing``. From a filled stream of changes to the stream of matches, by the matcher itself,
on OpenSearch (the local Elasticsearch lacks its percolator). Documents are flights as they are in the example, with the
names of airline and airports as a text; of a query's four kinds each is a quarter.
"""

from __future__ import annotations

import csv
import io
import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import orjson

from benchmarks.results import Measurement
from deploy.local.stack import LocalStack
from examples.flights.load import data_folder, open_lines
from operations.standing.place import Searching, standing_place
from sinks.contract import Item
from tests.support.sinks import VIEW, subject_on
from tests.support.standing import Matching, StandingWorld

COMMAND = "python -m benchmarks.run standing"
QUERIES, FEWER = 10_000, 1_000
WARM_UP, VERSIONS = 10_000, 30_000
PROPERTIES = {
    **{name: {"type": "keyword"} for name in ("carrier", "tailnum", "origin", "dest")},
    **{name: {"type": "long"} for name in ("month", "day", "flight", "distance", "dep_delay", "air_time")},
    "title": {"type": "text"},
}
Document = dict[str, Any]


def measure() -> list[Measurement]:
    """A thousand queries, then ten thousand, over the same documents."""
    documents = list(islice(flights(), WARM_UP + VERSIONS))
    found = {}
    for count in (FEWER, QUERIES):
        with _world() as world:
            found[count] = _rate(world, documents, list(islice(queries(documents), count)))
    return [
        Measurement("standing_query_docs_s", round(found[QUERIES], 1), "documents/s", VERSIONS, command=COMMAND),
        Measurement("standing_query_1k_docs_s", round(found[FEWER], 1), "documents/s", VERSIONS, command=COMMAND),
        Measurement(
            "standing_query_10x_queries_ratio", round(found[FEWER] / found[QUERIES], 2), "ratio", 2, command=COMMAND
        ),
    ]


@contextmanager
def _world() -> Iterator[StandingWorld]:
    stack = LocalStack()
    with (
        tempfile.TemporaryDirectory(prefix="headwater-standing-") as folder,
        subject_on(stack, "redis") as cache,
        subject_on(stack, "opensearch") as search,
    ):
        world = StandingWorld(cache, search, Path(folder), keep=1_000_000, properties=PROPERTIES)
        try:
            yield world
        finally:
            world.close()


def _rate(world: StandingWorld, documents: list[Document], standing: list[Document]) -> float:
    """Versions a second, once the servers are warm."""
    _register(world, standing)
    matching = world.matching()
    try:
        matching.until_idle()
        _write(world, documents[:WARM_UP], 1)
        _matched(matching)
        _write(world, documents[WARM_UP:], 2)
        told, began = matching.matcher.told, time.perf_counter()
        _matched(matching)
        seconds = time.perf_counter() - began
        told = matching.matcher.told - told
        each = mean(len(one["queries"]) for one in world.told()[-5_000:])
        print(
            f"{len(standing):,} queries: {VERSIONS:,} versions in {seconds:.1f} s; {told:,} of them concern some, each "
            f"of these {each:.1f}"
        )
    finally:
        matching.close()
    return VERSIONS / seconds


def _matched(matching: Matching) -> None:
    while matching.matcher.step():
        pass


def _write(world: StandingWorld, documents: list[Document], version: int) -> None:
    items = [Item(str(number % 20_000), version + number, orjson.dumps(one)) for number, one in enumerate(documents)]
    for start in range(0, len(items), 1_000):
        world.sink.write(VIEW, items[start : start + 1_000])


def _register(world: StandingWorld, standing: list[Document]) -> None:
    """All at once: each by itself would be parsed and made durable by itself."""
    server = Searching(standing_place(world.pipeline, VIEW))
    server.store.setup()
    lines: list[Any] = []
    for number, query in enumerate(standing):
        name = f"q{number}"
        lines += (json.dumps({"index": {"_id": name}}), json.dumps({"name": name, "revision": 1, "query": query}))
    for start in range(0, len(lines), 4_000):
        server.client.bulk(index=server.store.index, operations=lines[start : start + 4_000], refresh=True)
    server.close()


def flights() -> Iterator[Document]:
    """The flights of 2013, with the names of who flies from where to where."""
    folder = data_folder()
    names = {row["carrier"]: row["name"] for row in _rows(folder / "airlines.csv")}
    names |= {row["faa"]: row["name"] for row in _rows(folder / "airports.csv")}
    for row in _rows(folder / "flights.csv.zip"):
        one: Document = {name: row[name] or None for name in ("carrier", "tailnum", "origin", "dest")}
        numbers = ("month", "day", "flight", "distance", "dep_delay", "air_time")
        one |= {name: int(float(row[name])) if row[name] not in ("", "NA") else None for name in numbers}
        yield one | {"title": " ".join(names.get(row[name], "") for name in ("carrier", "origin", "dest"))}


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with open_lines(path) as lines:
        yield from csv.DictReader(io.TextIOWrapper(lines, "utf-8"))


def queries(documents: list[Document]) -> Iterator[Document]:
    """Terms, a term and a range, a bool of several, a text: of values that flights have."""
    chance = random.Random(20261125)  # noqa: S311
    while True:
        one, other = chance.choices(documents, k=2)
        yield {"terms": {"tailnum": [one["tailnum"] or "none", other["tailnum"] or "none"]}}
        long = {"range": {"distance": {"gte": chance.randrange(200, 2500), "lte": 3000}}}
        yield {"bool": {"filter": [{"term": {"flight": one["flight"]}}, long]}}
        route = [{"term": {name: one[name]}} for name in ("carrier", "origin", "dest")]
        late = {"range": {"dep_delay": {"gte": chance.randrange(60, 400)}}}
        yield {"bool": {"filter": [*route, late], "must_not": [{"term": {"month": chance.randrange(1, 13)}}]}}
        words = " ".join(chance.sample(one["title"].split(), 3))
        both = [{"match": {"title": {"query": words, "operator": "and"}}}, {"term": {"day": chance.randrange(1, 32)}}]
        yield {"bool": {"must": both}}
