"""Joins by a unique key, end to end: exchanges in one transaction, a runner that is killed, and keys that are none.

After each step both sinks are compared with what Postgres itself makes of the same rows, and at the end by ``verify``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch
from ruamel.yaml import YAML

from examples.filling import fill
from examples.social import load as social
from tests.support.joined import Documents, Joined
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

SCHEMA = """
CREATE TABLE books (
    id    int PRIMARY KEY,
    isbn  text,
    shelf int,
    place int,
    slug  text,
    title text NOT NULL,
    CONSTRAINT one_isbn UNIQUE (isbn) DEFERRABLE INITIALLY DEFERRED
);
CREATE UNIQUE INDEX one_at_a_place ON books (place, shelf);
CREATE UNIQUE INDEX live_slug ON books (slug) WHERE title <> '';
CREATE UNIQUE INDEX lower_title ON books (lower(title));
CREATE TABLE loans (
    id    bigint PRIMARY KEY,
    book  varchar(20),
    shelf int,
    place bigint,
    days  int NOT NULL
);
CREATE TABLE copies (isbn text, nr int, state text, PRIMARY KEY (isbn, nr));
CREATE TABLE notes (id int PRIMARY KEY, loan bigint, body text);
"""
VIEWS = """
loan:
  root: loans
  refs:
    book:
      table: books
      on: {book: isbn}
      columns: [id, title]
      children:
        others: {table: loans, on: {isbn: book}, columns: [id]}
    stands: {table: books, on: {shelf: shelf, place: place}, columns: [id, isbn]}
copy:
  root: copies
  key: [nr, isbn]
  refs: {book: {table: books, on: {isbn: isbn}, columns: [id, title]}}
book:
  root: books
  columns: [id, isbn, title]
  children:
    loans:
      table: loans
      on: {isbn: book}
      columns: [id, days]
      children: {notes: {table: notes, on: {id: loan}, columns: [body]}}
  aggregates:
    total: {table: loans, on: {isbn: book}, value: count(*)}
    longest: {table: loans, on: {isbn: book}, value: max(days)}
"""
TRUTH = """
SELECT 'loan', l.id::text, to_jsonb(l) || jsonb_build_object(
    'book', (SELECT jsonb_build_object('id', b.id, 'title', b.title, 'others', coalesce(
        (SELECT jsonb_agg(jsonb_build_object('id', o.id) ORDER BY o.id) FROM loans o WHERE o.book = b.isbn), '[]'))
        FROM books b WHERE b.isbn = l.book),
    'stands', (SELECT jsonb_build_object('id', b.id, 'isbn', b.isbn) FROM books b
        WHERE b.shelf = l.shelf AND b.place = l.place))
FROM loans l
UNION ALL
SELECT 'copy', concat(c.nr, '|', replace(c.isbn, '|', '\\|')), to_jsonb(c) || jsonb_build_object(
    'book', (SELECT jsonb_build_object('id', b.id, 'title', b.title) FROM books b WHERE b.isbn = c.isbn))
FROM copies c
UNION ALL
SELECT 'book', b.id::text, jsonb_build_object('id', b.id, 'isbn', b.isbn, 'title', b.title,
    'total', (SELECT count(*) FROM loans l WHERE l.book = b.isbn),
    'longest', (SELECT max(days) FROM loans l WHERE l.book = b.isbn),
    'loans', coalesce((SELECT jsonb_agg(jsonb_build_object('id', l.id, 'days', l.days, 'notes', coalesce(
        (SELECT jsonb_agg(jsonb_build_object('body', n.body) ORDER BY n.id) FROM notes n WHERE n.loan = l.id), '[]'))
        ORDER BY l.id) FROM loans l WHERE l.book = b.isbn), '[]'))
FROM books b
"""
BOOKS = 12
SHARDS = 4


def rows() -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Books of which every fourth has no ISBN; loans of them, and of none."""
    isbns = {n: None if n % 4 == 0 else f"97{n}|x" for n in range(1, BOOKS + 1)}
    yield "books", [(n, isbns[n], n % 3, n if n % 5 else None, f"s{n}", f"Title {n}") for n in isbns]
    loans = range(1, 5 * BOOKS)
    yield "loans", [(n, isbns.get(n % (BOOKS + 2), "lost"), n % 3, n % BOOKS, n % 30) for n in loans]
    yield "copies", [(f"97{n % BOOKS}|x", n, "new") for n in range(1, 4 * BOOKS)]
    yield "notes", [(n, n % 40, f"note {n}") for n in range(1, 60)]


class Library(Joined):
    """Books by ISBN and by place, in both kinds of sinks."""

    def prepare(self, *_: object) -> None:
        schema = self.folder / "schema.sql"
        schema.write_text(SCHEMA)
        self.conninfo = fill(self.stack.endpoints, self.name, social.OWNER, schema, rows)
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        yaml = YAML(typ="safe")
        document = yaml.load((self.folder_of(social) / "pipeline.yaml").read_text())
        views = [self.view("loan"), self.view("book")]
        cache = document["sinks"]["cache"] | {"views": views, "key_prefix": f"{self.name}:"}
        search = {"type": "elasticsearch", "url": self.stack.endpoints.elasticsearch_url, "views": views}
        routed = {name: search[name] for name in ("type", "url")}
        routed |= {"view": self.view("copy"), "routing": "isbn", "settings": {"number_of_shards": SHARDS}}
        document |= {
            "name": self.name,
            "views": {self.view(name): view for name, view in yaml.load(VIEWS).items()},
            "sinks": {"cache": cache, "search": search, "routed": routed},
            "engine": {"state_dir": str(self.folder / "state")},
        }
        tables = [f"public.{name}" for name in ("books", "loans", "notes", "copies")]
        document["source"] |= {"database": self.name, "setup_user": social.OWNER, "tables": tables}
        with self.file.open("w") as out:
            YAML().dump(document, out)

    def transaction(self, *statements: str) -> None:
        """Statements in one transaction."""
        with psycopg.connect(self.conninfo) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def documents(self) -> dict[str, Documents]:
        """What both sinks hold; they must hold the same."""
        found = {f"{view} {kind.__name__}": kind(view) for view in ("loan", "book") for kind in self.kinds}
        return found | {"copy": self.in_elasticsearch("copy")}

    @property
    def kinds(self) -> tuple[Any, ...]:
        """How the sinks are read."""
        return self.in_redis, self.in_elasticsearch

    def settle(self) -> dict[str, Documents]:
        """Wait until the sinks hold what Postgres says; the truth."""
        truth = self.truth(TRUTH)
        wanted = {f"{view} {kind.__name__}": truth[view] for view in ("loan", "book") for kind in self.kinds}
        wanted["copy"] = truth["copy"]
        assert self.settled(self.documents, wanted) == wanted
        return truth


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Captured and followed."""
    stack = servers()
    stack.up()
    made = Library(stack, tmp_path_factory.mktemp("library"))
    with made.running():
        yield made


def test_after_the_fill_and_every_kind_of_change(library: Library) -> None:
    truth = library.settle()
    assert truth["loan"]["1"]["book"]["title"] == "Title 1" and truth["loan"]["4"]["book"] is None
    assert truth["book"]["1"]["total"] > 1 and truth["book"]["4"]["loans"] == []
    library.execute("UPDATE books SET isbn = 'lost' WHERE id = 4")  # NULL to a value that loans wait for
    library.execute("UPDATE books SET isbn = NULL WHERE id = 2")
    library.execute("UPDATE books SET shelf = 7, place = 7 WHERE id = 3")
    library.execute("UPDATE loans SET book = '973|x', shelf = 7, place = 7 WHERE id < 4")
    library.execute("DELETE FROM books WHERE id = 5")
    library.execute("INSERT INTO books VALUES (50, '975|x', 2, 5, 'again', 'Again')")
    library.execute("UPDATE books SET id = 60 WHERE id = 6")  # the row's key changes, the unique one stays
    after = library.settle()
    assert after["loan"]["5"]["book"]["id"] == 50
    assert after["loan"]["6"]["book"]["id"] == 60
    assert {loan["book"]["title"] for loan in after["loan"].values() if loan["book"] and loan["id"] < 4} == {"Title 3"}


def test_rows_exchange_their_unique_values_in_one_transaction(library: Library) -> None:
    before = library.settle()
    for _ in range(20):
        library.transaction(
            "UPDATE books SET isbn = CASE id WHEN 1 THEN '977|x' ELSE '971|x' END WHERE id IN (1, 7)",
            "UPDATE books SET title = title || '.' WHERE id = 1",
        )
        library.transaction(
            "UPDATE books SET isbn = '971|x' WHERE id = 1",
            "UPDATE loans SET days = days + 1 WHERE book IN ('971|x', '977|x')",
            "UPDATE books SET isbn = '977|x' WHERE id = 7",
        )
    library.transaction(  # in a ring of three
        "UPDATE books SET isbn = '977|x' WHERE id = 1",
        "UPDATE books SET isbn = '979|x' WHERE id = 7",
        "UPDATE books SET isbn = '971|x' WHERE id = 9",
    )
    after = library.settle()
    assert after["book"]["9"]["total"] == before["book"]["1"]["total"] > 0
    assert {one["book"]["id"] for one in after["loan"].values() if one["id"] in (15, 29)} == {9}


def test_a_runner_that_is_killed_in_the_middle_of_exchanges(library: Library) -> None:
    for number in range(30):
        one, other = ("979|x", "977|x") if number % 2 else ("977|x", "979|x")
        library.transaction(
            f"UPDATE books SET isbn = '{one}' WHERE id = 1", f"UPDATE books SET isbn = '{other}' WHERE id = 7"
        )
        if number == 20:
            library.kill()
    library.start()
    library.settle()
    report = library.assert_equal()
    assert sorted((sink["sink"], len(sink["views"])) for sink in report["sinks"]) == [
        ("cache", 2),
        ("routed", 1),
        ("search", 2),
    ]
    assert not library.dead_letters()


def test_documents_lie_by_the_isbn_and_go_where_a_new_key_says(library: Library) -> None:
    before = library.settle()["copy"]
    library.execute("UPDATE copies SET isbn = '977|x' WHERE nr IN (1, 2)")
    library.execute("UPDATE copies SET state = 'worn' WHERE mod(nr, 3) = 0")
    library.execute("DELETE FROM copies WHERE nr > 40")
    after = library.settle()["copy"]
    assert set(before) - set(after) >= {"1|971\\|x", "2|972\\|x"} and "1|977\\|x" in after
    with Elasticsearch(library.stack.endpoints.elasticsearch_url) as client:
        alias = library.view("copy")
        for key, copy in after.items():
            assert client.get(index=alias, id=key, routing=copy["isbn"])["_source"] == copy
        found = client.search(index=alias, routing="977|x", size=100)
        assert found["_shards"]["total"] == 1
        assert {key for key in after if after[key]["isbn"] == "977|x"} <= {hit["_id"] for hit in found["hits"]["hits"]}


def test_verify_repair_and_explain_find_documents_by_their_routing(library: Library) -> None:
    truth, alias = library.settle()["copy"], library.view("copy")
    lost, twice, *_ = sorted(truth)
    with Elasticsearch(library.stack.endpoints.elasticsearch_url) as client:
        client.delete(index=f"{alias}_g1", id=lost, routing=truth[lost]["isbn"])
        home = client.search_shards(index=f"{alias}_g1", routing=truth[twice]["isbn"])["shards"]
        routings = (f"routing {n}" for n in range(99))
        other = next(r for r in routings if client.search_shards(index=f"{alias}_g1", routing=r)["shards"] != home)
        client.index(index=f"{alias}_g1", id=twice, routing=other, document={"nr": -1}, refresh=True)
    library.readable(allowed=True)
    try:
        report = json.loads(library.run("verify", "--sink", "routed", "--json", "--wait", "60", ok=(2,)))
        (view,) = report["sinks"][0]["views"]
        assert [len(view[kind]) for kind in ("missing", "extra", "changed")] == [1, 1, 0]
        library.run("verify", "--sink", "routed", "--repair", "--wait", "60", ok=(0, 2))
        found = json.loads(library.run("explain", "routed", lost, "--expected", "--json"))
        assert found["held"]["document"] == truth[lost] and found["expected"]["differences"] == []
    finally:
        library.readable(allowed=False)
    library.settle()
    library.assert_equal("--sink", "routed", seconds=60)


def test_a_rebuild_keeps_the_routing_and_a_column_that_may_change_is_refused(library: Library) -> None:
    library.readable(allowed=True)
    library.run("rebuild", "routed", "--auto")
    library.readable(allowed=False)
    truth = library.settle()["copy"]
    with Elasticsearch(library.stack.endpoints.elasticsearch_url) as client:
        assert list(client.indices.get_alias(name=library.view("copy"))) == [f"{library.view('copy')}_g2"]
        key = min(truth)
        assert client.get(index=library.view("copy"), id=key, routing=truth[key]["isbn"])["_source"] == truth[key]
    good = library.file.read_text()
    try:
        library.file.write_text(good.replace("routing: isbn", "routing: state"))
        for verb in (("check",), ("plan",), ("rebuild", "routed")):
            said = _said(library, *verb)
            assert "sinks.routed.routing: view" in said and "state is not of it" in said, said
    finally:
        library.file.write_text(good)


def test_explain_names_the_row_that_a_unique_value_reaches(library: Library) -> None:
    truth = library.settle()
    key, loan = next((key, one) for key, one in truth["loan"].items() if one["book"] and one["stands"])
    library.readable(allowed=True)
    found = json.loads(library.run("explain", "cache", key, "--view", library.view("loan"), "--expected", "--json"))
    library.readable(allowed=False)
    rows_of = {row["path"]: (row["key"], row["state"]) for row in found["rows"]}
    assert rows_of[f"{library.view('loan')}.book"] == (str(loan["book"]["id"]), "shown")
    assert rows_of[f"{library.view('loan')}.stands"] == (str(loan["stands"]["id"]), "shown")
    assert found["expected"]["differences"] == [] and found["row_store"]["equal"] and found["expected"]["document"]


@pytest.mark.parametrize(
    ("column", "why"),
    [("slug", "live_slug makes no key of (slug): it is partial (WHERE (title <> ''::text))"),
     ("title", "lower_title makes no key of (title): it is over an expression (btree (lower(title)))"),
     ("shelf", "name a whole key: (place, shelf) or {…: id}")],
)  # fmt: skip
def test_what_is_no_key_is_refused_by_name(library: Library, column: str, why: str) -> None:
    good = library.file.read_text()
    try:
        document = YAML(typ="safe").load(good)
        left = "shelf" if column == "shelf" else "book"
        document["views"][library.view("loan")]["refs"]["book"]["on"] = {left: column}
        with library.file.open("w") as out:
            YAML().dump(document, out)
        line = next(n for n, text in enumerate(library.file.read_text().splitlines(), 1) if f"{left}: {column}" in text)
        for verb in (("check",), ("plan",), ("rebuild", "cache")):
            said = _said(library, *verb)
            assert why in said, said
            assert f"{Path(library.file).name}:{line}" in said or f"{Path(library.file).name}:{line - 1}" in said, said
    finally:
        library.file.write_text(good)


def _said(library: Library, verb: str, *options: str) -> str:
    """What a verb says that reads the file as it is now; a generation that is there goes on as it was defined."""
    done = library._call(verb, options)
    assert done.returncode in (1, 2), f"{done.stdout}\n{done.stderr}"
    return " ".join((done.stdout + done.stderr).split())
