"""`one`, `value` and `hide` in one view, from a real Postgres to a real Elasticsearch and a real Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from elasticsearch import Elasticsearch
from ruamel.yaml import YAML

from examples.filling import fill
from examples.social.load import OWNER
from tests.support.joined import Joined
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

SCHEMA = """
CREATE TABLE countries (id int PRIMARY KEY, name text);
CREATE TABLE publishers (id int PRIMARY KEY, name text, country_id int);
CREATE TABLE prizes (id int PRIMARY KEY, publisher_id int, title text, year int);
CREATE TABLE books (id int PRIMARY KEY, title text, price numeric(8,2), publisher_id int);
CREATE TABLE ratings (id int PRIMARY KEY, book_id int, stars numeric(3,1), given timestamptz, more jsonb);
CREATE TABLE weights (book_id int, id int PRIMARY KEY, grams real);
CREATE TABLE authors (id int PRIMARY KEY, name text, born date);
CREATE TABLE written (book_id int, author_id int, place int, PRIMARY KEY (book_id, author_id));
CREATE TABLE tags (id int PRIMARY KEY, word text);
CREATE TABLE tagged (book_id int, tag_id int, PRIMARY KEY (book_id, tag_id));
CREATE TABLE pages (id int PRIMARY KEY, book_id int, number int, heading text);
CREATE TABLE notes (id int PRIMARY KEY, book_id int, said jsonb, at timestamptz);
"""
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "countries": [(1, "Malta"), (2, None)],
    "publishers": [(1, "Sea", 1), (2, "Sky", 2), (3, None, None)],
    "prizes": [(1, 1, "b", 2020), (2, 1, "a", 2021), (3, 2, "c", 2019)],
    "books": [(1, "Boats", "12.50", 1), (2, "Birds", None, 2), (3, "Bare", "0.00", None), (4, "Secret", "1.00", 3)],
    "ratings": [(1, 1, "4.5", "2026-01-02 03:04:05.678Z", '{"by": ["x", null]}'), (2, 2, None, "infinity", None)],
    "weights": [(1, 1, 0.1), (2, 2, None)],
    "authors": [(1, "Ann", "1970-02-03"), (2, "Bob", None), (3, "Cy", "infinity")],
    "written": [(1, 1, 2), (1, 2, 1), (2, 1, 1), (2, 99, 2), (2, 3, 3)],
    "tags": [(1, "red"), (2, "blue"), (3, None), (4, "hidden")],
    "tagged": [(1, 2), (1, 1), (1, 3), (2, 1), (4, 4)],
    "pages": [(1, 1, 1, "One"), (2, 1, 2, "Two"), (3, 1, 3, None), (4, 1, 4, "Four"), (5, 2, 1, "Uno")],
    "notes": [(1, 1, '{"a": 1.50}', "infinity"), (2, 1, "null", None), (3, 1, None, "2026-01-01 00:00Z")],
}
VIEW = """
root: books
columns: [{id: book}, title, price]
refs:
  publisher: {table: publishers, on: {publisher_id: id}, value: name}
  from:
    table: publishers
    on: {publisher_id: id}
    hide: true
    refs: {country: {table: countries, on: {country_id: id}, value: name}}
    children: {prizes: {table: prizes, on: {id: publisher_id}, order_by: title, columns: [{title: prize}, year]}}
children:
  rating: {table: ratings, on: {id: book_id}, one: true, columns: [{stars: value}, given, more]}
  grams: {table: weights, on: {id: book_id}, one: true, value: grams}
  by:
    table: written
    on: {id: book_id}
    order_by: place
    hide: true
    refs:
      authors:
        table: authors
        on: {author_id: id}
        columns: [{name: called}, born]
        children:
          books: {table: written, on: {id: author_id}, value: book_id}
          first: {table: written, on: {id: author_id}, limit: 1, columns: [place]}
        aggregates: {total: {table: written, on: {id: author_id}, value: count(*)}}
  filed: {table: tagged, on: {id: book_id}, hide: true, refs: {tags: {table: tags, on: {tag_id: id}, value: word}}}
  headings: {table: pages, on: {id: book_id}, order_by: number desc, limit: 3, value: heading}
  said: {table: notes, on: {id: book_id}, value: said}
  times: {table: notes, on: {id: book_id}, value: at}
aggregates:
  pages: {table: pages, on: {id: book_id}, value: count(*)}
fields:
  words: "array_join(tags, '+')"
  given_year: "year(rating.given)"
  stars: "rating.stars"
  first: "get(authors, 0).name"
  light: "grams < 1"
  shown: "size(headings)"
  moments: "size(times)"
  honours: "concat_ws(' ', publisher, country, to_json(prizes))"
  all: "to_json(named_struct('r', rating.stars, 't', tags, 's', said))"
  people: "to_json(authors)"
where: "NOT array_contains(tags, 'hidden')"
"""
BOATS = {
    "book": 1,
    "title": "Boats",
    "price": "12.50",
    "publisher": "Sea",
    "country": "Malta",
    "prizes": [{"prize": "a", "year": 2021}, {"prize": "b", "year": 2020}],
    "rating": {"value": "4.5", "given": "2026-01-02T03:04:05.678Z", "more": {"by": ["x", None]}},
    "grams": 0.1,
    "authors": [
        {"called": "Bob", "born": None, "books": [1], "first": [{"place": 1}], "total": 1},
        {"called": "Ann", "born": "1970-02-03", "books": [1, 2], "first": [{"place": 2}], "total": 2},
    ],
    "tags": ["red", "blue"],
    "headings": ["Four", "Two"],
    "said": [{"a": 1.5}, None],
    "times": ["infinity", "2026-01-01T00:00:00Z"],
    "pages": 4,
    "words": "red+blue",
    "given_year": 2026,
    "stars": "4.5",
    "first": "Bob",
    "light": True,
    "shown": 2,
    "moments": 2,
}


class Words(Joined):
    """The tables above under the view above, in an index and a cache."""

    owner = OWNER

    def prepare(self, *_: object) -> None:
        schema = self.folder / "schema.sql"
        schema.write_text(SCHEMA)
        self.conninfo = fill(self.stack.endpoints, self.name, self.owner, schema, lambda: iter(ROWS.items()))
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        ends, yaml = self.stack.endpoints, YAML(typ="safe")
        sink = {"view": self.view("book")}
        document = {
            "version": 1,
            "name": self.name,
            "source": {
                "host": ends.postgres_host,
                "port": ends.postgres_port,
                "database": self.name,
                "user": "headwater",
                "password": "${HEADWATER_SOURCE_PASSWORD}",
                "setup_user": self.owner,
                "setup_password": "${HEADWATER_SETUP_PASSWORD}",
                "tables": ["public.*"],
            },
            "kafka": {"bootstrap": ends.kafka},
            "connect": {"url": ends.connect_url},
            "row_store": {"url": ends.redis_store_url},
            "views": {self.view("book"): yaml.load(VIEW)},
            "sinks": {
                "search": {"type": "elasticsearch", "url": ends.elasticsearch_url, **sink},
                "cache": {"type": "redis", "url": ends.redis_cache_url, "key_prefix": f"{self.name}:", **sink},
            },
            "engine": {"state_dir": str(self.folder / "state")},
        }
        with self.file.open("w") as out:
            YAML().dump(document, out)

    def told(self, verb: str, *options: str, ok: tuple[int, ...] = (0, 2)) -> dict[str, Any]:
        """What a verb that reads Postgres says."""
        self.readable(allowed=True)
        try:
            found: dict[str, Any] = json.loads(self.run(verb, *options, "--json", ok=ok))
        finally:
            self.readable(allowed=False)
        return found


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Words]:
    """Filled and followed."""
    stack = servers()
    stack.up()
    made = Words(stack, tmp_path_factory.mktemp("words"))
    with made.running():
        yield made


def test_documents_of_the_fill_are_what_the_view_says(pipeline: Words) -> None:
    pipeline.assert_equal()
    for held in (pipeline.in_redis("book"), pipeline.in_elasticsearch("book")):
        assert set(held) == {"1", "2", "3"}
        found = held["1"]
        assert {name: found[name] for name in BOATS} == BOATS
        assert set(found) - set(BOATS) == {"honours", "all", "people"}
        empty = {
            name: held["3"][name] for name in ("rating", "grams", "country", "publisher", "authors", "tags", "said")
        }
        assert empty == dict.fromkeys(("rating", "grams", "country", "publisher")) | {
            "authors": [],
            "tags": [],
            "said": [],
        }
        assert held["2"]["rating"] == {"value": None, "given": "infinity", "more": None}
        assert [one["called"] for one in held["2"]["authors"]] == ["Ann", "Cy"]


def test_values_and_lifted_rows_can_be_searched(pipeline: Words) -> None:
    index = pipeline.view("book")
    with Elasticsearch(pipeline.stack.endpoints.elasticsearch_url) as client:
        client.indices.refresh(index=index)
        for field, value, wanted in (
            ("tags", "blue", {"1"}),
            ("country", "Malta", {"1"}),
            ("authors.called", "Ann", {"1", "2"}),
            ("prizes.year", 2019, {"2"}),
            ("rating.value", 4.5, {"1"}),
        ):
            query = {"bool": {"should": [{"term": {field: value}}, {"term": {f"{field}.keyword": value}}]}}
            found = client.search(index=index, query=query)["hits"]["hits"]
            assert {hit["_id"] for hit in found} == wanted, field


def test_documents_follow_changes_of_rows_that_they_do_not_show(pipeline: Words) -> None:
    for statement in (
        "BEGIN; DELETE FROM ratings WHERE id = 1; INSERT INTO ratings VALUES (7, 1, 2.0, now(), '[1]'); COMMIT",
        "UPDATE ratings SET book_id = 3 WHERE id = 2",
        "UPDATE written SET place = 5 WHERE author_id = 2",
        "DELETE FROM tagged WHERE tag_id = 2",
        "INSERT INTO tagged VALUES (3, 1), (3, 2)",
        "UPDATE publishers SET country_id = 1 WHERE id = 2",
        "UPDATE tags SET word = 'scarlet' WHERE id = 1",
        "UPDATE tags SET word = 'open' WHERE id = 4",
        "UPDATE pages SET heading = 'Three' WHERE id = 3",
        "UPDATE weights SET grams = 1e10 WHERE id = 2",
        "UPDATE books SET publisher_id = 2 WHERE id = 1",
    ):
        pipeline.execute(statement)
    pipeline.assert_equal()
    held = pipeline.in_redis("book")
    assert held["1"]["rating"]["value"] == "2.0"
    assert held["3"]["tags"] == ["scarlet", "blue"]
    assert held["3"]["rating"]["given"] == "infinity"
    assert [one["called"] for one in held["1"]["authors"]] == ["Ann", "Bob"]
    assert (held["1"]["country"], held["1"]["headings"]) == ("Malta", ["Four", "Three", "Two"])
    assert set(held) == {"1", "2", "3", "4"}


def test_a_second_row_that_stays_is_named(pipeline: Words) -> None:
    pipeline.execute("INSERT INTO ratings VALUES (8, 1, 1.0, now(), NULL)")
    said = "rating (`one: true`, and 2 rows of public.ratings point here)"
    pipeline.settled(lambda: pipeline.in_redis("book")["1"]["rating"]["value"], "1.0")
    assert pipeline.in_redis("book")["1"]["rating"]["value"] == "1.0", "the newest is shown"
    report = pipeline.told("verify", "--wait", "60", ok=(2,))
    for sink in report["sinks"]:
        (view,) = sink["views"]
        assert (view["differences"], view["changed"], view["caught_up"]) == (1, ["1"], True)
        assert view["columns"] == {"1": [said]} or said in view["columns"]["1"]
    mended = pipeline.told("verify", "--repair", "--wait", "5", "--sink", "cache", ok=(2,))["sinks"][0]["views"][0]
    assert (mended["differences"], mended["repaired"]) == (1, 0)
    assert mended["not_repaired"] == [{"key": "1", "why": f"{said}: keep one of them"}]
    explained = pipeline.told("explain", "cache", "1", "--expected", ok=(2,))
    assert [(row["path"], row["key"], row["state"]) for row in explained["rows"] if row["state"] == "second"] == [
        (f"{pipeline.view('book')}.rating", "7", "second")
    ]
    assert explained["row_store"]["equal"]
    assert explained["expected"]["document"]["rating"] == said.removeprefix("rating ")
    pipeline.execute("DELETE FROM ratings WHERE id = 8")
    pipeline.assert_equal()
    assert pipeline.in_redis("book")["1"]["rating"]["value"] == "2.0"
