"""The classic examples of pgsync as tables, views and rows of our own; the largest is tests/support/written_book.py."""

from __future__ import annotations

from typing import Any, NamedTuple


class Example(NamedTuple):
    """An example: its tables, its view, some rows, and a document that they make."""

    tables: str
    view: str
    rows: tuple[tuple[str, dict[str, Any]], ...]
    key: str
    document: dict[str, Any]


def rows(**of: list[dict[str, Any]]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Table -> its rows, one after the other."""
    return tuple((table, row) for table, found in of.items() for row in found)


EXAMPLES = {
    # A person's one booking, with where it is and what was thought of it; columns are renamed, a host is an address.
    "airbnb": Example(
        """
        user: id, email text
        host: id, email text
        country: id, name text, country_code text
        city: id, name text, country_id -> country
        place: id, host_id -> host, address text, city_id -> city
        booking: id, user_id -> user unique, place_id -> place, start_date text, price_per_night float8
        review: id, booking_id -> booking unique, rating, review_body text
        """,
        """
root: user
children:
  booking:
    table: booking
    on: {id: user_id}
    one: true
    columns: [id, {start_date: from_date}, {price_per_night: nightly_price}]
    refs:
      place:
        table: place
        on: {place_id: id}
        columns: [id, address]
        refs:
          city:
            table: city
            on: {city_id: id}
            columns: [name]
            refs: {country: {table: country, on: {country_id: id}}}
          host: {table: host, on: {host_id: id}, value: email}
    children:
      review: {table: review, on: {id: booking_id}, one: true, columns: [rating, review_body]}
""",
        rows(
            user=[{"id": 1, "email": "ann@a"}, {"id": 2, "email": "bob@a"}],
            host=[{"id": 3, "email": "host@h"}],
            country=[{"id": 1, "name": "France", "country_code": "FR"}],
            city=[{"id": 1, "name": "Nice", "country_id": 1}],
            place=[{"id": 9, "host_id": 3, "address": "by the sea", "city_id": 1}],
            booking=[{"id": 5, "user_id": 1, "place_id": 9, "start_date": "2026-05-01", "price_per_night": 80.5}],
            review=[{"id": 1, "booking_id": 5, "rating": 4, "review_body": "blue"}],
        ),
        "1",
        {
            "id": 1,
            "email": "ann@a",
            "booking": {
                "id": 5,
                "from_date": "2026-05-01",
                "nightly_price": 80.5,
                "place": {
                    "id": 9,
                    "address": "by the sea",
                    "city": {"name": "Nice", "country": {"id": 1, "name": "France", "country_code": "FR"}},
                    "host": "host@h",
                },
                "review": {"rating": 4, "review_body": "blue"},
            },
        },
    ),
    # Children through a table between, and theirs, and theirs.
    "ancestry": Example(
        """
        parent: id, name text
        surrogate: id, name text, parent_id -> parent
        child: id, name text, parent_id -> surrogate
        grand_child: id, name text, parent_id -> child
        great_grand_child: id, name text, parent_id -> grand_child
        """,
        """
root: parent
children:
  surrogates:
    table: surrogate
    on: {id: parent_id}
    hide: true
    children:
      children:
        table: child
        on: {id: parent_id}
        columns: [name]
        children:
          grand_children:
            table: grand_child
            on: {id: parent_id}
            columns: [name]
            children: {great_grand_children: {table: great_grand_child, on: {id: parent_id}, columns: [name]}}
""",
        rows(
            parent=[{"id": 1, "name": "p"}],
            surrogate=[{"id": 2, "parent_id": 1}, {"id": 1, "parent_id": 1}],
            child=[
                {"id": 1, "name": "second", "parent_id": 2},
                {"id": 8, "name": "first", "parent_id": 1},
                {"id": 9, "name": "third", "parent_id": 2},
            ],
            grand_child=[{"id": 1, "name": "g", "parent_id": 9}],
            great_grand_child=[{"id": 1, "name": "gg", "parent_id": 1}],
        ),
        "1",
        {
            "id": 1,
            "name": "p",
            "children": [
                {"name": "first", "grand_children": []},
                {"name": "second", "grand_children": []},
                {"name": "third", "grand_children": [{"name": "g", "great_grand_children": [{"name": "gg"}]}]},
            ],
        },
    ),
    # A table below itself, twice.
    "node": Example(
        "node: id, name text, node_id -> node unique",
        """
root: node
children:
  child:
    table: node
    on: {id: node_id}
    one: true
    children: {grand_child: {table: node, on: {id: node_id}, one: true}}
""",
        rows(node=[{"id": 1, "name": "a"}, {"id": 2, "name": "b", "node_id": 1}, {"id": 3, "name": "c", "node_id": 2}]),
        "1",
        {
            "id": 1,
            "name": "a",
            "node_id": None,
            "child": {
                "id": 2,
                "name": "b",
                "node_id": 1,
                "grand_child": {"id": 3, "name": "c", "node_id": 2},
            },
        },
    ),
    # Keys of two columns, and junction tables whose keys are both foreign keys; of one of these there is one row.
    "quiz": Example(
        """
        question: id, uid text | text text
        answer: id, uid text | text text
        possible_answer: question_id+question_uid=text -> question, answer_id+answer_uid=text -> answer |
        real_answer: question_id+question_uid=text -> question | answer_id+answer_uid=text -> answer
        """,
        """
root: question
columns: [id, text]
children:
  possible:
    table: possible_answer
    on: {id: question_id, uid: question_uid}
    hide: true
    refs: {possible_answers: {table: answer, on: {answer_id: id, answer_uid: uid}, columns: [id, text]}}
  real:
    table: real_answer
    on: {id: question_id, uid: question_uid}
    one: true
    hide: true
    refs: {real_answer: {table: answer, on: {answer_id: id, answer_uid: uid}, columns: [id, text]}}
""",
        rows(
            question=[{"id": 1, "uid": "k1|", "text": "how many?"}],
            answer=[{"id": n, "uid": f"k{n}|", "text": str(n)} for n in (1, 2)],
            possible_answer=[
                {"question_id": 1, "question_uid": "k1|", "answer_id": n, "answer_uid": f"k{n}|"} for n in (2, 1)
            ],
            real_answer=[{"question_id": 1, "question_uid": "k1|", "answer_id": 2, "answer_uid": "k2|"}],
        ),
        "1|k1\\|",
        {
            "id": 1,
            "text": "how many?",
            "possible_answers": [{"id": 1, "text": "1"}, {"id": 2, "text": "2"}],
            "real_answer": {"id": 2, "text": "2"},
        },
    ),
    # Tables of two schemas.
    "schemas": Example(
        """
        above.parent: id, name text
        below.child: id, name text, parent_id -> parent
        """,
        """
root: above.parent
children: {children: {table: below.child, on: {id: parent_id}}}
""",
        rows(parent=[{"id": 1, "name": "p"}], child=[{"id": 1, "name": "c", "parent_id": 1}]),
        "1",
        {"id": 1, "name": "p", "children": [{"id": 1, "name": "c", "parent_id": 1}]},
    ),
    # Junction tables at two levels, and plain words of a third.
    "social": Example(
        """
        user: id, name text, age, gender text
        post: id, title text, slug text
        comment: id, title text, content text
        tag: id, name text
        user_post: id, user_id -> user, post_id -> post
        post_comment: id, post_id -> post, comment_id -> comment
        user_tag: id, user_id -> user, tag_id -> tag
        """,
        """
root: user
columns: [name, age, gender]
children:
  tagged: {table: user_tag, on: {id: user_id}, hide: true, refs: {tags: {table: tag, on: {tag_id: id}, value: name}}}
  wrote:
    table: user_post
    on: {id: user_id}
    hide: true
    refs:
      posts:
        table: post
        on: {post_id: id}
        columns: [slug, title]
        children:
          said:
            table: post_comment
            on: {id: post_id}
            hide: true
            refs: {comments: {table: comment, on: {comment_id: id}, columns: [title, content]}}
""",
        rows(
            user=[{"id": 1, "name": "Ann", "age": 30}],
            tag=[{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}],
            post=[{"id": 1, "title": "One", "slug": "one"}],
            comment=[{"id": 5, "title": "ah", "content": "so"}],
            user_tag=[{"id": 1, "user_id": 1, "tag_id": 2}, {"id": 2, "user_id": 1, "tag_id": 1}],
            user_post=[{"id": 1, "user_id": 1, "post_id": 1}],
            post_comment=[{"id": 1, "post_id": 1, "comment_id": 5}],
        ),
        "1",
        {
            "name": "Ann",
            "age": 30,
            "gender": None,
            "tags": ["blue", "red"],
            "posts": [{"slug": "one", "title": "One", "comments": [{"title": "ah", "content": "so"}]}],
        },
    ),
    # Two kinds of children by a column that is no declared foreign key.
    "starcraft": Example(
        """
        specie: id, name text
        unit: id, name text, details text, specie_id -> specie
        structure: id, name text, details text, specie_id -> specie
        """,
        """
root: specie
columns: [id, name]
children:
  units: {table: unit, on: {id: specie_id}, columns: [name, details]}
  structure: {table: structure, on: {id: specie_id}, columns: [name, details]}
""",
        rows(
            specie=[{"id": 1, "name": "ant"}],
            unit=[{"id": 2, "name": "worker", "specie_id": 1}, {"id": 1, "name": "queen", "specie_id": 1}],
            structure=[{"id": 1, "name": "hill", "details": "high", "specie_id": 1}],
        ),
        "1",
        {
            "id": 1,
            "name": "ant",
            "units": [{"name": "queen", "details": None}, {"name": "worker", "details": None}],
            "structure": [{"name": "hill", "details": "high"}],
        },
    ),
    # The plainest many-to-many.
    "through": Example(
        """
        customer: id, name text
        group: id, group_name text
        customer_group: id, customer_id -> customer, group_id -> group
        """,
        """
root: customer
columns: [id, name]
children:
  member: {table: customer_group, on: {id: customer_id}, hide: true, refs: {groups: {table: group, on: {group_id: id}}}}
""",
        rows(
            customer=[{"id": 1, "name": "Ann"}],
            group=[{"id": 1, "group_name": "g1"}, {"id": 2, "group_name": "g2"}],
            customer_group=[{"id": 1, "customer_id": 1, "group_id": 2}, {"id": 2, "customer_id": 1, "group_id": 1}],
        ),
        "1",
        {"id": 1, "name": "Ann", "groups": [{"id": 2, "group_name": "g2"}, {"id": 1, "group_name": "g1"}]},
    ),
}
