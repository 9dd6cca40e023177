"""`mapping:` of a search sink, held against the fields that its views have: joined, computed, and made of events."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import types as T

from cdc.errors import ConfigError
from cdc.fold import FoldView
from cdc.gather import parts_of
from cdc.pipeline import ElasticsearchSink
from cdc.view import View
from operations.run import flows
from sinks.configure import check_mapping, sink_config
from spark.events import matches, windows
from spark.events.states import analyse_stateful
from tests.support.join_cases import CATALOGUE, resolve
from tests.support.timed import MATCHES, VIEWS

JOINED = resolve(
    "flights",
    "columns: [id, dest]\n"
    "    refs: {airline: {table: airlines, on: {carrier: carrier}},"
    " origin: {table: airports, on: {origin: faa}, columns: [{name: title}],"
    " refs: {country: {table: countries, on: {country: id}}}}}\n"
    "    children: {log: {table: loans, on: {id: at_place}, columns: [id, book]}}\n"
    "    aggregates: {n: {table: loans, on: {id: at_place}, value: count(*)}}\n"
    "    fields: {late: 'n > 1'}",
)
PLAIN = View.identity(CATALOGUE.tables["public.airlines"])
FOLD = FoldView("fold", PLAIN.table, ("carrier",), (("carrier", "carrier"),), initial="x", step="y")
FOLDED = replace(FOLD, state={"status": "string", "total": "double"})


def search(mapping: Any) -> ElasticsearchSink:
    return ElasticsearchSink.model_validate(
        {"type": "elasticsearch", "url": "http://h:9200", "view": "v", "mapping": mapping}
    )


def refused(mapping: Any, *views: View) -> list[str]:
    """The fields that are refused."""
    try:
        check_mapping("search", search(mapping), views)
    except ConfigError as error:
        return [part.what.split("'")[1] for part in parts_of(error)]
    return []


@pytest.mark.parametrize(
    "mapping",
    [
        {"n": {"type": "double"}},
        {"airline": {"properties": {"name": {"type": "text"}}}},
        {"origin": {"properties": {"title": {"copy_to": "all"}, "country": {"properties": {"id": {}}}}}, "all": {}},
        {"log": {"type": "nested"}, "late": {"type": "keyword"}, "dest": {"properties": {"anything": {}}}},
        {"dest": {"copy_to": "airline.all"}, "airline": {"properties": {"all": {"type": "text"}}}},
        {"dest": {"copy_to": "names.all"}, "names": {"properties": {"all": {"type": "text"}}}},
        {
            "id": {"copy_to": ["own.a.x", "own.y"]},
            "own": {
                "properties": {
                    "a": {"properties": {"x": {"type": "text"}}},
                    "y": {"type": "text"},
                    "z": {"type": "alias", "path": "dest"},
                }
            },
        },
        {"id": {"copy_to": "own.x"}, "own.x": {"type": "text"}},
        {"airline": {"properties": {"also": {"type": "alias", "path": "airline.name"}}}},
    ],
    ids=str,
)
def test_a_mapping_may_name_all_that_a_joined_document_has(mapping: Any) -> None:
    """It was refused for everything but the root's columns and `fields`; docs/views.md advises the first of these."""
    assert refused(mapping, JOINED) == []


def test_what_no_document_has_is_refused_at_any_depth_with_what_was_meant() -> None:
    nested = {"airline": {"properties": {"nmae": {}}}, "origin": {"properties": {"country": {"properties": {"x": {}}}}}}
    assert refused(nested, JOINED) == ["airline.nmae", "origin.country.x"]
    assert refused({"airlin": {}}, JOINED) == ["airlin"]
    assert refused({"airlin": {"properties": {"name": {}}}}, JOINED) == ["airlin"]
    own = {
        "dest": {"copy_to": "names.all"},
        "names": {"properties": {"al": {}, "all": {}}},
        "other": {"properties": {}},
    }
    assert refused(own, JOINED) == ["names.al", "other"]
    with pytest.raises(ConfigError, match=r"did you mean 'names\.all'\?"):
        check_mapping("search", search(own), [JOINED])
    with pytest.raises(ConfigError, match=r"did you mean 'airline\.name'\?"):
        check_mapping("search", search({"airline": {"properties": {"nmae": {}}}}), [JOINED])


def test_a_field_is_looked_for_in_all_views_of_the_sink() -> None:
    other = resolve("flights", "refs: {airline: {table: airports, on: {origin: faa}, columns: [{name: title}]}}")
    mapping = {"airline": {"properties": {"name": {}, "title": {}, "neither": {}}}}
    assert refused(mapping, JOINED, other) == ["airline.neither"]
    assert refused(mapping, JOINED, replace(PLAIN, columns=(("name", "airline"),))) == [], "a column, as one likes"


def test_what_a_fold_shows_is_known_once_spark_has_seen_it() -> None:
    assert refused({"status": {"type": "text"}, "carrier": {}}, FOLDED) == []
    assert refused({"statsu": {}}, FOLDED) == ["statsu"]
    assert refused({"statsu": {}}, FOLD) == [], "nobody knows yet"


@pytest.mark.parametrize(
    ("view", "right", "near"),
    [
        (VIEWS["tumbling"], ("grouping", "kind", "window_start", "p90", "late"), "p9O"),
        (VIEWS["session"], ("about", "window_end"), "grouping"),
        (MATCHES["all"], ("key", "at", "user", "followed", "then"), "usre"),
        (MATCHES["threshold"], ("since", "count"), "followed"),
        (MATCHES["alone"], ("seen", "late"), "count"),
    ],
    ids=lambda one: "",
)
def test_what_windows_and_matches_show_the_file_says(view: View, right: tuple[str, ...], near: str) -> None:
    """`check` and `plan` took any name: it was refused by `run`, which has asked Spark for their types."""
    assert refused({name: {"type": "keyword"} for name in (*right, near)}, view) == [near]


def test_the_fields_that_the_file_says_are_those_that_spark_has_types_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def type_of(_empty: Any, _view: Any, path: tuple[str, ...], *_: Any) -> T.DataType:
        return T.BooleanType() if path[-1] == "where" else T.StringType()

    for module in (windows, matches):
        monkeypatch.setattr(module, "empty_frame", lambda *_: None)
        monkeypatch.setattr(module, "type_of", type_of)
    monkeypatch.setattr(
        windows, "planned", lambda _spark, view, _refuse: dict.fromkeys(view.measures, SimpleNamespace(type="double"))
    )
    for view in (*VIEWS.values(), *MATCHES.values()):
        known = analyse_stateful(cast(Any, None), view)
        assert [*known.state] == [*(view.shown or ())] == [*(known.shown or ())], view


@pytest.mark.parametrize(
    "view",
    [
        replace(FOLDED, state={"_doc_count": "bigint"}),
        replace(PLAIN, fields={"_doc_count": "1"}),
        resolve("flights", "aggregates: {_doc_count: {table: loans, on: {id: at_place}, value: count(*)}}"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_field_under_a_name_that_no_index_can_have_is_found_wherever_it_comes_from(view: View) -> None:
    with pytest.raises(ConfigError, match="no index can have a field '_doc_count'") as caught:
        check_mapping("search", search({}), [view])
    assert caught.value.fix == f"give it another name in views.{view.name}"


def test_nested_rows_keep_the_fields_that_they_have() -> None:
    """Without them nothing below would be found: an index takes no field of which it was not told."""

    def of(how: Any) -> Any:
        return sink_config("s", search({"log": how}), [JOINED], {})["targets"]["v"]["properties"]["log"]

    below = of({})["properties"]
    assert set(below) == {"id", "book"}
    assert of({"type": "nested"}) == {"type": "nested", "properties": below}
    assert of({"type": "nested", "properties": {"id": {"type": "keyword"}}})["properties"] == {
        "id": {"type": "keyword"},
        "book": below["book"],
    }
    for other in (
        {"type": "flattened"},
        {"type": "object", "enabled": False},
        {"type": "nested", "dynamic": True},  # the server has found them, of types of its own
        {"type": "object", "subobjects": False},
    ):
        assert of(other) == other


class Passed(Exception):
    """What came behind the checks was asked for."""


def passed(*_: Any, **__: Any) -> Any:
    raise Passed


@pytest.mark.parametrize(("field", "wrong"), [("status", False), ("statsu", True)])
@pytest.mark.parametrize("only", [None, "fold", "airlines"])
def test_run_asks_once_the_views_are_analysed(
    field: str, wrong: bool, only: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a fold that is not asked for nobody knows what it shows."""
    part = search({field: {"type": "text"}})
    build: Any = SimpleNamespace(
        pipeline=SimpleNamespace(sinks={"s": part}),
        generation=None,
        sink="s",
        views=[FOLD, PLAIN],
        definition={},
        warehouse=True,
    )
    wrong = wrong and only != "airlines"

    def looked(_spark: Any, _pipeline: Any, view: View) -> tuple[View, Any]:
        return (FOLDED, FOLDED.state) if view is FOLD else (view, {})

    monkeypatch.setattr(flows, "read_frozen", lambda *_: None)
    monkeypatch.setattr(flows, "known_to", lambda *_: None)
    monkeypatch.setattr(flows, "analysed_view", looked)
    monkeypatch.setattr(flows, "flow_spec", passed)  # what comes behind the checks
    with pytest.raises(ConfigError if wrong else Passed):
        flows.spec_of(build, CATALOGUE, None, 0, only)  # type: ignore[arg-type]
