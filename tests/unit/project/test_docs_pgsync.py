"""docs/from-pgsync.md shows a file that loads, and the document that it makes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import PipelineFileError
from cdc.pipeline import loads
from cdc.resolve.views import resolve_view
from operations.testing.files import read_file
from operations.testing.report import report_of
from spark.reading.expressions import entry_schema

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "from-pgsync.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Rows that make the page's document, as a file of `headwater test`.
ROWS = """\
version: 1
tables:
  city: {columns: {id: int, name: text}, key: [id]}
  publisher: {columns: {id: int, name: text, is_active: bool, country: text}, key: [id]}
  author: {columns: {id: int, name: text, city_id: int}, key: [id]}
  ref.language: {columns: {id: int, name: text}, key: [id]}
  book: {columns: {isbn: text, title: text, price: "numeric(10,2)", publisher_id: int}, key: [isbn]}
  book_author: {columns: {id: int, book_isbn: text, author_id: int}, key: [id]}
  book_language: {columns: {book_isbn: text, language_id: int}, key: [book_isbn, language_id]}
  rating: {columns: {id: int, book_isbn: text, stars: int}, key: [id]}
tests:
  - name: the page's document
    given:
      city: [{id: 1, name: Mdina}]
      publisher: [{id: 7, name: Seven, is_active: true, country: MT}]
      author: [{id: 1, name: Ann, city_id: 1}, {id: 2, name: Bob}]
      ref.language: [{id: 1, name: Maltese}, {id: 2, name: English}]
      book: [{isbn: "978-1", title: Boats, price: 12.5, publisher_id: 7}]
      book_author: [{id: 1, book_isbn: "978-1", author_id: 2}, {id: 2, book_isbn: "978-1", author_id: 1}]
      book_language: [{book_isbn: "978-1", language_id: 1}, {book_isbn: "978-1", language_id: 2}]
      rating: [{id: 1, book_isbn: "978-1", stars: 5}, {id: 2, book_isbn: "978-1", stars: 4}]
    expect:
      book: [{key: "978-1", document: DOCUMENT}]
"""


ENV = {
    "HEADWATER_SOURCE_PASSWORD": "secret",
    "HEADWATER_SETUP_PASSWORD": "secret",
    "HEADWATER_KAFKA": "h:9092",
    "HEADWATER_CONNECT": "http://h:8083",
    "HEADWATER_ELASTICSEARCH": "http://h:9200",
    "HEADWATER_REDIS_STORE": "redis://h:6379",
}
FIELDS = re.compile(r"^    fields:\n(?:      .*\n)+", re.MULTILINE)


def block(text: str, kind: str, number: int = 0) -> str:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)[number]


def file(parts: str) -> str:
    """The README's file with these parts in the place of its views and sinks."""
    head = block(README, "yaml").partition("views:\n")[0]
    return re.sub(r"tables: .*", "tables: [public.*, ref.*]", head) + parts


def view(text: str) -> str:
    """A file with a view of books that has only this."""
    head, _, rest = block(PAGE, "yaml").partition("    columns:")
    return file(f"{head}    {text}\nsinks:{rest.partition('sinks:')[2]}")


def rows_making(folder: Path, document: Any) -> Path:
    path = folder / "book.yaml"
    path.write_text(ROWS.replace("DOCUMENT", json.dumps(document)))
    return path


def test_the_pages_file_makes_the_pages_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it but ``fields``, which Spark computes."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    text, document = file(block(PAGE, "yaml")), json.loads(block(PAGE, "json", 1))
    computed = list(loads(text, "p.yaml", ENV).views["book"].fields)
    assert list(document)[-len(computed) :] == computed
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(FIELDS.sub("", text))
    shown = {name: value for name, value in document.items() if name not in computed}
    report = report_of(pipeline, [rows_making(tmp_path, shown)], "", lambda _: None)
    assert report["passed"] == 1, report


def test_an_expression_sees_a_joined_column_that_columns_leaves_out(tmp_path: Path) -> None:
    """As the page, docs/views.md and the key's own text say."""
    pipeline = loads(file(block(PAGE, "yaml")), "p.yaml", ENV)
    catalogue, _ = read_file(rows_making(tmp_path, {}), pipeline)
    rows = entry_schema(resolve_view(pipeline, catalogue, "book"))
    [publisher] = re.findall(r"`publisher` struct<(.*?)>", rows, flags=re.IGNORECASE)
    assert "country" in publisher and "is_active" not in publisher


def test_the_pages_document_has_all_that_its_schema_asks_for() -> None:
    [schema] = json.loads(block(PAGE, "json"))
    labels = [child.get("label", child["table"]) for child in schema["nodes"]["children"]]
    names = list(json.loads(block(PAGE, "json", 1)))
    assert [name for name in names if name in labels] == labels
    assert {"book_isbn", "book_title", "price", "origin", "label"} < set(names)


@pytest.mark.parametrize(
    ("form", "refused"),
    [
        ("refs: {p: {table: publisher, on: {publisher_id: id}}}", ""),
        ("children: {r: {table: rating, on: {isbn: book_isbn}, one: true}}", ""),
        ("children: {r: {table: rating, on: {isbn: book_isbn}, value: stars}}", ""),
        ("""fields: {isbn: "replace(isbn, '-', '')"}\n    columns: [title]""", ""),
        ("""fields: {pages: "get_json_object(attrs, '$.pages')"}""", ""),
        ("refs: {p: {table: publisher, on: {publisher_id: id}, fields: {x: id}}}", "unknown key 'fields'"),
        ("aggregates: {n: {table: rating, on: {isbn: book_isbn}, value: count(*), hide: true}}", "unknown key 'hide'"),
    ],
)  # fmt: skip
def test_the_pages_table_says_what_is_possible_and_what_is_not(form: str, refused: str) -> None:
    text = view(form)
    if not refused:
        assert loads(text, "p.yaml", ENV).views["book"].root == "book"
        return
    with pytest.raises(PipelineFileError, match=re.escape(refused)):
        loads(text, "p.yaml", ENV)
