"""The book of pgsync's examples as tables, a view and rows of our own.

A publisher, authors with their places through a junction table, words of languages and subjects through others, and one
rating. There the tables point at a book's isbn beside its id; here it is the key.
"""

from __future__ import annotations

from tests.support.written_examples import Example, rows

BOOK = Example(
    """
        continent: id, name text
        country: id, name text, continent_id -> continent
        city: id, name text, country_id -> country
        publisher: id, name text, is_active bool
        author: id, name text, city_id -> city
        language: id, code text
        subject: id, name text
        book: isbn text | title text, description text, publisher_id -> publisher
        rating: id, book_isbn text -> book unique, value float8
        book_author: id, book_isbn text -> book, author_id -> author
        book_language: id, book_isbn text -> book, language_id -> language
        book_subject: id, book_isbn text -> book, subject_id -> subject
        """,
    """
root: book
columns: [{isbn: book_isbn}, {title: book_title}, description]
refs:
  publisher_label:
    table: publisher
    on: {publisher_id: id}
    columns: [{id: publisher_id}, {name: publisher_name}, is_active]
children:
  book_languages: {table: book_language, on: {isbn: book_isbn}, columns: [book_isbn, language_id]}
  by_author:
    table: book_author
    on: {isbn: book_isbn}
    hide: true
    refs:
      authors:
        table: author
        on: {author_id: id}
        columns: [id, name]
        refs:
          city_label:
            table: city
            on: {city_id: id}
            columns: [name, id]
            refs:
              country_label:
                table: country
                on: {country_id: id}
                columns: [name, id]
                refs: {continent_label: {table: continent, on: {continent_id: id}, columns: [name]}}
  in_language:
    table: book_language
    on: {isbn: book_isbn}
    hide: true
    refs: {languages: {table: language, on: {language_id: id}, value: code}}
  about:
    table: book_subject
    on: {isbn: book_isbn}
    hide: true
    refs: {subjects: {table: subject, on: {subject_id: id}, value: name}}
  ratings: {table: rating, on: {isbn: book_isbn}, one: true, columns: [value]}
""",
    rows(
        continent=[{"id": 1, "name": "Europe"}],
        country=[{"id": 1, "name": "Malta", "continent_id": 1}],
        city=[{"id": 1, "name": "Mdina", "country_id": 1}],
        publisher=[{"id": 7, "name": "Seven", "is_active": True}],
        author=[{"id": 1, "name": "Ann", "city_id": 1}, {"id": 2, "name": "Bob"}],
        language=[{"id": 1, "code": "mt"}, {"id": 2, "code": "en"}, {"id": 3}],
        subject=[{"id": 1, "name": "sea"}],
        book=[{"isbn": "k1|", "title": "Boats", "publisher_id": 7}],
        rating=[{"id": 1, "book_isbn": "k1|", "value": 4.5}],
        book_author=[
            {"id": 1, "book_isbn": "k1|", "author_id": 2},
            {"id": 2, "book_isbn": "k1|", "author_id": 1},
            {"id": 3, "book_isbn": "k1|", "author_id": 99},
        ],
        book_language=[{"id": n, "book_isbn": "k1|", "language_id": to} for n, to in ((1, 2), (2, 1), (3, 3), (4, 2))],
        book_subject=[{"id": 1, "book_isbn": "k1|", "subject_id": 1}],
    ),
    "k1|",
    {
        "book_isbn": "k1|",
        "book_title": "Boats",
        "description": None,
        "publisher_label": {"publisher_id": 7, "publisher_name": "Seven", "is_active": True},
        "book_languages": [{"book_isbn": "k1|", "language_id": to} for to in (2, 1, 3, 2)],
        "authors": [
            {"id": 2, "name": "Bob", "city_label": None},
            {
                "id": 1,
                "name": "Ann",
                "city_label": {
                    "name": "Mdina",
                    "id": 1,
                    "country_label": {"name": "Malta", "id": 1, "continent_label": {"name": "Europe"}},
                },
            },
        ],
        "languages": ["en", "mt", "en"],
        "subjects": ["sea"],
        "ratings": {"value": 4.5},
    },
)
