"""A fold without a server: what the file may say, and what becomes of it."""

# ruff: noqa: E501 - a table of files and messages

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, PipelineFileError
from cdc.fold import FoldView
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.definition import changes, defined_as, definition_of
from cdc.resolve.views import resolve_view, resolve_views, topics_of
from cdc.used import used_columns
from operations.run.flows import flow_spec
from operations.testing.records import Record
from sinks.configure import sink_config
from spark.events.fold import EventReader
from spark.flow import flow_name, flow_of
from spark.reading.record import batch_of
from spark.warehouse.keys import key_names
from spark.warehouse.table import state_columns
from tests.support.outbox_file import HEAD
from truth.events import folded
from truth.events.logged import Event

TEXT = (
    HEAD
    + """\
views:
  v: {root: outbox, events: [order], fold: {initial: "named_struct('n', 0)", step: "named_struct('n', state.n + length(event.type))"}}
sinks:
  cache: {type: redis, url: "redis://h:6379/0", view: v}
"""
)
OUTBOX = Table(
    "public",
    "outbox",
    tuple(
        Column(name, kind, kind, nullable=name == "payload")
        for name, kind in (
            ("id", "uuid"),
            ("aggregatetype", "text"),
            ("aggregateid", "text"),
            ("type", "text"),
            ("payload", "jsonb"),
        )
    ),
    ("id",),
)
ORDERS = Table("public", "orders", (Column("id", "integer", "int4", nullable=False),), ("id",))
CATALOGUE = Catalogue({table.qualified: table for table in (ORDERS, OUTBOX)})


def file(old: str = "", new: str = "") -> Pipeline:
    assert old in TEXT
    return loads(TEXT.replace(old, new) if old else TEXT, "p.yaml", {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  outbox: {table: public.outbox, types: [order, customer]}\n", "", "views.v.fold: events are folded, and the file has no outbox"),
        ("root: outbox", "root: orders", "views.v.fold: orders is no table of events, public.outbox is"),
        ("events: [order], ", "", "views.v.fold: it takes the events of one aggregate type, whose order is known\n  what to do: write events: [order]"),
        ("events: [order]", "events: [order, customer]", "it takes the events of one aggregate type"),
        ("events: [order]", "events: [order], where: 'true'", "views.v.where: a folded view's document is its state"),
        ("events: [order]", "events: [order], fields: {m: '1'}", "views.v.fields: a folded view's document is its state"),
        ("events: [order]", "events: [order], key: [id]", "views.v.key: a folded view's document is its state"),
        ("events: [order]", "events: [order], columns: [id]", "beside its state a folded view has one column, aggregateid"),
        ("initial: \"named_struct('n', 0)\", ", "", "missing key 'initial' in views.v.fold"),
        ("fold: {", "fold: {first: 1, ", "unknown key 'first' in views.v.fold"),
    ],
)  # fmt: skip
def test_what_the_file_may_not_say(old: str, new: str, message: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        file(old, new)
    assert message in str(caught.value)


def test_a_view_of_aggregates_reads_the_topic_of_their_type_and_has_a_flow_of_its_own() -> None:
    pipeline = file("events: [order]", "events: [order], columns: [{aggregateid: order_id}]")
    (view,) = resolve_views(pipeline, CATALOGUE, "cache")
    assert isinstance(view, FoldView)
    assert (view.key, view.columns) == (("aggregateid",), (("aggregateid", "order_id"),))
    assert list(topics_of(pipeline, view)) == ["shop-events.order"]
    assert flow_name(view, separate=False) == flow_of(pipeline, "cache", "v") == "v"
    assert used_columns(view, "public.outbox") == {"aggregateid", "type"}
    assert not view.outlives_rows


def test_a_warehouse_has_a_table_of_aggregates_by_their_id() -> None:
    pipeline = file(
        'type: redis, url: "redis://h:6379/0"', "type: iceberg, catalog_uri: c.db, warehouse: w, namespace: n"
    )
    (view,) = resolve_views(pipeline, CATALOGUE, "cache")
    target = sink_config("cache", pipeline.sinks["cache"], [view], {})["targets"]["v"]
    assert target == {"generation": 1, "key": [("aggregateid", "text")], "documents": True}
    assert isinstance(view, FoldView) and key_names(view) == ["aggregateid"]
    assert state_columns(replace(view, state={"n": "int"})) == [("aggregateid", "string"), ("n", "int")]


def test_an_outbox_without_the_aggregate_s_column_is_refused() -> None:
    pipeline = file("types: [order, customer]}", "types: [order, customer], aggregate_id: aggregate}")
    with pytest.raises(ConfigError, match=r"public\.outbox has no column aggregate"):
        resolve_view(pipeline, CATALOGUE, "v")


def test_another_step_is_another_generation_and_what_has_no_fold_keeps_its_hash() -> None:
    pipeline, other = file(), file("state.n + length", "state.n + 2 * length")
    assert pipeline.spec_hash("cache") != other.spec_hash("cache")
    before, after = (definition_of(one, "cache", ["public.outbox"]) for one in (pipeline, other))
    assert changes(before, after) == ["views.v.fold.step changed"]
    assert defined_as(other, "cache", before).views["v"] == pipeline.views["v"]
    plain = file(
        ", fold: {initial: \"named_struct('n', 0)\", step: \"named_struct('n', state.n + length(event.type))\"}", ""
    )
    assert "fold" not in definition_of(plain, "cache", ["public.outbox"])["views"]["v"]


def record(about: object, op: str, lsn: int, snapshot: str = "false") -> Record:
    source = {
        "schema": "public",
        "table": "outbox",
        "lsn": lsn,
        "ts_ms": 1,
        "sequence": f'[null,"{lsn}"]',
        "snapshot": snapshot,
    }
    row = {
        "id": f"00000000-0000-0000-0000-{lsn:012d}",
        "aggregatetype": "order",
        "aggregateid": about,
        "type": "t",
        "payload": None,
    }
    value = orjson.dumps({"op": op, "source": source, "after": row})
    return Record(orjson.dumps({"aggregateid": about}), value, "shop-events.order", 0, lsn, "public.outbox")


def test_every_event_of_a_batch_counts_and_one_that_is_read_later_is_known_as_such() -> None:
    pipeline = file()
    (view,) = resolve_views(pipeline, CATALOGUE, "cache")
    spec = replace(flow_spec(pipeline, "cache", [view], {}), snapshot_lsn=10)
    records = [
        record("a", "r", 10, "true"),
        record("a", "c", 11),
        record("ä/b", "c", 12),
        record("a", "r", 13, "incremental"),
    ]
    bad = Record(b"{}", b"no event", "shop-events.order", 0, 14, "public.outbox")
    decoded, again = EventReader(spec, typed=True).read(batch_of([*records, bad]))
    assert [(entry.id, entry.offset) for entry in decoded.entries] == [("a", 10), ("a", 11), ("ä/b", 12), ("a", 13)]
    assert again == [False, False, False, True]
    assert orjson.loads(decoded.entries[2].document or b"") == {"aggregateid": "ä/b"}
    assert [(one.view, one.table) for one in decoded.letters] == [("v", "public.outbox")] and decoded.records == 5


def test_of_an_initial_snapshot_that_was_interrupted_each_event_counts_once() -> None:
    (view,) = resolve_views(file(), CATALOGUE, "cache")
    spec = replace(flow_spec(file(), "cache", [view], {}), snapshot_lsn=20)
    records = [record("a", "r", 10, "true"), record("gone", "r", 10, "true"), record("a", "r", 20, "true")]
    read = EventReader(spec, typed=True).read(batch_of([*records, record("a", "c", 21)]))
    assert [(entry.id, entry.offset) for entry in read[0].entries] == [("a", 20), ("a", 21)]
    assert read[1] == [False, False] and read[0].records == 4


def test_verify_folds_no_event_that_was_read_again_not_even_an_aggregates_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def event(about: str, offset: int, *, again: bool = False) -> Event:
        row = {"id": f"00000000-0000-0000-0000-{offset:012d}", "aggregatetype": "order", "aggregateid": about}
        return Event(0, offset, row | {"type": str(offset), "payload": None}, again)

    def asked(_view: object, _spark: object, page: list[tuple[str, list[dict[str, str]]]]) -> Iterator[object]:
        yield from ((about, [row["type"] for row in rows]) for about, rows in page)

    monkeypatch.setattr(folded, "_asked", asked)
    (view,) = resolve_views(file(), CATALOGUE, "cache")
    assert isinstance(view, FoldView)
    log = [event("kept", 0, again=True), event("kept", 1, again=True), event("both", 2, again=True)]
    log += [event("both", 3), event("new", 4), event("new", 5, again=True), event("new", 6)]
    found: list[Any] = list(folded.states(view, lambda: log, None))  # type: ignore[arg-type]
    assert found == [("both", ["3"]), ("new", ["4", "6"])]
