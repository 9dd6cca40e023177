"""Joined views against a catalogue: the tree that comes out, and what is refused, with its place, reason and way out."""

# ruff: noqa: E501 - tables of views and messages

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, PipelineFileError
from cdc.join.tree import Order
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline, loads
from cdc.resolve.views import resolve_view, resolve_views, view_tables
from cdc.view import View
from sinks.configure import sink_config
from tests.support.join_cases import CATALOGUE, FILE, pipeline, resolve, said

# -- what comes out ----------------------------------------------------------------------------------------------------


def test_the_flight_card() -> None:
    view = resolve(
        "flights",
        "refs: {airline: {table: airlines, on: {carrier: carrier}}, "
        "origin: {table: airports, on: {origin: faa}, columns: [{name: title}], refs: {country: {table: countries, on: {country: id}}}}}",
    )
    airline, origin = view.tree.refs
    assert (airline.kind, airline.table.name, airline.on) == ("ref", "airlines", (("carrier", "carrier"),))
    assert airline.columns == (("carrier", "carrier"), ("name", "name"), ("parent", "parent"))
    assert origin.columns == (("name", "title"),)
    assert origin.refs[0].on == (("country", "id"),)
    # The row `origin` takes the place of the column that names it; columns that Debezium can't deliver are left out.
    assert not {"origin", "area"} & {out for _, out in view.columns}
    assert ("dest", "dest") in view.columns
    assert view.tree.columns == view.columns
    assert "area" not in view.tree.table.by_name
    assert set(view_tables(view)) == {"public.flights", "public.airlines", "public.airports", "public.countries"}


def test_edges_by_a_unique_key_in_its_order() -> None:
    view = resolve(
        "loans",
        "refs: {b: {table: books, on: {book: isbn}}, at: {table: books, on: {at_place: place, at_shelf: shelf},"
        " children: {loans: {table: loans, on: {isbn: book}}},"
        " aggregates: {n: {table: loans, on: {isbn: book}, value: count(*)},"
        " m: {table: loans, on: {id: at_shelf}, value: count(*)}}}}",
    )
    book, at = view.tree.refs
    assert book.on == (("book", "isbn"),)
    assert at.on == (("at_shelf", "shelf"), ("at_place", "place"))
    assert at.children[0].on == (("isbn", "book"),)
    layout = view.layout
    assert layout.tables["public.books"].routes == ("isbn", "shelf", "place")
    assert layout.unique(book.table, ("id",)) is None
    found = layout.unique(book.table, ("shelf", "place"))
    assert found is not None and (found.table, found.columns) == ("public.books", ("shelf", "place"))
    assert [(group.foreign_key, group.named) for group in layout.groups] == [
        (("book",), ("isbn",)),
        (("at_shelf",), ("id",)),
    ]


def test_values_ones_and_what_hidden_rows_lead_to() -> None:
    view = resolve(
        "posts",
        "children: {tagged: {table: posts_tags, on: {id: post}, hide: true, order_by: tag,"
        " refs: {tags: {table: tags, on: {tag: id}, value: word}}},"
        " cover: {table: lines, on: {id: line}, one: true, columns: [title]},"
        " ages: {table: staff, on: {id: boss}, value: id}}",
    )
    assert [(one.name, one.many) for one in view.tree.shown] == [("tags", True), ("cover", False), ("ages", True)]
    (tagged, cover, ages), (tags,) = view.tree.children, view.tree.children[0].refs
    assert (tagged.hide, tagged.columns, tags.value, tags.columns) == (True, (), "word", (("word", "word"),))
    assert (cover.one, cover.many, ages.value) == (True, False, "id")
    kinds = dict(view.spark_schema())
    assert (kinds["tags"], kinds["ages"]) == ("array<string>", "array<int>")
    assert kinds["cover"].startswith("struct<")
    mapping = view.elasticsearch_mapping()
    assert mapping["ages"] == {"type": "integer"}
    assert mapping["tags"] == mapping["cover"]["properties"]["title"]
    assert view.tree.leading(("tagged", "tags")) == ("tags",)
    wrong = said("posts", "children: {ages: {table: staff, on: {id: boss}, value: idd}}")
    assert "views.v.children.ages.value: public.staff has no column idd" in wrong


def renamed(called: str, old: str, new: str) -> Catalogue:
    """The catalogue after ALTER TABLE … RENAME COLUMN."""

    def now(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    was = CATALOGUE.tables[f"public.{called}"]
    columns = tuple(replace(column, name=new) if column.name == old else column for column in was.columns)
    keys = tuple(now(key) for key in was.unique_keys)
    table = replace(was, columns=columns, primary_key=now(was.primary_key), unique_keys=keys, renamed=((old, new),))
    return Catalogue({**CATALOGUE.tables, table.qualified: table})


def test_a_value_goes_on_after_its_column_was_renamed() -> None:
    joins = "children: {tagged: {table: posts_tags, on: {id: post}, value: tag}}"
    was, view = (
        resolve("posts", joins),
        resolve_view(pipeline("posts", joins), renamed("posts_tags", "tag", "label"), "v"),
    )
    assert isinstance(view, JoinedView)
    assert view.tree.children[0].value == "label"
    assert view.elasticsearch_mapping() == was.elasticsearch_mapping()
    assert view.spark_schema() == was.spark_schema()


def test_a_join_by_a_column_that_was_renamed_says_how_it_is_called_now() -> None:
    joins = "children: {tagged: {table: posts_tags, on: {id: post}, value: tag}}"
    with pytest.raises(PipelineFileError, match="has no column post any more: it was renamed to article") as wrong:
        resolve_view(pipeline("posts", joins), renamed("posts_tags", "post", "article"), "v")
    assert "what to do: write article" in str(wrong.value)


def test_what_is_stored_of_a_unique_key_is_described_by_its_present_names() -> None:
    """Rows of one, of a hidden level and of aggregates that hang on a unique key are not stored anew for a rename."""
    joins = (
        "children: {first: {table: loans, on: {isbn: book}, one: true},"
        " on_shelf: {table: loans, on: {shelf: at_shelf, place: at_place}, hide: true,"
        " refs: {others: {table: books, on: {book: isbn}, value: title}}}}\n"
        "    aggregates: {n: {table: loans, on: {isbn: book}, value: count(*)}}"
    )
    was, view = resolve("books", joins), resolve_view(pipeline("books", joins), renamed("books", "title", "name"), "v")
    assert isinstance(view, JoinedView)
    layout = view.layout
    assert ("public.books", ("isbn",)) in layout.indexes and ("public.books", ("shelf", "place")) in layout.indexes
    assert layout.renamed(layout.description()) == layout.description()
    assert was.layout.description() != layout.description()
    assert layout.renamed(was.layout.description()) == layout.description()


def test_what_a_struct_in_an_expression_holds() -> None:
    """All that the view uses of the table, as docs/views.md says: the key, and what another ref to it picks."""
    view = resolve(
        "flights",
        "refs: {origin: {table: airports, on: {origin: faa}, columns: [{name: title}]},"
        " dest: {table: airports, on: {dest: faa}, columns: [country]}}",
    )
    kinds = dict(view.spark_schema())
    assert kinds["origin"] == kinds["dest"] == "struct<`faa`:string,`name`:string,`country`:int>"


def test_the_plane_card() -> None:
    view = resolve(
        "planes",
        "children: {flights: {table: flights, on: {tailnum: tailnum}, order_by: 'time_hour desc, id', limit: 50}}\n"
        "    aggregates: {n: {table: flights, on: {tailnum: tailnum}, value: 'COUNT(*)'},"
        " miles: {table: flights, on: {tailnum: tailnum}, value: sum(Distance), where: NOT cancelled},"
        " far: {table: flights, on: {tailnum: tailnum}, value: max(distance * 2)},"
        " ends: {table: flights, on: {tailnum: tailnum}, value: count(distinct dest)}}",
    )
    (flights,) = view.tree.children
    assert (flights.kind, flights.limit) == ("child", 50)
    assert flights.order_by == (Order("time_hour", True, False), Order("id", False, True))
    parsed = {a.name: (a.function, a.distinct, a.value, a.where) for a in view.tree.aggregates}
    assert parsed == {
        "n": ("count", False, None, None),
        "miles": ("sum", False, "distance", "NOT cancelled"),
        "far": ("max", False, "distance * 2", None),
        "ends": ("count", True, "dest", None),
    }
    assert view.tree.aggregates[1].foreign_key == ("tailnum",)


def test_composite_keys_are_put_into_the_key_s_order() -> None:
    view = resolve("lines", "children: {returns: {table: returns, on: {line: line_ref, order_id: order_ref}}}")
    assert view.tree.children[0].on == (("order_id", "order_ref"), ("line", "line_ref"))
    back = resolve("returns", "refs: {line: {table: lines, on: {line_ref: line, order_ref: order_id}}}")
    assert back.tree.refs[0].on == (("order_ref", "order_id"), ("line_ref", "line"))


def test_a_table_may_refer_to_itself_and_stand_at_several_places() -> None:
    view = resolve(
        "staff",
        "refs: {manager: {table: staff, on: {boss: id}, refs: {manager: {table: staff, on: {boss: id}}}}}\n"
        "    children: {team: {table: staff, on: {id: boss}}}",
    )
    assert [node.table.name for _, node in view.tree.walk()] == ["staff"] * 4
    assert list(view_tables(view)) == ["public.staff"]


def test_many_to_many_goes_through_the_table_between() -> None:
    view = resolve(
        "posts",
        "children: {tags: {table: posts_tags, on: {id: post}, columns: [tag], refs: {tag_row: {table: tags, on: {tag: id}}}}}",
    )
    assert [node.table.name for _, node in view.tree.walk()] == ["posts", "posts_tags", "tags"]


def test_a_view_of_one_table_stays_one() -> None:
    view = resolve_view(pipeline("planes", "refs: {}\n    children:"), CATALOGUE, "v")
    assert type(view) is View
    assert list(view_tables(view)) == ["public.planes"]


@pytest.mark.parametrize("more", ["", ", order_by: said, limit: 3", ", one: true"])
def test_children_whose_key_is_an_array_can_all_be_sorted(more: str) -> None:
    view = resolve("posts", f"children: {{c: {{table: comments, on: {{id: post}}{more}}}}}")
    assert view.tree.children[0].table.primary_key == ("path",)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "joins", "messages"),
    [
        ("flights", "refs: {a: {table: airline, on: {carrier: carrier}}}", ["p.yaml:10:23: views.v.refs.a.table: airline is not a captured table", "did you mean airlines", "? If not, add it to source.tables"]),
        ("flights", "refs: {a: {table: log, on: {id: flight}}}", ["p.yaml:10:23: views.v.refs.a.table: public.log has no primary key", "ALTER TABLE public.log ADD PRIMARY KEY"]),
        ("flights", "refs: {a: {table: airlines, on: {carier: carrier}}}", ["p.yaml:10:46: views.v.refs.a.on.carier: public.flights has no column carier", "did you mean carrier"]),
        ("flights", "refs: {a: {table: airlines, on: {carrier: carier}}}", ["views.v.refs.a.on.carrier: public.airlines has no column carier", "did you mean carrier"]),
        ("flights", "refs: {a: {table: airports, on: {faa: origin}}}", ["views.v.refs.a.on.faa: public.flights has no column faa", "the sides look swapped: write on: {origin: faa}"]),
        ("flights", "refs: {a: {table: airlines, on: {carrier: name}}}", ["p.yaml:10:33: views.v.refs.a.on: a reference reaches one row by a whole key, and (name) is none of public.airlines: its primary key is (carrier)", "join by a key: {…: carrier}; (name) is none, as long as public.airlines has no unique constraint over it"]),
        ("returns", "refs: {a: {table: lines, on: {order_ref: order_id}}}", ["(order_id) is none of public.lines: its primary key is (order_id, line)", "name the key: {…: order_id, …: line}"]),
        ("planes", "refs: {a: {table: flights, on: {tailnum: tailnum}}}", ["(tailnum) is none of public.flights: its primary key is (id)", "if rows of flights point at this row, put it under `children`"]),
        ("staff", "refs: {a: {table: staff, on: {id: boss}}}", ["(boss) is none of public.staff: its primary key is (id)", "the sides look swapped: write on: {boss: id}"]),
        ("flights", "children: {a: {table: airlines, on: {carrier: carrier}}}", ["p.yaml:10:37: views.v.children.a.on: rows that point at this row hold a whole key of it, and (carrier) is none of public.flights: its primary key is (id)", "if this row points at one of airlines, put it under `refs`"]),
        ("staff", "children: {a: {table: staff, on: {boss: id}}}", ["(boss) is none of public.staff: its primary key is (id)", "the sides look swapped: write on: {id: boss}"]),
        ("lines", "aggregates: {n: {table: returns, on: {order_id: order_ref}, value: count(*)}}", ["views.v.aggregates.n.on: ", "(order_id) is none of public.lines: its primary key is (order_id, line)", "name the key: {order_id: …, line: …}"]),
        ("loans", "refs: {b: {table: books, on: {titled: slug}}}", ["p.yaml:10:30: views.v.refs.b.on: a reference reaches one row by a whole key, and (slug) is none of public.books: its primary key is (id), other unique ones are (isbn), (shelf, place)", "books_slug_live makes no key of (slug): it is partial (WHERE (lang IS NOT NULL)); make a unique constraint over all rows"]),
        ("loans", "refs: {b: {table: books, on: {titled: title}}}", ["books_title_lower makes no key of (title): it is over an expression (btree (lower(title)))"]),
        ("loans", "refs: {b: {table: books, on: {at_shelf: shelf}}}", ["(shelf) is none of public.books", "name a whole key: (shelf, place) or {…: id}"]),
        ("books", "children: {l: {table: loans, on: {title: titled}}}", ["views.v.children.l.on: rows that point at this row hold a whole key of it, and (title) is none of public.books", "books_title_lower makes no key"]),
        ("books", "refs: {l: {table: loans, on: {isbn: book}}}", ["(book) is none of public.loans", "if rows of loans point at this row, put it under `children`"]),
        ("planes", "refs: {a: {table: airlines, on: {year: carrier}}}", ["public.planes.year and public.airlines.carrier can't be joined: year is int4, carrier is text", "join by columns of one type"]),
        ("flights", "refs: {a: {table: airlines, on: {airline_code: carrier}}}", ["views.v.refs.a.on.airline_code: ", "'A' and 'a' are one citext"]),
        ("flights", "refs: {a: {table: airlines, on: {labels: carrier}}}", ["labels is an array (text[])"]),
        ("flights", "refs: {a: {table: airlines, on: {area: carrier}}}", ["views.v.refs.a.on.area: public.flights.area can't be in a view: Debezium gives a polygon"]),
        ("flights", "refs: {a: {table: airlines, on: {carrier: carrier}, columns: [nme]}}", ["p.yaml:10:67: views.v.refs.a.columns: public.airlines has no column nme", "did you mean name"]),
        ("planes", "children: {f: {table: flights, on: {tailnum: tailnum}, columns: [area]}}", ["views.v.children.f.columns: public.flights.area can't be in a view"]),
        ("planes", "children: {f: {table: flights, on: {tailnum: tailnum}, order_by: time_huor}}", ["p.yaml:10:70: views.v.children.f.order_by: public.flights has no column time_huor", "did you mean time_hour"]),
        ("planes", "children: {f: {table: flights, on: {tailnum: tailnum}, order_by: notes}}", ["rows of public.flights can't be sorted: notes is json, which has no order here"]),
        ("planes", "children: {f: {table: flights, on: {tailnum: tailnum}, order_by: labels}}", ["labels is an array (text[])"]),
        ("posts", "children: {c: {table: comments, on: {id: post}, limit: 3}}", ["p.yaml:10:60: views.v.children.c.limit: the first rows of public.comments can't be found by its key: path is an array (int4[])", "sort them by a number, a text or a moment (`order_by`)"]),
        ("posts", "children: {c: {table: marks, on: {id: post}, order_by: post, limit: 3}}", ["views.v.children.c.limit: the first rows of public.marks can't be found by its key: about is jsonb"]),
        ("planes", "aggregates: {n: {table: flights, on: {tailnum: tailnum}, value: sum(distence)}}", ["p.yaml:10:69: views.v.aggregates.n.value: public.flights has no column distence", "did you mean distance"]),
        ("planes", "aggregates: {n: {table: flights, on: {tailnum: tailnum}, value: sum(origin)}}", ["sum(origin) over public.flights: origin is text, no number"]),
        ("planes", "aggregates: {n: {table: flights, on: {tailnum: tailnum}, value: avg(time_hour)}}", ["avg(time_hour) over public.flights: time_hour is timestamptz, no number"]),
        ("planes", "aggregates: {n: {table: flights, on: {tailnum: tailnum}, value: max(notes)}}", ["max(notes) over public.flights: notes is json"]),
        ("planes", "aggregates: {n: {table: flights, on: {tailnum: tailnum}, value: min(labels)}}", ["labels is an array"]),
        ("planes", "aggregates: {n: {table: flights, on: {tailnum: tailnum}, value: count(distinct notes)}}", ["count(distinct notes) over public.flights: notes is json, whose values can't be told apart"]),
        ("planes", "columns: [tailnum, {year: flights}]\n    children: {flights: {table: flights, on: {tailnum: tailnum}}}", ["'flights' is the name of one of views.v.columns too"]),
        ("planes", "children: {f: {table: flights, on: {tailnum: tailnum}}}\n    fields: {maker: upper(tailnum)}", ["view v gives two fields the name maker"]),
        ("planes", "children: {f: {table: flights, on: {tailnum: tailnum}, refs: {p: {table: planes, on: {plane_no: tailnum}}}}}", ["views.v.children.f.refs.p.on.plane_no: public.flights.plane_no and public.planes.tailnum can't be joined"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(root: str, joins: str, messages: list[str]) -> None:
    found = said(root, joins)
    assert found.startswith("p.yaml:10:") or found.startswith("p.yaml:11:") or found.startswith("p.yaml:8:")
    for message in messages:
        assert message in found, found
    assert "what to do: " in found


@pytest.mark.parametrize(
    ("root", "column", "message"),
    [
        ("lines", "title", "view v has the key (order_id, line), and title is not of it"),
        ("lines", "titel", "view v has the key (order_id, line), and titel is not of it"),
        ("planes", "tailnum", "tailnum is the whole key of view v, by which documents are placed anyway"),
    ],
)
def test_a_routing_that_could_change_or_says_nothing_is_refused(root: str, column: str, message: str) -> None:
    index = f'{{type: elasticsearch, url: "http://h:1", view: v, routing: {column}}}'
    text = FILE.replace('{type: redis, url: "redis://h", view: v}', index)
    made = loads(text.replace("ROOT", root).replace("JOINS", "where: 'true'"), "p.yaml", {})
    with pytest.raises(PipelineFileError) as caught:
        resolve_views(made, CATALOGUE, "s")
    assert f"p.yaml:12:65: sinks.s.routing: {message}" in str(caught.value)
    assert ("at its old place" in str(caught.value)) == (column == "title")


def test_the_place_of_the_routing_in_the_key() -> None:
    index = '{type: elasticsearch, url: "http://h:1", view: v, routing: line}'
    text = FILE.replace('{type: redis, url: "redis://h", view: v}', index)
    made = loads(text.replace("ROOT", "lines").replace("JOINS", "key: [line, order_id]"), "p.yaml", {})
    config = sink_config("s", made.sinks["s"], resolve_views(made, CATALOGUE, "s"), {})
    assert config["targets"]["v"]["routing"] == {"at": 0, "of": 2}


def in_warehouse(root: str, joins: str) -> Pipeline:
    raw = pipeline(root, joins).model_dump()
    raw["sinks"]["s"] = {"type": "iceberg", "catalog_uri": "c", "warehouse": "w", "namespace": "n", "view": "v"}
    return Pipeline.model_validate(raw)


def test_a_warehouse_takes_joined_views() -> None:
    made = in_warehouse("planes", "children: {f: {table: flights, on: {tailnum: tailnum}}}")
    (view,) = resolve_views(made, CATALOGUE, "s")
    assert isinstance(view, JoinedView)


@pytest.mark.parametrize(
    ("joins", "message"),
    [
        (
            "children: {TAILNUM: {table: flights, on: {tailnum: tailnum}}}",
            "tailnum and TAILNUM are one column to Spark",
        ),
        (
            "children: {f: {table: flights, on: {tailnum: tailnum}, columns: [{tailnum: a}, {carrier: A}]}}",
            "a and A of f are one column to Spark",
        ),
        ("children: {_pos: {table: flights, on: {tailnum: tailnum}}}", "Iceberg has a column _pos of its own"),
        (
            "columns: [year]\n    aggregates: {n: {table: flights, on: {tailnum: tailnum}, value: count(*)}}",
            "key column",
        ),
    ],
)
def test_what_a_table_of_a_joined_view_can_not_have(joins: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_views(in_warehouse("planes", joins), CATALOGUE, "s")
    assert message in str(caught.value)
