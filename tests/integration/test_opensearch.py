"""A pipeline into OpenSearch, as a user has it: joined and plain views, a writer, a kill, a rebuild shown and left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from examples.common import ensure_database
from sinks.elasticsearch.opensearch import unsigned
from tests.support.own_tables import OwnTables, Writing
from tests.support.servers import require, servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

OWNER = "books_owner"
TABLES = """
CREATE EXTENSION hstore;
CREATE TABLE authors (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE books (
    id     int PRIMARY KEY,
    author int NOT NULL,
    title  text NOT NULL,
    price  numeric(8, 2),
    bought date,
    marks  hstore,
    more   jsonb
);
INSERT INTO authors SELECT n, 'Author ' || n FROM generate_series(1, 20) n;
INSERT INTO books SELECT n, 1 + n % 20, 'Book ' || n, n / 7.0, '2026-11-25', hstore('shelf', n::text), '{"a": [1, "x"]}'
FROM generate_series(1, 400) n;
"""
VIEWS: dict[str, Any] = {
    "author": {
        "root": "authors",
        "children": {"books": {"table": "books", "on": {"id": "author"}, "columns": ["id", "title"]}},
        "aggregates": {"count": {"table": "books", "on": {"id": "author"}, "value": "count(*)"}},
    },
    "book": {"root": "books"},
}


class Books(OwnTables):
    """Authors and their books."""

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(TABLES)
        views = [self.view(name) for name in VIEWS]
        sink = {"type": "opensearch", "url": self.stack.endpoints.opensearch_url, "views": views}
        self.write_own(["public.*"], VIEWS, {"search": sink})
        self.run("apply", "--wait")

    def found(self, view: str, **query: Any) -> list[str]:
        """Ids by a search of the server's own."""
        with unsigned(self.stack.endpoints.opensearch_url) as client:
            client.indices.refresh(index=self.view(view))
            hits = client.search(index=self.view(view), query=query, size=500).body["hits"]["hits"]
        return sorted(hit["_id"] for hit in hits)

    def mapped(self, view: str) -> dict[str, Any]:
        """Field -> mapping, as readers' alias has it."""
        with unsigned(self.stack.endpoints.opensearch_url) as client:
            (found,) = client.indices.get_mapping(index=self.view(view)).body.values()
        return dict(found["mappings"]["properties"])


class Selling(Writing):
    """Books change their author and price, come and go."""

    pause = 0.05

    def row(self, connection: psycopg.Connection[Any]) -> None:
        book = self.random.randrange(1, 400)
        if self.random.random() < 0.2:
            connection.execute("DELETE FROM books WHERE id = %s", [book])
            connection.execute("INSERT INTO books VALUES (%s, %s, 'New', 1)", [book + 1000, 1 + book % 20])
            connection.execute("DELETE FROM books WHERE id = %s", [book + 1000])
        else:
            author = self.random.randrange(1, 20)
            connection.execute("UPDATE books SET author = %s, price = price + 1 WHERE id = %s", [author, book])


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    stack = servers()
    require(stack, "opensearch")
    stack.up(more=["opensearch"])
    made = Books(stack, tmp_path_factory.mktemp("books"))
    try:
        made.prepare()
        yield made
    finally:
        made.close()


def test_documents_are_right_after_writes_and_a_kill(books: Books) -> None:
    books.start()
    with Selling(books.conninfo):
        books.settled(lambda: len(books.found("author", match_all={})), 20)
        books.kill()
        books.launch()
        books.settled(lambda: books.status()["sinks"][0]["state"], "running")
    books.assert_equal()
    assert books.found("book", match={"title": "Book 3"})
    assert books.mapped("book")["marks"]["type"] == "flat_object"
    books.execute("INSERT INTO books VALUES (2000, 1, 'Marked', 1, null, 'shelf=>north', null)")
    assert books.settled(lambda: books.found("book", term={"marks.shelf": "north"}), ["2000"]) == ["2000"]


def test_a_rebuild_is_shown_and_left_again(books: Books) -> None:
    report = json.loads(books.run("rebuild", "search", "--json"))
    assert (report["generation"], report["stage"]) == (2, "ready")
    books.run("promote", "search")
    books.assert_equal()
    books.run("rollback", "search")
    books.assert_equal()
    books.stop()
