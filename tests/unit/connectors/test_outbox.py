"""The outbox without a server: what the file may say, which topics that makes, how an event is decoded."""

# ruff: noqa: E501 - a table of files and messages

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import DecodeError, PipelineFileError
from cdc.outbox import by_topic, events_topics, topic_of_row, topics_of_table
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.definition import changes, defined_as, definition_of
from cdc.records.debezium_json import Decoder
from cdc.records.events import EventDecoder
from cdc.resolve.views import resolve_views, topics_of
from connectors.debezium import connector_config
from connectors.outbox import ROUTER, event_topics, message_columns, message_forms
from connectors.preflight.outbox import column_findings
from connectors.topics import data_topics
from operations.run.flows import flow_spec
from spark.reading.entries import EntryDecoder
from spark.reading.record import batch_of
from tests.support.outbox_file import HEAD

START = (
    HEAD
    + """\
row_store: {url: "redis://h:6379/1"}
views:
"""
)
TAIL = """
sinks:
  cache: {type: redis, url: "redis://h:6379/0", view: v}
"""
SALE = "  v: {root: outbox, events: [order]}"
COLUMNS = ("id", "uuid"), ("aggregatetype", "text"), ("aggregateid", "text"), ("payload", "jsonb"), ("at", "timestamp")
OUTBOX = Table(
    "public",
    "outbox",
    tuple(Column(name, kind, kind, nullable=name in ("payload", "at")) for name, kind in COLUMNS),
    ("id",),
)
ORDERS = Table("public", "orders", (Column("id", "integer", "int4", nullable=False),), ("id",))
CATALOGUE = Catalogue({table.qualified: table for table in (ORDERS, OUTBOX)})
ID = "b1f0d4b0-0000-4000-8000-000000000001"


def file(views: str = SALE, old: str = "", new: str = "", tail: str = TAIL) -> Pipeline:
    return loads((START + views + tail).replace(old, new) if old else START + views + tail, "p.yaml", {})


@pytest.mark.parametrize(
    ("views", "old", "new", "message"),
    [
        (SALE, "types: [order, customer]", "types: []", "source.outbox.types"),
        (SALE, "types: [order, customer]", "types: ['a b']", "1 to 100 letters, digits, '.', '_' and '-'"),
        (SALE, "types: [order, customer]", "types: [order, order]", "'order' is here a second time"),
        (SALE, "types: [order, customer]", "types: [order, a.b, a_b]", "topics of 'a.b' and 'a_b' would collide in Kafka"),
        (SALE, "table: public.outbox", "table: public.outbx", "source.outbox.table: 'public.outbx' is not in source.tables; did you mean 'public.outbox'"),
        (SALE, "table: public.outbox", "table: 'public.*'", "source.outbox.table: expected schema.table (letters"),
        (SALE, "table: public.outbox", "table: public.outbox, id: aggregateid", "'aggregateid' is source.outbox.id already"),
        (SALE, "events: [order]", "events: [ordr]", "views.v.events: 'ordr' is not in source.outbox.types\n  what to do: did you mean 'order'?"),
        (SALE, "events: [order]", "events: [order, order]", "views.v.events: 'order' is here a second time"),
        (SALE, "events: [order]", "events: []", "an empty list shows no event"),
        ("  v: {root: orders, events: [order]}", "", "", "views.v.events: 'orders' is not source.outbox.table, whose rows are events\n  what to do: root: public.outbox"),
        ("  v: {root: outbox, refs: {o: {table: orders, on: {aggregateid: id}}}}", "", "", "views.v.refs: events are not joined with rows"),
        ("  v: {root: orders, children: {e: {table: outbox, on: {id: aggregateid}}}}", "", "", "views.v.children.e.table: the rows of 'outbox' are events, which are not joined"),
        ("  v: {root: orders, aggregates: {n: {table: public.outbox, on: {id: aggregateid}, value: count(*)}}}", "", "", "views.v.aggregates.n.table: the rows of 'public.outbox' are events"),
    ],
)  # fmt: skip
def test_what_the_file_may_not_say(views: str, old: str, new: str, message: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        file(views, old, new)
    assert message in str(caught.value)


def test_events_without_an_outbox_and_a_history_of_events_are_refused() -> None:
    with pytest.raises(PipelineFileError, match=r"not source\.outbox\.table, whose rows are events"):
        file(SALE, "  outbox: {table: public.outbox, types: [order, customer]}\n", "")
    lake = (
        "\nsinks:\n  l: {type: iceberg, catalog_uri: c.db, warehouse: w, namespace: n, history: true, tables: TABLES}\n"
    )
    with pytest.raises(PipelineFileError, match=r"events of public\.outbox have no history"):
        file(tail=lake.replace("TABLES", "all"))
    file(tail=lake.replace("TABLES", "[orders]"))


def test_the_topics_of_events_and_of_views_over_them() -> None:
    pipeline = file()
    every = ("shop-events", "shop-events.customer", "shop-events.order")
    assert events_topics(pipeline) == topics_of_table(pipeline, "public.outbox") == every
    assert topics_of_table(pipeline, "public.orders") == ("shop.public.orders",)
    assert by_topic(pipeline, {"public.outbox": "why"}) == dict.fromkeys(every, "why")
    (view,) = resolve_views(pipeline, CATALOGUE, "cache")
    assert dict(topics_of(pipeline, view)) == {"shop-events.order": OUTBOX}
    (view,) = resolve_views(whole := file("  v: {root: outbox}"), CATALOGUE, "cache")
    assert tuple(topics_of(whole, view)) == every
    tables = file(tail=TAIL.replace("view: v", "tables: all"))
    spec = flow_spec(tables, "cache", resolve_views(tables, CATALOGUE, "cache"), {})
    assert spec.topics == {"shop.public.orders": ("orders",), **dict.fromkeys(every, ("outbox",))}
    assert spec.events == set(every)


def test_events_stay_and_are_not_compacted_and_the_table_has_no_topic() -> None:
    made = {topic.name: topic.config for topic in data_topics(file(), CATALOGUE)}
    assert made.keys() == {"shop.public.orders", *events_topics(file()), "shop.headwater.snapshot_shop"}
    kept = made["shop-events.order"]
    assert (kept["cleanup.policy"], kept["retention.ms"], kept["retention.bytes"]) == ("delete", "-1", "-1")
    short = file(old="types:", new="keep_days: 3, types:")
    assert {topic.config["retention.ms"] for topic in event_topics(short)} == {str(3 * 86_400_000)}


def test_the_router_comes_first_and_beside_what_a_user_has_of_his_own() -> None:
    def config(text: str = "") -> dict[str, str]:
        return connector_config(file(old='8083"}', new='8083"' + text + "}"), CATALOGUE)

    plain = config()
    assert plain["transforms"] == "events,slim"
    mine = {key: value for key, value in plain.items() if key.startswith("transforms.events.")}
    assert mine == {
        "transforms.events.type": ROUTER,
        "transforms.events.table.topic": "shop.public.outbox",
        "transforms.events.target": "shop-events",
        "transforms.events.types": "order,customer",
        "transforms.events.type.column": "aggregatetype",
        "transforms.events.aggregate.column": "aggregateid",
    }
    assert config(", options: {transforms: 'slim, mine'}")["transforms"] == "events,slim,mine"
    assert config(", options: {transforms: 'mine, events'}")["transforms"] == "mine,events"
    without = file("  v: {root: orders}", "  outbox: {table: public.outbox, types: [order, customer]}\n", "")
    assert connector_config(without, CATALOGUE)["transforms"] == "slim"


def test_messages_are_rows_of_the_table_as_far_as_their_types_allow() -> None:
    config = connector_config(file(old="types:", new="message_prefix: shop, types:"), CATALOGUE)
    assert config["transforms.events.message.prefix"] == "shop"
    assert config["transforms.events.message.topic"] == "shop.message"
    assert config["message.prefix.include.list"] == "shop"
    assert config["transforms.events.message.forms"] == "{}"
    kinds = orjson.loads(config["transforms.events.message.columns"])
    assert kinds == {"id": "string", "aggregatetype": "string", "aggregateid": "string", "payload": "json", "at": ""}


def test_texts_that_have_a_form_are_told_beside_the_kinds_which_an_older_router_knows() -> None:
    columns = (
        Column("n", "numeric", "numeric"),
        Column("cents", "numeric(9,2)", "numeric", precision=9, scale=2),
        Column("tens", "numeric(5,-1)", "numeric", precision=5, scale=-1),
        Column("seen", "timestamp with time zone", "timestamptz"),
    )
    more = Column("many", "numeric[]", "numeric", array=True)
    table = Table("public", "outbox", (*OUTBOX.columns, *columns, more), ("id",))
    digits = {"n": "numeric", "cents": "numeric(9,2)", "tens": "numeric(5,-1)"}
    assert message_forms(table) == digits | {"seen": "timestamptz"}
    kinds = message_columns(table)
    assert (kinds["n"], kinds["seen"], kinds["many"]) == ("string", "string", "")


def test_a_table_that_is_no_outbox_is_found_out() -> None:
    outbox = file().source.outbox
    assert outbox is not None
    assert list(column_findings(outbox, OUTBOX)) == []

    def said(*columns: tuple[str, str, bool], key: tuple[str, ...] = ("id",)) -> list[str]:
        table = Table("s", "t", tuple(Column(n, k, k, nullable=null) for n, k, null in columns), key)
        return [f"{finding.message}; {finding.fix}" for finding in column_findings(outbox, table)]

    right = ("id", "uuid", False), ("aggregatetype", "text", False), ("aggregateid", "text", False)
    (wrong,) = said(right[0], ("aggregate_type", "text", False), right[2])
    assert wrong.startswith(
        "s.t has no column aggregatetype (source.outbox.aggregate_type); did you mean aggregate_type"
    )
    (wrong,) = said(*right[:2], ("aggregateid", "text", True))
    assert "aggregateid may be null" in wrong and "SET NOT NULL" in wrong
    (wrong,) = said(*right, key=("id", "aggregateid"))
    assert wrong.startswith("the primary key of s.t is (id, aggregateid), and not the event's id id")


def test_a_sink_of_events_goes_on_with_the_types_that_it_was_made_of() -> None:
    before, after = file("  v: {root: outbox}"), file("  v: {root: outbox}", "[order,", "[refund, order,")
    kept = definition_of(before, "cache", [])
    assert before.spec_hash("cache") != after.spec_hash("cache")
    assert changes(kept, definition_of(after, "cache", [])) == ["events.types changed"]
    assert events_topics(defined_as(after, "cache", kept)) == events_topics(before)
    none = "  outbox: {table: public.outbox, types: [order, customer]}\n"
    table = definition_of(file("  v: {root: outbox}", none, ""), "cache", [])
    assert "events" not in table and "events" not in table["views"]["v"]
    # What was made of the table's own topic goes on with that.
    assert topics_of_table(defined_as(before, "cache", table), "public.outbox") == ("shop.public.outbox",)
    orders = "  v: {root: orders}"
    assert file(orders).spec_hash("cache") == file(orders, none, "").spec_hash("cache")


# -- decoding ----------------------------------------------------------------------------------------------------------

ROW = {"id": ID, "aggregatetype": "order", "aggregateid": "7", "payload": "{}", "at": None}
KEY = orjson.dumps({"aggregateid": "7"})


def event(op: str = "c", after: Any = ROW, **more: Any) -> bytes:
    source = {"schema": "public", "table": "outbox", "lsn": 8, "sequence": None, "snapshot": "false", "ts_ms": 5}
    return orjson.dumps({"op": op, "after": after, "source": source} | more)


def decode(value: bytes | None, key: bytes | None = KEY) -> Any:
    return EventDecoder(OUTBOX).decode(key, value, "shop-events.order", 0, 3)


def test_an_event_is_told_by_its_row_and_not_by_its_aggregate() -> None:
    change = decode(event())
    assert (change.key, change.after, change.position) == ({"id": ID}, ROW, 8)
    assert decode(event("r"), b"anything").key == {"id": ID}
    with pytest.raises(DecodeError, match="its key lacks the column id"):
        Decoder(OUTBOX).decode(KEY, event(), "t", 0, 3)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "a record without a value"),
        (event("u"), "a record of kind u"),
        (event("d", None), "its row lacks the column id"),
        (event(after=ROW | {"id": None}), "its row lacks the column id"),
        (event("m", message={"prefix": "p", "content": "e30="}), "is a message that is no event"),
        (b"{", "is not an event of public.outbox"),
    ],
)
def test_what_is_no_event_is_a_dead_letter(value: bytes | None, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        decode(value)


def test_letters_of_one_aggregate_do_not_take_each_other_s_place() -> None:
    pipeline = file()
    spec = flow_spec(pipeline, "cache", resolve_views(pipeline, CATALOGUE, "cache"), {})
    bad = event("u"), event(after=ROW | {"id": None}), event("m", None), event("m", None)
    records = [(KEY, value, "shop-events.order", 0, at) for at, value in enumerate(bad)]
    letters = EntryDecoder(spec).decode(batch_of(records)).letters
    assert [letter.key for letter in letters] == [f'{{"id":"{ID}"}}', "", "", ""]
    assert len({letter.record_key() for letter in letters}) == 4


def test_rows_of_tests_go_where_the_connector_sends_them() -> None:
    pipeline = file()
    assert topic_of_row(pipeline, "public.outbox", ROW) == "shop-events.order"
    assert topic_of_row(pipeline, "public.outbox", ROW | {"aggregatetype": "x"}) == "shop-events"
    assert topic_of_row(pipeline, "public.orders", {"id": 1}) == "shop.public.orders"
