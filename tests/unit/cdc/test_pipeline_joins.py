"""Views with refs, children and aggregates in the pipeline file: what is taken, what is wrong and where."""

# ruff: noqa: E501 - a table of files and messages

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from cdc.errors import PipelineFileError
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.joins import MAX_DEPTH, standing
from cdc.pipeline.schema import json_schema
from cdc.pipeline.template import template

HEAD = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.flights, public.planes, public.airlines, public.airports, old.planes]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
row_store: {url: "redis://h:6379/1"}
views:
  card:
    root: public.planes
    columns: [tailnum, {year: built}]
    refs:
      maker: {table: airlines, on: {maker: carrier}, columns: [carrier]}
    children:
      flights:
        table: flights
        on: {tailnum: tailnum}
        order_by: "time_hour desc, id"
        limit: 50
        refs: {origin: {table: airports, on: {origin: faa}}}
        children: {stops: {table: flights, on: {id: after}}}
        aggregates: {legs: {table: flights, on: {id: after}, value: "max(leg)"}}
    aggregates:
      miles: {table: flights, on: {tailnum: tailnum}, value: "sum(distance)", where: "NOT cancelled"}
    fields: {late: "miles > 5"}
    where: "year >= 1990"
sinks:
  s: {type: redis, url: "redis://h", view: card}
"""


def good(text: str = HEAD, **env: str) -> Pipeline:
    return loads(text, "p.yaml", env)


def changed(old: str, new: str, text: str = HEAD) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def said(text: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        good(text)
    assert str(caught.value).startswith("p.yaml:")
    return str(caught.value)


def test_a_joined_view_is_read_to_any_depth() -> None:
    view = good().views["card"]
    flights = view.children["flights"]
    assert view.joins == ("refs", "children", "aggregates")
    assert (flights.table, flights.on, flights.limit) == ("flights", {"tailnum": "tailnum"}, 50)
    assert flights.refs["origin"].on == {"origin": "faa"}
    assert flights.aggregates["legs"].value == "max(leg)"
    assert view.aggregates["miles"].where == "NOT cancelled"
    assert view.refs["maker"].picks == (("carrier", "carrier"),)


def test_every_part_has_its_place() -> None:
    pipeline = good()
    path = ("views", "card", "children", "flights")
    assert str(pipeline.locate((*path, "table"))) == "p.yaml:15:16"
    assert str(pipeline.locate((*path, "on", "tailnum"))) == "p.yaml:16:23"
    assert str(pipeline.locate((*path, "refs", "origin"))) == "p.yaml:19:16"


def test_variables_work_below_too() -> None:
    flights = good(changed("limit: 50", "limit: ${LIMIT}"), LIMIT="7").views["card"].children["flights"]
    assert flights.limit == 7


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table: airports", "table: airport", "p.yaml:19:32: views.card.children.flights.refs.origin.table: 'airport' is not in source.tables\n  what to do: did you mean 'airports'"),
        ("table: airlines", "table: planes", "views.card.refs.maker.table: 'planes' may be public.planes or old.planes\n  what to do: write schema.table"),
        ("table: airlines", "tabel: airlines", "unknown key 'tabel' in views.card.refs.maker"),
        ("table: airlines, ", "", "p.yaml:12:7: missing key 'table' in views.card.refs.maker"),
        ("{maker: carrier}", "{}", "p.yaml:12:32: views.card.refs.maker.on: expected at least 1"),
        ("{maker: carrier}", "carrier", "views.card.refs.maker.on: expected a mapping"),
        ("{maker: carrier}", "{maker: 7}", "p.yaml:12:44: views.card.refs.maker.on.maker: expected text, got a whole number"),
        ("{maker: carrier}", "{maker: carrier, boss: carrier}", "p.yaml:12:59: views.card.refs.maker.on: 'carrier' is here a second time"),
        ("      maker:", "      ma ker:", "p.yaml:12:7: views.card.refs: the name (not shown: it is not a plain name) is not allowed: expected 1 to 63 letters"),
        ("columns: [carrier]", "columns: []", "views.card.refs.maker.columns: an empty list picks no column"),
        ("columns: [carrier]", "columns: [carrier, {name: carrier}]", "views.card.refs.maker.columns: two columns are named 'carrier'"),
        ("columns: [carrier]", "columns: [carrier], limit: 3", "unknown key 'limit' in views.card.refs.maker"),
        ("limit: 50", "limit: 0", "p.yaml:18:16: views.card.children.flights.limit: expected at least 1"),
        ("limit: 50", "limit: 10001", "views.card.children.flights.limit: expected at most 10000"),
        ("time_hour desc, id", "time_hour down", "p.yaml:17:19: views.card.children.flights.order_by: part 1: expected asc, desc"),
        ("sum(distance)", "median(distance)", "p.yaml:23:62: views.card.aggregates.miles.value: expected one of count(...), sum(...)"),
        ("max(leg)", "max(leg", "views.card.children.flights.aggregates.legs.value: expected nothing after max(...)"),
        ('value: "sum(distance)", ', "", "missing key 'value' in views.card.aggregates.miles"),
        ("      miles:", "      flights:", "p.yaml:23:7: views.card.aggregates: 'flights' is the name of one of views.card.children too"),
        ("      miles:", "      built:", "views.card.aggregates: 'built' is the name of one of views.card.columns too"),
        ("{late:", "{maker:", "p.yaml:24:21: views.card.fields: 'maker' is the name of one of views.card.refs too"),
        ("{late:", "{built:", "views.card.fields: 'built' is a column of the view too"),
        ("{legs:", "{stops:", "views.card.children.flights.aggregates: 'stops' is the name of one of views.card.children.flights.children too"),
        ("{maker: carrier}, columns: [carrier]", "{maker: carrier}, value: name, columns: [carrier]", "p.yaml:12:67: views.card.refs.maker: one `value` is all that is shown, and here are columns too\n  what to do: leave `value` out for an object"),
        ("limit: 50", "limit: 50\n        value: id", "views.card.children.flights: one `value` is all that is shown, and here are refs too"),
        ("limit: 50", "limit: 50\n        one: true", "p.yaml:18:16: views.card.children.flights: one row at the most, and here is limit; leave it out; the first of several is an array of one"),
        ("limit: 50", "one: true", "p.yaml:17:19: views.card.children.flights: one row at the most, and here is order_by"),
        ("limit: 50", "one: 1", "views.card.children.flights.one: expected true or false"),
        ("limit: 50", "hide: true", "p.yaml:21:9: views.card.children.flights: a hidden row shows nothing of its own, and here are aggregates"),
        ("columns: [carrier]", "hide: true", "p.yaml:12:60: views.card.refs.maker: hidden, and nothing below it is shown"),
        ("columns: [carrier]", "one: true", "unknown key 'one' in views.card.refs.maker"),
        ("columns: [carrier]", "hide: true, refs: {flights: {table: airlines, on: {boss: carrier}}}", "p.yaml:14:7: views.card.children: 'flights' is the name of one of views.card.refs too"),
        ("columns: [carrier]", "hide: true, refs: {built: {table: airlines, on: {boss: carrier}}}", "p.yaml:12:73: views.card.refs.maker.refs: 'built' is the name of one of views.card.columns too"),
        ('row_store: {url: "redis://h:6379/1"}\n', "", "p.yaml:10:5: views.card joins tables, and the file has no row_store"),
        ('"redis://h:6379/1"', '"http://h"', "p.yaml:6:18: row_store.url: expected redis://"),
        ('"redis://h:6379/1"', '"redis://h:6379/1", cluster: true', "row_store: a Redis Cluster has only the database 0"),
        ('"redis://h:6379/1"', '"redis://:pw@h:6379/1", password: x', "row_store: a login in url and one beside it"),
        ('"redis://h:6379/1"', '"redis://h:6379/1", user: x', "row_store.user without row_store.password"),
        ('redis, url: "redis://h", view', 'elasticsearch, url: "http://h:9200", mapping: {a: b}, view', "expected a field's mapping"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(old: str, new: str, message: str) -> None:
    assert message in said(changed(old, new))


def test_names_that_elasticsearch_keeps_for_itself() -> None:
    text = changed('redis, url: "redis://h"', 'elasticsearch, url: "http://h:9200"').replace(
        "      maker:", "      _id:"
    )
    assert "p.yaml:12:7: views.card: the name '_id' belongs to the target of sinks.s itself" in said(text)
    # Below the top of a document it is a name like any other.
    good(text.replace("      _id:", "      maker:").replace("{stops:", "{_id:"))


def test_the_depth_is_bounded() -> None:
    def nested(levels: int) -> str:
        inner = "{table: airlines, on: {boss: carrier}}"
        for _ in range(levels - 1):
            inner = "{table: airlines, on: {boss: carrier}, refs: {up: " + inner + "}}"
        return changed("{table: airlines, on: {maker: carrier}, columns: [carrier]}", inner)

    assert good(nested(MAX_DEPTH)).views["card"].refs["maker"]
    found = said(nested(MAX_DEPTH + 1))
    assert f"nested deeper than {MAX_DEPTH}\n  what to do: make a view of its own" in found
    assert "views.card.refs.maker.refs.up.refs.up." in found
    assert "nested deeper than 40" in said(nested(30))


def test_an_alias_inside_of_what_it_stands_for_is_no_endless_view() -> None:
    text = changed(
        "{table: airlines, on: {maker: carrier}, columns: [carrier]}",
        "&up {table: airlines, on: {boss: carrier}, refs: {boss: *up}}",
    )
    assert said(text).startswith("p.yaml:12:70: an alias inside of what it stands for\n  what to do: write it out")


def test_an_alias_that_does_not_contain_itself_is_fine() -> None:
    text = changed(
        "{table: airlines, on: {maker: carrier}, columns: [carrier]}",
        "&up {table: airlines, on: {maker: carrier}}\n      other: *up",
    )
    refs = good(text).views["card"].refs
    assert refs["maker"] == refs["other"]


def test_nested_content_is_in_the_hash() -> None:
    first = good().spec_hash("s")
    assert first == good(HEAD.replace("redis://h:6379/1", "redis://elsewhere:1/0")).spec_hash("s")
    swapped = (
        changed("{maker: carrier}", "{maker: carrier, a: b}"),
        changed("{maker: carrier}", "{a: b, maker: carrier}"),
    )
    assert len({good(text).spec_hash("s") for text in swapped}) == 1
    changes = [
        ("limit: 50", "limit: 51"),
        ("table: airports", "table: public.airports"),
        ("{origin: faa}", "{dest: faa}"),
        ("max(leg)", "min(leg)"),
        ("NOT cancelled", "cancelled"),
        ("time_hour desc, id", "time_hour, id"),
        ("{stops:", "{hops:"),
        ("columns: [carrier]", "columns: [name]"),
        ('children: {stops: {table: flights, on: {id: after}}}', "columns: [id]"),
    ]  # fmt: skip
    hashes = {good(changed(old, new)).spec_hash("s") for old, new in changes}
    assert len({first, *hashes}) == len(changes) + 1


def test_the_hash_of_a_joined_view_is_what_it_was_before_there_were_values_and_hidden_rows() -> None:
    """A literal from version 0.2: another one would rebuild everybody's joined sinks."""
    assert good().spec_hash("s") == "e7c30ac6aaf86706"
    more = [
        changed("limit: 50", "hide: false"),
        changed("columns: [carrier]", "value: carrier"),
        changed("columns: [carrier]", "hide: true, refs: {boss: {table: airlines, on: {boss: carrier}}}"),
        HEAD.replace('        order_by: "time_hour desc, id"\n        limit: 50\n', "        one: true\n"),
    ]
    assert len({good(text).spec_hash("s") for text in (HEAD, *more)}) == 5
    assert good(changed("limit: 50", "limit: 50\n        one: false")).spec_hash("s") == "e7c30ac6aaf86706"


def test_the_name_of_a_hidden_row_is_free() -> None:
    hidden = "hide: true, refs: {boss: {table: airlines, on: {boss: carrier}}}"
    text = changed("columns: [carrier]", hidden).replace("      maker: {table", "      built: {table")
    view = good(text.replace("{maker: carrier}", "{maker: carrier}")).views["card"]
    assert [name for _, name, _ in standing(view)] == ["boss", "flights"]


def test_the_hash_of_a_view_without_joins_is_what_it_was_before_there_were_any() -> None:
    """Literals from version 0.1, whose views knew no joins: another value would rebuild everybody's sinks."""
    text = HEAD[: HEAD.index("    refs:")] + "    key: [tailnum]\n" + HEAD[HEAD.index("    where:") :]
    assert good(text).spec_hash("s") == "51b6a29eb99e07ee"
    full = re.sub(r"^( *)#(?=[a-z_]+:)", r"\1", template(), flags=re.MULTILINE)
    full = re.sub(r"^ *routing:.*\n", "", full, flags=re.MULTILINE)  # a file that says it has another hash
    names = ("HEADWATER_SOURCE", "HEADWATER_SETUP", "CONNECT", "ELASTICSEARCH", "REDIS")
    env = {f"{name}_PASSWORD": "x" for name in names}
    pipeline = loads(full, "p.yaml", env)
    assert {name: pipeline.spec_hash(name) for name in pipeline.sinks} == {
        "search": "234c6f2dd0103dae",
        "cache": "9eb81da8c269c419",
        "warehouse": "955b0200d7c84f4e",
    }


def test_the_row_store_s_password_is_not_shown() -> None:
    pipeline = good(changed('"redis://h:6379/1"', '"redis://h:6379/1", user: u, password: s3cr3t'))
    assert pipeline.row_store is not None
    assert pipeline.row_store.password is not None
    assert pipeline.row_store.password.get_secret_value() == "s3cr3t"
    for shown in (repr(pipeline), pipeline.model_dump_json()):
        assert "s3cr3t" not in shown


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("limit: 50", "limit: many"),
        ("limit: 50", "limit: 99999"),
        ("limit: 50", "limt: 5"),
        ("{origin: faa}", "{}"),
        ("{origin: faa}", "{origin: 7}"),
        ("{stops:", "{st-ops:"),
        ("max(leg)", ""),
        ("table: airports, ", ""),
    ],
)
def test_the_schema_of_nested_parts(old: str, new: str) -> None:
    def errors(text: str) -> list[Any]:
        data = YAML(typ="safe", pure=True).load(text)
        return list(jsonschema.Draft202012Validator(json_schema()).iter_errors(data))

    assert errors(HEAD) == []
    assert errors(changed(old, new))
    assert said(changed(old, new))
