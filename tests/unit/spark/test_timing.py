"""Windows and matches without a server: what the file may say, when an event happened, and what a partition's clock is."""

# ruff: noqa: E501 - a table of files and messages

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import CheckpointLost, ConfigError, PipelineFileError
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.definition import changes, definition_of
from cdc.resolve.views import resolve_view, resolve_views, topics_of
from cdc.stateful import refuse_stateful
from cdc.timed import MICROS, MatchView, Measure, TimedView, WindowView, measure_of, micros_of
from cdc.used import used_columns
from operations.run.flows import flow_spec
from operations.testing.records import Record
from sinks.configure import sink_config
from spark.events import timed
from spark.events.clocks import IDLE_SECONDS, NOTES, Clocks
from spark.events.ticks import Moments
from spark.events.timed import TimedReader
from spark.flow import Flow, Reading
from spark.reading.record import batch_of
from spark.warehouse.keys import key_names
from spark.warehouse.table import state_columns
from tests.support.outbox_file import HEAD
from truth.expected import expected

WINDOW = 'window: {time: at, size: 1 hour, delay: 10 minutes, by: {who: aggregateid}, measures: {n: "count(*)"}}'
MATCH = "match: {time: at, delay: 1 minute, within: 10 minutes, first: {where: \"type = 'a'\", key: aggregateid}, then: {where: \"type = 'b'\", key: payload}}"
TEXT = (
    HEAD
    + f"""\
views:
  v: {{root: outbox, {WINDOW}}}
sinks:
  cache: {{type: redis, url: "redis://h:6379/0", view: v}}
"""
)
MOMENTS = ("at", "sent", "received")
OUTBOX = Table(
    "public",
    "outbox",
    (
        Column("id", "uuid", "uuid", nullable=False),
        *(Column(name, "text", "text") for name in ("aggregatetype", "aggregateid", "type", "payload")),
        *(Column(name, "timestamptz", "timestamptz") for name in MOMENTS),
    ),
    ("id",),
)
ORDERS = Table(
    "public",
    "orders",
    (Column("id", "integer", "int4", nullable=False), Column("at", "timestamp", "timestamp")),
    ("id",),
)
CATALOGUE = Catalogue({table.qualified: table for table in (ORDERS, OUTBOX)})


def file(old: str = "", new: str = "") -> Pipeline:
    assert old in TEXT
    return loads(TEXT.replace(old, new) if old else TEXT, "p.yaml", {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("delay: 10 minutes, ", "", "views.v.window: without `delay` there is no watermark, nothing could ever be closed, and its state would grow for ever"),
        ("size: 1 hour", "size: 1 month", "views.v.window.size"),
        ("size: 1 hour, ", "", "a window has a `size`, or it is a session with a `gap`; one of the two"),
        ("size: 1 hour", "size: 1 hour, gap: 5 minutes", "a window has a `size`, or it is a session with a `gap`"),
        ("size: 1 hour", "gap: 1 hour, slide: 1 minute", "views.v.window.slide: sessions do not slide"),
        ("size: 1 hour", "size: 1 hour, slide: 2 hours", "events between two windows would be in none"),
        ("size: 1 hour", "size: 1 hour, slide: 1 second", "an event would be in 3600 windows, and 500 are allowed"),
        ("size: 1 hour", "size: 1 hour, late: correct", "late events that count for ever need all windows for ever"),
        ("size: 1 hour", "size: 1 hour, correct_for: 1 day", "views.v.window.correct_for: late events are dropped"),
        ("size: 1 hour", "size: 1 hour, sent: at", "a device's clock is corrected by two moments"),
        ("size: 1 hour", "size: 1 hour, groupings: [[who], [whom]]", "views.v.window.groupings: 'whom' is not in `by`\n  what to do: did you mean 'who'?"),
        ("size: 1 hour", "size: 1 hour, groupings: [[who], [who]]", "views.v.window.groupings: named twice"),
        ("{who: aggregateid}", "{late: aggregateid}", "documents have late anyway"),
        ("{who: aggregateid}", "{n: aggregateid}", "n is in `by` and in `measures`"),
        ('n: "count(*)"', 'n: "median(x)"', "views.v.window.measures.n: is none of count(…)"),
        ('n: "count(*)"', 'n: "count(distinct x)"', "approx_count_distinct(x) keeps a sketch"),
        ('n: "count(*)"', 'n: "percentile(x, 95)"', "write percentile(x, 0.95)"),
        ('n: "count(*)"', 'n: "sum(*)"', "sum of what?"),
        ("root: outbox, ", "root: outbox, columns: [id], ", "views.v.columns: a document of a window is made of what `window` says"),
        ("root: outbox, ", "root: outbox, fold: {initial: a, step: b}, ", "fold and window exclude each other"),
        (WINDOW, MATCH.replace("within: 10 minutes, ", ""), "without `within` every event would be kept for those that may follow, and its state would grow for ever"),
        (WINDOW, MATCH.replace("delay: 1 minute, ", ""), "views.v.match: without `delay` there is no watermark"),
        (WINDOW, MATCH.replace("time: at", "time: at, count: 3"), "either `then`, the events that follow, or `count`"),
        (WINDOW, MATCH[: MATCH.index(", then")] + ", count: 1}", "one is every event"),
        (WINDOW, MATCH[: MATCH.index(", then")] + ", count: 2, keep: alone}", "of a threshold there are the documents that reach it"),
        (WINDOW, MATCH + ", where: 'true'", "`first` and `then` say which events they take"),
        (WINDOW, MATCH.replace("key: aggregateid}", "key: aggregateid, fields: {then: type}}"), "documents have then anyway"),
    ],
)  # fmt: skip
def test_what_the_file_may_not_say(old: str, new: str, message: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        file(old, new)
    assert message in str(caught.value)


def test_a_moment_must_be_one() -> None:
    with pytest.raises(ConfigError, match=r"public\.outbox has no column when"):
        resolve_view(file("time: at", "time: when"), CATALOGUE, "v")
    with pytest.raises(ConfigError, match=r"public\.outbox\.type is a text, and no moment"):
        resolve_view(file("time: at", "time: type"), CATALOGUE, "v")


def test_a_window_is_resolved_and_names_its_documents() -> None:
    pipeline = file("size: 1 hour", "size: 1 hour, slide: 15 minutes, groupings: [[who], []]")
    view = resolve_view(pipeline, CATALOGUE, "v")
    assert isinstance(view, WindowView)
    assert (view.size, view.slide, view.delay) == (3600 * MICROS, 900 * MICROS, 600 * MICROS)
    assert set(topics_of(pipeline, view)) == {"shop-events", "shop-events.order", "shop-events.customer"}
    assert used_columns(view, "public.outbox") == {"id", "at", "aggregateid"}
    document = {"grouping": "who", "who": "a|b", "window_start": "2026-01-01T00:00:00Z"}
    assert view.named(orjson.dumps(document), "e") == "who|a\\|b|2026-01-01T00:00:00Z"
    with pytest.raises(ConfigError, match="v is made of windows over events, and can't be tested"):
        refuse_stateful(view, "tested")
    with pytest.raises(ConfigError, match="which are in the log alone"):
        next(expected(view, None, None))  # type: ignore[arg-type]


def test_a_match_is_named_by_its_first_event_and_reads_a_table_too() -> None:
    view = resolve_view(file(WINDOW, MATCH), CATALOGUE, "v")
    assert isinstance(view, MatchView)
    assert view.named(orjson.dumps({}), "e") == "e"
    assert used_columns(view, "public.outbox") == {"id", "at", "type", "aggregateid", "payload"}
    view = resolve_view(file(f"root: outbox, {WINDOW}", f"root: orders, {WINDOW}"), CATALOGUE, "v")
    assert not view.topics


@pytest.mark.parametrize("said", [WINDOW, MATCH], ids=["window", "match"])
def test_a_warehouse_has_a_table_of_them_by_their_ids(said: str) -> None:
    text = TEXT.replace(
        'type: redis, url: "redis://h:6379/0"', "type: iceberg, catalog_uri: c.db, warehouse: w, namespace: n"
    )
    pipeline = loads(text.replace(WINDOW, said), "p.yaml", {})
    (view,) = resolve_views(pipeline, CATALOGUE, "cache")
    target = sink_config("cache", pipeline.sinks["cache"], [view], {})["targets"]["v"]
    assert target == {"generation": 1, "key": [("_hw_id", "text")], "documents": True}
    assert isinstance(view, TimedView) and key_names(view) == ["_hw_id"]
    assert state_columns(replace(view, state={"n": "bigint"})) == [("n", "bigint"), ("_hw_id", "string")]


def test_another_delay_is_another_generation_and_others_keep_their_hash() -> None:
    pipeline, other = file(), file("delay: 10 minutes", "delay: 11 minutes")
    assert pipeline.spec_hash("cache") != other.spec_hash("cache")
    before, after = (definition_of(one, "cache", ["public.outbox"]) for one in (pipeline, other))
    assert changes(before, after) == ["views.v.window.delay changed"]
    plain = definition_of(file(f", {WINDOW}", ""), "cache", ["public.outbox"])["views"]["v"]
    assert not {"window", "match"} & plain.keys()


def test_what_a_measure_means() -> None:
    assert measure_of(" COUNT( * ) ") == Measure("count", "*")
    assert measure_of("percentile(coalesce(a, b), 0.5)") == Measure("percentile", "coalesce(a, b)", 0.5)
    assert measure_of("sum(a) + 1") == "is none of " + ", ".join(
        f"{name}(…)" for name in ("count", "sum", "avg", "min", "max", "approx_count_distinct", "percentile")
    )
    assert (micros_of("1 second"), micros_of("2 weeks")) == (MICROS, 14 * 86_400 * MICROS)


# -- moments and clocks ------------------------------------------------------------------------------------------------


def record(
    at: str | None, op: str = "c", lsn: int = 11, committed: str = "2026-01-01T12:00:00Z", **more: str
) -> Record:
    source = {"schema": "public", "table": "outbox", "lsn": lsn, "sequence": f'[null,"{lsn}"]', "snapshot": "false"}
    source |= {"ts_ms": micros(committed) // 1000, "snapshot": more.get("snapshot", "false")}
    row = {"id": f"00000000-0000-0000-0000-{lsn:012d}", "aggregatetype": "order", "aggregateid": "a", "type": "t"}
    row |= {"payload": None, "at": at, "sent": more.get("sent"), "received": more.get("received")}
    value = orjson.dumps({"op": op, "source": source, "after": row})
    return Record(orjson.dumps({"aggregateid": "a"}), value, "shop-events.order", 0, lsn, "public.outbox")


def micros(text: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(text).timestamp()) * MICROS


def reader(folder: Path, pipeline: Pipeline | None = None) -> TimedReader:
    pipeline = pipeline or file("root: outbox", "root: outbox, events: [order]")
    view = resolve_view(pipeline, CATALOGUE, "v")
    return TimedReader(replace(flow_spec(pipeline, "cache", [view], {}), snapshot_lsn=10), Clocks(folder))


def test_each_event_brings_the_clock_that_was_before_it(tmp_path: Path) -> None:
    times = [
        "2026-01-01T10:00:00Z",
        "2026-01-01T11:00:00Z",
        "2026-01-01T10:30:00Z",
        None,
        "2027-01-01T00:00:00Z",
        "2026-01-01T11:30:00Z",
    ]
    read = reader(tmp_path).read(batch_of([record(at, lsn=11 + n) for n, at in enumerate(times)]))
    ten, eleven = micros("2026-01-01T10:00:00Z"), micros("2026-01-01T11:00:00Z")
    # One that has not happened yet when it was committed moves the clock to its commit and no further.
    assert read.clocks == [None, ten, eleven, eleven, micros("2026-01-01T12:00:00Z") + 1000]
    assert read.decoded.letters[0].reason.startswith(
        "record shop-events.order/0/14: column at of public.outbox is null: nobody knows when the event of v happened"
    )
    assert read.decoded.records == 6


def test_an_infinite_time_is_a_dead_letter_and_does_not_end_the_flow(tmp_path: Path) -> None:
    read = reader(tmp_path).read(batch_of([record("infinity"), record("2026-01-01T10:00:00Z", lsn=12)]))
    assert "column at of public.outbox is no moment" in read.decoded.letters[0].reason
    assert read.clocks == [None]


def test_a_device_s_clock_is_corrected_by_three_moments(tmp_path: Path) -> None:
    pipeline = file(
        "root: outbox, window: {time: at",
        "root: outbox, events: [order], window: {time: at, sent: sent, received: received",
    )
    wrong = record("2020-01-01T00:00:00Z", sent="2020-01-01T00:05:00Z", received="2026-01-01T10:05:00Z")
    assert reader(tmp_path, pipeline).read(batch_of([wrong])).at == [micros("2026-01-01T10:00:00Z")]


def test_a_row_that_was_changed_is_no_event_and_one_that_is_gone_happened_all_the_same(tmp_path: Path) -> None:
    pipeline = file("root: outbox", "root: orders").views["v"]
    view = resolve_view(
        file(f"root: outbox, {WINDOW}", f"root: orders, {WINDOW}".replace("aggregateid", "id")), CATALOGUE, "v"
    )
    assert pipeline.root == "orders"
    spec = flow_spec(
        file(f"root: outbox, {WINDOW}", f"root: orders, {WINDOW}".replace("aggregateid", "id")), "cache", [view], {}
    )
    source = {
        "schema": "public",
        "table": "orders",
        "lsn": 5,
        "sequence": '[null,"5"]',
        "snapshot": "false",
        "ts_ms": 1,
    }
    row, key, topic = {"id": 1, "at": 0}, orjson.dumps({"id": 1}), "shop.public.orders"
    records = [
        Record(
            key,
            orjson.dumps({"op": op, "source": source, "before": row, "after": None if op == "d" else row}),
            topic,
            0,
            at,
            "public.orders",
        )
        for at, op in enumerate("cud")
    ] + [Record(key, None, topic, 0, 3, "public.orders")]
    read = TimedReader(spec, Clocks(tmp_path)).read(batch_of(records))
    assert (len(read.at), read.decoded.records) == (1, 4)
    (letter,) = read.decoded.letters
    assert "was changed, and v takes its rows for events" in letter.reason
    # Of a row, though the view has one of that id: what changed is no document.
    assert (letter.view, letter.table, letter.key) == ("v", "public.orders", '{"id":1}')


def test_a_batch_that_is_repeated_with_other_ends_finds_the_clock_that_was(tmp_path: Path) -> None:
    events = [(offset * 2, moment) for offset, moment in enumerate((5, 3, 9, None, 7, 12, 1, 20))]

    def run(start: int, end: int, *, keep: bool) -> list[int | None]:
        clocks, found = Clocks(tmp_path), []
        for offset, moment in events[start:end]:
            found.append(clocks.before("t", 0, offset))
            clocks.after("t", 0, offset, moment)
        if keep:
            clocks.keep()
        return found

    whole = [None, 5, 5, 9, 9, 9, 12, 12]
    assert run(0, 3, keep=True) == whole[:3]
    assert run(3, 8, keep=True) == whole[3:]  # its batch is not committed: it comes again, cut otherwise
    assert run(3, 5, keep=True) == whole[3:5]
    assert run(5, 6, keep=False) == whole[5:6]
    assert run(5, 8, keep=True) == whole[5:]


def test_what_nobody_noted_is_not_guessed(tmp_path: Path) -> None:
    for offset in range(NOTES + 3):
        clocks = Clocks(tmp_path)
        clocks.before("t", 0, offset)
        clocks.after("t", 0, offset, offset)
        clocks.keep()
    assert Clocks(tmp_path).before("t", 0, NOTES + 3) == NOTES + 2
    with pytest.raises(CheckpointLost, match="nothing says what time it was before record t/0/1"):
        Clocks(tmp_path).before("t", 0, 1)


def _noted(folder: Path, partition: int, micros: int) -> None:
    clocks = Clocks(folder)
    clocks.before("t", partition, micros)
    clocks.after("t", partition, micros, micros)
    clocks.keep()


def test_all_must_have_come_to_a_moment_but_for_those_that_stand_still(tmp_path: Path) -> None:
    awaited = [("t", 0), ("t", 1)]
    assert Clocks(tmp_path).safe() is None
    _noted(tmp_path, 0, 50)
    assert Clocks(tmp_path, awaited).safe() is None  # the other one may have anything
    _noted(tmp_path, 1, 20)
    assert Clocks(tmp_path, awaited).safe() == 20
    long_ago = time.time() - IDLE_SECONDS - 1
    os.utime(tmp_path / "t.1.json", (long_ago, long_ago))
    assert Clocks(tmp_path, awaited).safe() == 50


def test_a_partition_that_nobody_has_read_has_not_stood_still(tmp_path: Path) -> None:
    for partition, moment in enumerate((50, 20)):
        _noted(tmp_path, partition, moment)
        os.utime(tmp_path / f"t.{partition}.json", (0, 0))
    Clocks(tmp_path / "not there yet").begin([("t", 0)])
    Clocks(tmp_path).begin([("t", 0), ("t", 1)])  # Headwater was down for hours, and starts
    _noted(tmp_path, 0, 80)  # the partition whose slice is read first
    assert Clocks(tmp_path).safe() == 20
    long_ago = time.time() - IDLE_SECONDS - 1
    os.utime(tmp_path / "t.1.json", (long_ago, long_ago))
    assert Clocks(tmp_path).safe() == 80


def test_nobody_waits_for_a_partition_of_which_all_was_read_when_its_flow_was_started(tmp_path: Path) -> None:
    for partition, moment in enumerate((50, 20)):
        _noted(tmp_path, partition, moment)
        os.utime(tmp_path / f"t.{partition}.json", (0, 0))
    Clocks(tmp_path).begin([("t", 0)])
    _noted(tmp_path, 0, 80)
    assert Clocks(tmp_path).safe() == 80


def test_a_flow_that_is_started_waits_anew_for_partitions_that_it_has_not_read_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _noted(tmp_path / "clocks", 0, 50)
    os.utime(tmp_path / "clocks" / "t.0.json", (0, 0))

    def as_far_as_that(_spark: object, _flow: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(timed, "check_reach", lambda *_: None)
    monkeypatch.setattr(timed, "_with_events", lambda _: ([], [("t", 0)]))
    pipeline = file("root: outbox", "root: outbox, events: [order]")
    spec = flow_spec(pipeline, "cache", [resolve_view(pipeline, CATALOGUE, "v")], {})
    flow = Flow("v", spec, Reading("h:1", {}, None), tmp_path)
    with pytest.raises(ZeroDivisionError):
        timed.start_timed(None, flow, lambda *_: None, as_far_as_that)  # type: ignore[arg-type]
    assert time.time() - (tmp_path / "clocks" / "t.0.json").stat().st_mtime < IDLE_SECONDS


def test_after_a_start_with_a_new_partition_what_was_told_still_holds(tmp_path: Path) -> None:
    _noted(tmp_path, 0, 50)
    assert Clocks(tmp_path, [("t", 0)]).safe() == 50
    assert Clocks(tmp_path, [("t", 0), ("t", 1)]).safe() == 50  # Spark's watermark is there already
    _noted(tmp_path, 1, 20)
    assert Clocks(tmp_path, [("t", 0), ("t", 1)]).safe() == 50


def test_in_a_stream_that_stands_still_the_clocks_go_on_by_what_has_passed(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    for partition, moment, committed in ((0, 1_000, 5_000), (1, 2_000, 6_000)):
        clocks.before("t", partition, 0)
        clocks.after("t", partition, 0, moment, committed)
    clocks.keep()
    assert clocks.safe() == 1_000
    assert clocks.safe(5_500) == 1_000  # the newest event was committed later than that
    assert clocks.safe(6_400) == 1_400  # events trail their commits by so much, and go on to
    assert clocks.safe(6_100) == 1_400  # never back: nor does Spark's watermark
    assert Clocks(tmp_path).safe() == 1_400
    assert len(list(tmp_path.glob("*.told"))) == 1


def test_a_heartbeat_counts_when_a_later_one_has_come() -> None:
    moments = Moments()
    assert moments.add([]) is None and moments.add([10_000]) is None
    assert moments.add([10_200]) is None  # somebody touches the row who waits: not yet a second later
    assert moments.add([11_000]) == 10_000
    assert moments.add([16_000]) == 11_000
    assert moments.add([16_100]) == 11_000
