"""What a pipeline file may say of history, and the gaps that a cut must not lie in."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as Iceberg

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import BeforeHistory, ConfigError, HistoryGap, LogTruncated, TopicRecreated
from cdc.pipeline import Pipeline
from cdc.pipeline.checks import check
from cdc.records.history import AFTER, OFFSET, OP, PARTITION, READ, TIME
from cdc.resolve.views import resolve_views
from connectors.captured.captured import Captured
from connectors.database.lost import Lost
from connectors.snapshots.signals import Heard
from operations.as_of import begun
from operations.as_of import cut as cuts
from operations.as_of.begun import NotBegun
from operations.as_of.lost import refuse_lost
from operations.as_of.reads import Reads, reads_of, refuse_early, refuse_unread, refuse_unread_moment
from operations.as_of.seen import Frontier
from operations.gate import wrong_in_file
from operations.run import history as run_history
from operations.state.history import root_tables, topics_read
from sinks.iceberg import catalogue as iceberg
from spark import shorter
from spark.disk.files import write_atomic
from spark.log_gaps import write_unread
from spark.unread import Mark, Unread
from spark.warehouse.history import history as begin


def pipeline(**sink: Any) -> Pipeline:
    lake = {"type": "iceberg", "catalog_uri": "c.db", "warehouse": "w", "namespace": "n", **sink}
    raw = {
        "version": 1,
        "name": "p",
        "source": {"host": "h", "database": "d", "user": "u", "tables": ["public.t", "public.other"]},
        "kafka": {"bootstrap": "h:9092"},
        "connect": {"url": "http://h:8083"},
        "views": {"t_history": {"root": "t"}, "plain": {"root": "t"}},
        "sinks": {"lake": lake},
    }
    return Pipeline.model_validate(raw)


def said(made: Pipeline) -> list[str]:
    return [wrong.what for wrong in check(made)]


def test_a_view_that_has_the_name_of_a_history_is_refused() -> None:
    [what] = said(pipeline(views=["t_history"], history=True))
    assert "'t_history' is a view of this sink, and the name of a table's history" in what.replace("`", "'")
    assert not said(pipeline(views=["t_history"]))
    assert not said(pipeline(views=["plain"], history=True))


def test_a_view_that_can_not_be_made_any_more_leaves_history_alone() -> None:
    """A column was dropped that a joined view names: history stood still for all tables, and `as-of` was refused."""
    raw = pipeline().model_dump()
    other = {"table": "other", "on": {"id": "id"}, "columns": ["id", "gone"]}
    raw["views"] = {"plain": {"root": "t"}, "joined": {"root": "other", "refs": {"o": other}}}
    raw["row_store"] = {"url": "redis://h"}
    raw["sinks"]["lake"] |= {"views": ["plain", "joined"], "history": True}
    made = Pipeline.model_validate(raw)
    number = Column("id", "int4", "int4")
    tables = {f"public.{name}": Table("public", name, (number,), ("id",)) for name in ("t", "other")}
    with pytest.raises(ConfigError, match=r"public\.other has no column gone"):
        resolve_views(made, Catalogue(tables), "lake")
    assert root_tables(made, Catalogue(tables), "lake") == tables
    del tables["public.other"]
    with pytest.raises(ConfigError, match="other is not a captured table"):
        root_tables(made, Catalogue(tables), "lake")


def test_a_table_whose_columns_are_one_to_spark_is_refused() -> None:
    """The view picks one of them, but history has both: no table of history could be made."""
    columns = (Column("id", "int4", "int4"), Column("Name", "text", "text"), Column("name", "text", "text"))
    made, table = pipeline(views=["plain"], history=True), Table("public", "t", columns, ("id",))
    with pytest.raises(ConfigError, match=r"Name and name of public\.t are one column to Spark"):
        root_tables(made, Catalogue({table.qualified: table}), "lake")


def test_two_tables_of_one_name_do_not_share_a_history_and_apply_says_so(tmp_path: Path) -> None:
    """`run` went on without any history, for as long as nobody read its log, and what the log forgot was gone."""
    raw = pipeline().model_dump()
    raw["engine"]["state_dir"] = str(tmp_path)
    raw["source"]["tables"] = ["a.t", "b.t"]
    raw["views"] = {"of_a": {"root": "a.t"}, "of_b": {"root": "b.t"}}
    raw["sinks"]["lake"] |= {"views": ["of_a", "of_b"], "history": True}
    made, number = Pipeline.model_validate(raw), Column("id", "int4", "int4")
    tables = Catalogue({f"{schema}.t": Table(schema, "t", (number,), ("id",)) for schema in ("a", "b")})
    [wrong] = wrong_in_file(made, tables, print)
    assert "the history of a.t has the name that the history of b.t needs (t_history)" in wrong.what
    assert "another `namespace`" in str(wrong.fix) and "rename the view" not in str(wrong.fix)
    raw["sinks"]["lake"]["history"] = False
    assert wrong_in_file(Pipeline.model_validate(raw), tables, print) == []


def test_two_sinks_do_not_share_a_history() -> None:
    made = pipeline(views=["plain"], history=True)
    lake = made.sinks["lake"]
    other = lake.model_copy(update={"views": ("t_history",), "history": False})
    both = made.model_copy(update={"sinks": {"lake": lake, "other": other}})
    assert any("writes to the same target" in what for what in said(both))


def test_history_is_no_reason_to_fill_the_sink_anew() -> None:
    plain, kept = pipeline(views=["plain"]), pipeline(views=["plain"], history=True)
    assert plain.spec_hash("lake") == kept.spec_hash("lake")


def test_a_cut_inside_of_a_gap_is_refused(tmp_path: Path) -> None:
    """Read until offset 2 of partition 0 (a commit after 100); what came until second 30 (after 300) was read too late.

    The other partition had nothing unread: that its last row is older says nothing.
    """
    rows = [(0, 0, 5, 50), (0, 1, 10, 100), (1, 0, 1, 20), (0, 2, 30, 300), (0, 5, 40, 400)]
    moments = [datetime.fromtimestamp(second, UTC) for second in range(41)]
    made = pipeline(views=["plain"], history=True)
    columns = {
        PARTITION: pa.array([row[0] for row in rows], pa.int32()),
        OFFSET: pa.array([row[1] for row in rows], pa.int64()),
        TIME: pa.array([moments[row[2]] for row in rows], pa.timestamp("us", "UTC")),
        AFTER: pa.array([row[3] for row in rows], pa.int64()),
    }
    gap = {"until": moments[30], "why": "it was away", "offsets": '{"p.public.t": {"0": 2}}'}
    lake = SimpleNamespace(catalog_uri=str(tmp_path / "c.db"), warehouse=str(tmp_path), namespace="n")
    with iceberg.open_catalog(lake, "hw_lake") as catalog:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t_history", pa.table(columns).schema)
        table.append(pa.table(columns))
        tables = {"public.t": table}
        for at in (50, 101, 301, 400):
            cuts._refuse_gap(made, [gap], tables, at)
        for at in (102, 300):
            with pytest.raises(HistoryGap, match="it was away"):
                cuts._refuse_gap(made, [gap], tables, at)
        whole = {**gap, "offsets": '{"p.public.t": {"0": 0}}'}  # history began later than the log
        cuts._refuse_gap(made, [{**gap, "offsets": '{"p.public.other": {"0": 0}}'}], tables, 200)
        with pytest.raises(HistoryGap):
            cuts._refuse_gap(made, [whole], tables, 50)
        cuts._refuse_gap(made, [whole], tables, 301)


def test_until_the_next_gap_is_noted_compaction_comes_no_further_than_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that was away for 150 s notes a gap, and is killed and started once more before it has read on: what
    compaction may have come to in between lies in a gap, too."""
    kept, clock, noted = 100.0, [1_000.0], list[tuple[float, float]]()
    log = SimpleNamespace(
        bounds=lambda topics: ({"t": {0: 0}}, {"t": {0: 9}}), written_since=lambda *_: None, close=lambda: None
    )
    monkeypatch.setattr(begin, "LogEnds", lambda *_: log)
    monkeypatch.setattr(begin, "committed_offsets", lambda _: (3, {"t": {0: 5}}))
    monkeypatch.setattr("spark.warehouse.history.history.time.time", lambda: clock[0])
    flow: Any = SimpleNamespace(
        checkpoint=tmp_path / "checkpoint", folder=tmp_path, is_new=False, title="lake/_history",
        reading=SimpleNamespace(bootstrap="", client={}, tombstone_seconds=kept),
        spec=SimpleNamespace(sink="lake", topics={"t": ("v",)}),
    )  # fmt: skip
    place: Any = SimpleNamespace(note_gap=lambda _spark, _sink, moments, *_: noted.append(moments))
    spark: Any = None
    (tmp_path / begin.BEGUN).write_text('{"topics": ["t"]}')
    write_unread(flow, Unread((Mark(3, 850.0),)))
    begin.note_gap(spark, flow, place)
    assert [since for since, _ in noted] == [850.0]
    while len(noted) == 1:
        assert clock[0] - kept <= noted[0][1], "compaction has come behind the gap"
        clock[0] += 1.0
        begin.note_gap(spark, flow, place)
    assert noted[1][0] <= noted[0][1], "nothing lies between two gaps"


def test_a_log_that_ends_before_what_history_has_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's volume was put back to an older copy: events that came in the lost places were in no history."""
    bounds = ({"t": {0: 0}, "left": {0: 0}}, {"t": {0: 4}, "left": {0: 1}})
    log = SimpleNamespace(bounds=lambda topics: bounds, written_since=lambda *_: None, close=lambda: None)
    monkeypatch.setattr(begin, "LogEnds", lambda *_: log)
    monkeypatch.setattr(shorter, "SHORTER_SECONDS", 0.0)
    spec, reading = SimpleNamespace(sink="lake", topics={"t": ("v",)}), SimpleNamespace(bootstrap="", client={})
    flow: Any = SimpleNamespace(checkpoint=tmp_path, folder=tmp_path, is_new=False, reading=reading, spec=spec)
    reading.tombstone_seconds = 100
    place: Any = None
    monkeypatch.setattr(begin, "committed_offsets", lambda _: (3, {"t": {0: 5}, "left": {0: 9}}))
    with pytest.raises(LogTruncated, match="history of sink lake has read t/0 up to 5, and it ends at 4") as error:
        begin.note_gap(cast(Any, None), flow, place)
    assert "headwater resnapshot FILE --all" in error.value.fix and "another namespace" in error.value.fix


@pytest.mark.parametrize(("read", "refused"), [([], True), ([700, 900], True), ([99, 900], False)])
def test_a_table_that_is_read_for_the_first_time_is_in_no_cut(read: list[int], refused: bool) -> None:
    """One that is read again, and that the initial snapshot at 100 had read, is."""
    reads = {"public.t": Reads((min(read), max(read)))} if read else {}
    with pytest.raises(NotBegun, match=r"the rows of public\.t are still being read") if refused else nullcontext():
        refuse_unread(reads, ["public.t"], 100)


@pytest.mark.parametrize(
    ("at", "shown", "begins"),
    [
        (9, "a", 10), (9, "b", 10), (10, "a", None), (10, "b", None), (25, "empty", None), (25, "late", 41),
        (40, "late", 41), (41, "late", None),
    ],
)  # fmt: skip
def test_a_moment_before_the_rows_were_read_has_no_cut(at: int, shown: str, begins: int | None) -> None:
    """The first commit behind it is behind the reading, so that the cut alone, which is there, looks right. The initial
    snapshot at 100 has read `a` and `b` as of one position, and `late` was captured later."""

    def reads(afters: tuple[int, int], first: int, last: int) -> Reads:
        return Reads(afters, (datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)))

    found = {"a": reads((99, 99), 10, 12), "b": reads((99, 500), 15, 30), "late": reads((300, 320), 40, 41)}
    words = f"the history of {shown} begins at 1970-01-01 00:00:{begins} UTC, behind the moment"
    with nullcontext() if begins is None else pytest.raises(BeforeHistory, match=words):
        refuse_unread_moment(found, {shown}, at * 1_000_000, 100)


@pytest.mark.parametrize(("cut", "refused"), [(100, None), (99, "a"), (320, "late"), (321, None)])
def test_a_cut_before_a_shown_table_begins_is_refused(cut: int, refused: str | None) -> None:
    """`a` was read by the initial snapshot at 100 and once more, `late` was captured later; `empty` had no rows."""
    found = {"a": Reads((99, 500)), "late": Reads((300, 320))}
    shown = ["a", "empty", "late"] if cut > 100 else ["a", "empty"]
    words = f"the history of {refused} begins at .* behind the cut at"
    with nullcontext() if refused is None else pytest.raises(BeforeHistory, match=words):
        refuse_early(found, shown, cut, 100)


def test_a_cut_before_a_history_was_begun_anew_is_refused() -> None:
    """The table had no row then, so nothing was read of it: its history looked as old as the initial snapshot."""
    with pytest.raises(BeforeHistory, match=r"the history of public\.t begins at 0/1F4"):
        refuse_early({}, ["public.t"], 499, 100, {"public.t": 500})
    refuse_early({}, ["public.t"], 500, 100, {"public.t": 500})
    refuse_early({"public.t": Reads((510, 520))}, ["public.t"], 521, 100, {"public.t": 500})


def test_what_was_read_is_asked_in_one_scan_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    rows = pa.table({OP: [READ, "update", READ], AFTER: pa.array([7, 9, 5], pa.int64()), TIME: at, "x": [1, 2, 3]})
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    tables = {name: catalog.create_table(f"n.{name}", rows.schema) for name in ("full", "empty", "changed")}
    tables["full"].append(rows)
    tables["changed"].append(rows.slice(1, 1))
    asked = list[tuple[str, ...]]()
    scan = Iceberg.scan

    def counted(self: Iceberg, *, selected_fields: tuple[str, ...], **more: Any) -> Any:
        asked.append(selected_fields)
        return scan(self, selected_fields=selected_fields, **more)

    monkeypatch.setattr(Iceberg, "scan", counted)
    assert reads_of(tables, {}, times=True) == {"full": Reads((5, 7), (at[0], at[2]))}
    assert asked == [(AFTER, TIME)] * 3
    assert reads_of(tables, {"full": 7}, times=False) == {"full": Reads((5, 5))}, "what is read again is left out"
    assert reads_of(tables, {"full": 8, "empty": 8}, times=False) == {"full": Reads((5, 7))}
    catalog.close()


@pytest.mark.parametrize(
    ("text", "at_us", "shown"),
    [
        ("2026-11-29T12:00:00.124", 124_000, "12:00:00.124000+"), ("2026-11-29T12:00:00.123500", 123_000, ".123000+"),
        ("2026-11-29T12:00:00.123999", 123_000, ".123000+"), ("2026-11-29T12:00:00.001", 1_000, ".001000+"),
        ("1969-12-31T23:59:59.999500", -1_000, "1969-12-31T23:59:59.999000+"),
    ],
)  # fmt: skip
def test_a_moment_is_a_whole_millisecond(text: str, at_us: int, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has no more of a commit's time: of .1235 all was taken that was committed until .124, without a word."""
    words = list[str]()
    monkeypatch.setattr(cuts, "read_moment", lambda _: SimpleNamespace(wal_lsn=0))
    clock: Any = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchone=lambda: (4e9,)))
    watch: Any = SimpleNamespace(wait=lambda _enough, said, *_: words.append(said))
    asked, nobody = cuts.Asked(at=cuts.moment_of(text)), cast(Any, None)
    _, place = cuts._frontier(nobody, clock, watch, asked, [], print)
    assert place.at_us is not None and place.at_us % 1_000_000 == at_us % 1_000_000
    assert shown in words[0]


def test_a_heartbeat_proves_a_moment_that_is_a_second_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of the moment, whose time is taken before its record is in the log, stood behind a younger heartbeat:
    asked again, the cut was another one."""
    found = list[Any]()
    monkeypatch.setattr(cuts, "read_moment", lambda _: SimpleNamespace(wal_lsn=0))
    clock: Any = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchone=lambda: (4e9,)))
    watch: Any = SimpleNamespace(wait=lambda enough, *_: found.append(enough))
    cuts._frontier(cast(Any, None), clock, watch, cuts.Asked(at=1_000.0), [], print)
    [enough] = found
    assert [enough(Frontier(8, at)) for at in (1_000_001_000, 1_001_000_000, 1_001_001_000)] == [False, False, True]


def test_a_history_that_has_not_begun_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, said, left = iter((True, True, False)), list[str](), list[float]()

    def find(_pipeline: object, _catalog: object, _sink: str, asked: cuts.Asked, _say: object) -> str:
        left.append(asked.wait)
        if next(waits):
            raise NotBegun(BeforeHistory("no table t_history", fix="run"))
        return "cut"

    monkeypatch.setattr(cuts, "find_cut", find)
    monkeypatch.setattr(cuts, "history_sink", lambda *_: "lake")
    monkeypatch.setattr(cuts, "open_catalog", lambda *_: nullcontext())
    monkeypatch.setattr(cuts, "AGAIN_SECONDS", 0.01)
    some: Any = SimpleNamespace(sinks={"lake": None})
    assert cuts.with_cut(some, None, cuts.Asked(wait=5.0), said.append, str) == "cut"
    assert said == ["waiting for history to begin: no table t_history"]
    assert left == sorted(left, reverse=True) and len(set(left)) == 3  # one time for all of it
    waits = iter((True,))
    with pytest.raises(BeforeHistory, match="no table t_history"):
        cuts.with_cut(some, None, cuts.Asked(wait=0.0), said.append, str)


def test_what_debezium_has_read_to_the_end_is_read_whatever_the_list_says(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"a": "done", "b": "requested", "c": "requested", "d": "wanted", "e": "initial", "other": "wanted"}
    now = datetime.now(UTC)
    listed = {table: Captured(f"public.{table}", state, table, now) for table, state in states.items()}
    heard = Heard(statuses={"b": {"public.b": "SUCCEEDED"}})
    told = SimpleNamespace(catch_up=lambda: heard, close=lambda: None)
    monkeypatch.setattr(begun, "read_captured", lambda *_: {one.table: one for one in listed.values()})
    monkeypatch.setattr(begun, "Kafka", lambda _: None)
    monkeypatch.setattr(begun, "Notifications", lambda *_: told)
    nobody: Any = None
    tables = [f"public.{table}" for table in "abcde"]
    assert begun.being_read(pipeline(), nobody, tables) == {"public.c", "public.d"}
    assert begun.being_read(pipeline(), nobody, ["public.a", "public.d"]) == {"public.d"}


@pytest.mark.parametrize(
    ("lsn", "at_us", "refused"),
    [
        (100, None, False),  # all that was read
        (101, None, True),
        (200, None, True),
        (201, None, False),
        (90, 5_000, False),
        (90, 5_001, True),  # no position tells of a moment in which nothing came through
        (300, 9_000, True),
        (300, 9_001, False),
    ],
)
def test_where_a_slot_was_lost_there_is_no_cut(lsn: int, at_us: int | None, refused: bool) -> None:
    lost = [Lost(100, 5_000, 200, 9_000)]
    with pytest.raises(HistoryGap, match="the slot was lost") if refused else nullcontext():
        refuse_lost(lost, lsn, at_us)


def test_behind_a_transaction_there_is_no_cut_where_it_may_lie_behind_what_was_lost() -> None:
    """It was committed somewhere from ``least`` to the cut."""
    lost = [Lost(100, 5_000, 200, 9_000)]
    with pytest.raises(HistoryGap):
        refuse_lost(lost, 300, None, least=91)
    refuse_lost(lost, 300, None, least=201)
    refuse_lost(lost, 100, None, least=91)


def test_a_loss_that_is_still_being_mended_has_no_end() -> None:
    refuse_lost([Lost(100, 5_000, None, None)], 100, None)
    with pytest.raises(HistoryGap, match="until all tables have been read again") as found:
        refuse_lost([Lost(100, 5_000, None, None)], 1 << 40, None)
    assert "headwater apply FILE --wait" in found.value.fix


def of_the_same_key(monkeypatch: pytest.MonkeyPatch, tables: dict[str, Table]) -> None:
    """The catalogue has histories of these tables, of rows with the key that they have, and nobody has claimed one."""
    answers = {
        "open_catalog": nullcontext(),
        "has_key": True,
        "claimed_history": None,
        "source_catalogue": None,
        "root_tables": tables,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(run_history, name, lambda *_, said=answer: said)


def test_another_namespace_begins_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is what a history of topics that were made anew is told to take, and was refused with the same words."""
    ids = {"shop.public.t": "before"}
    monkeypatch.setattr(run_history, "topic_ids", lambda *_: dict(ids))
    place: Any = SimpleNamespace(system_identifier="1")
    checkpoint = tmp_path / "log" / "checkpoint"
    tables = {"shop.public.t": Table("public", "t", (Column("id", "integer", "int4"),), ("id",))}
    of_the_same_key(monkeypatch, tables)

    def bind(namespace: str) -> None:
        made: Any = SimpleNamespace(sinks={"w": SimpleNamespace(namespace=namespace)}, topic=lambda table: table)
        made.name, made.engine = "shop", SimpleNamespace(state_dir=tmp_path / "state")
        run_history._bind(made, place, "w", tmp_path, tables)

    bind("one")
    checkpoint.mkdir(parents=True)
    ids["shop.public.t"] = "anew"
    with pytest.raises(TopicRecreated, match="was deleted and created again") as found:
        bind("one")
    assert checkpoint.exists() and "another namespace" in found.value.fix
    bind("two")
    assert not checkpoint.exists()
    checkpoint.mkdir(parents=True)
    bind("two")
    assert checkpoint.exists()


@pytest.mark.parametrize("killed", [None, 1, 2, 3, 4, 5])
def test_a_namespace_that_comes_back_has_its_history_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, killed: int | None
) -> None:
    """Edited and set back (before anything was built, even), a history was refused for good: its tables held events,
    and nothing said any more up to where."""
    ids, left = {"shop.public.t": "before"}, [99]
    monkeypatch.setattr(run_history, "topic_ids", lambda *_: dict(ids))
    tables = {"shop.public.t": Table("public", "t", (Column("id", "integer", "int4"),), ("id",))}
    place: Any = SimpleNamespace(system_identifier="1")
    checkpoint = tmp_path / "log" / "checkpoint"

    def counted(made: Any, *given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return made(*given)

    monkeypatch.setattr(run_history, "write_atomic", partial(counted, write_atomic))
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda *given: counted(rename, *given))

    def bind(namespace: str) -> list[str]:
        made: Any = SimpleNamespace(sinks={"w": SimpleNamespace(namespace=namespace)}, topic=lambda table: table)
        made.name, made.engine = "shop", SimpleNamespace(state_dir=tmp_path / "state")
        return run_history._bind(made, place, "w", tmp_path, tables)

    def goes_on(namespace: str) -> None:
        """From its own place in the log, whatever was killed on the way."""
        left[0] = 99 if killed is None else killed - 1
        with nullcontext() if killed is None else suppress(KeyboardInterrupt):
            bind(namespace)
        left[0] = 99
        bind(namespace)
        assert json.loads((tmp_path / "identity.json").read_text())["namespace"] == namespace

    def holds() -> str | None:
        return (checkpoint / "of").read_text() if checkpoint.exists() else None

    def reads(namespace: str) -> None:
        checkpoint.mkdir(parents=True)
        (checkpoint / "of").write_text(namespace)

    bind("one")
    reads("one")
    goes_on("two")
    assert holds() is None, "it begins anew there"
    if killed is None:
        goes_on("one")
        assert holds() == "one", "it was set back at once"
        goes_on("two")
    reads("two")
    for _ in range(2):
        for namespace in ("one", "two"):
            goes_on(namespace)
            assert holds() == namespace
    (told,) = bind("one")
    assert told == "history of sink w: `namespace` is one, where it goes on from where it was; two stays as it is"
    assert bind("one") == []
    ids["shop.public.t"] = "anew"  # of what came meanwhile it is asked as ever
    of_the_same_key(monkeypatch, tables)
    with pytest.raises(TopicRecreated):
        bind("two")
    assert holds() == "two"


def test_topics_that_were_read_go_on_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a schema that is captured whole one table was dropped: Spark took that for a loss of data, for ever."""
    bound = dict.fromkeys(("public.kept", "public.dropped", "public.left_out"), "id")
    monkeypatch.setattr("operations.state.history.history_folder", lambda *_: tmp_path)
    assert topics_read(pipeline(), "w") == frozenset()
    (tmp_path / "identity.json").write_text(json.dumps({"topic_ids": bound}))
    kept, dropped, left_out, old = (Table("public", name, ()) for name in ("kept", "dropped", "left_out", "old"))
    catalogue = Catalogue(
        {one.qualified: one for one in (kept, left_out)}, gone={one.qualified: one for one in (dropped, old)}
    )
    monkeypatch.setattr(run_history, "root_tables", lambda *_: {kept.qualified: kept})
    made: Any = SimpleNamespace(pipeline=SimpleNamespace(topic=lambda table: table), folder=tmp_path, sink="w")
    read = run_history.tables_read(made, catalogue)
    assert read == {one.qualified: one for one in (kept, dropped, left_out)}, "and none that it never was bound to"
