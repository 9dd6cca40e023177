"""Tables of history, made and made again by Spark in an Iceberg catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import Row, SparkSession

from cdc.catalogue import Column, Table
from cdc.errors import SinkRefused
from cdc.records.history import AFTER, OFFSET, OP, PARTITION, POSITION, TIME, as_of_sql, versions_sql
from cdc.view import View
from sinks.iceberg.history import BEGINS, KEY
from spark.flow import Flow, Reading
from spark.reading.record import RECORD_DDL
from spark.reading.spec import FlowSpec
from spark.warehouse.commits import loaded
from spark.warehouse.history import history
from spark.warehouse.history.history import BEGUN, Historian, places_held, still_written
from spark.warehouse.history.rows import Place
from spark.warehouse.history.tables import HistoryPlace, columns_there, properties_of
from spark.warehouse.table import create_table
from tests.support.plain_spark import lake_session

# PySpark leaves the sockets that rows come through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
COLUMNS = (Column("id", "int4", "int4", ordinal=1), Column("branch", "int4", "int4", ordinal=2))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with lake_session(tmp_path_factory.mktemp("lake")) as session:
        yield session


def view_of(*columns: Column, key: tuple[str, ...] = ("id",), **more: Any) -> View:
    return View.identity(Table("public", "t", columns, key, **more), "public.t")


def test_a_history_keeps_the_key_that_its_rows_have_had(spark: SparkSession) -> None:
    """Opened between another key and ``apply`` it took that one for its own, and was refused for good afterwards."""
    place = HistoryPlace("hw_lake", "keys", "source", 1)
    for key in (("id",), ("id", "branch")):
        view = view_of(*COLUMNS, key=key)
        place.make(spark, view, new=key == ("id",))
    assert json.loads(properties_of(spark, place.name(view))[KEY]) == ["id"]


def write(spark: SparkSession, table: str, at: int, **row: Any) -> None:
    """A row of history, at a place in the log."""
    there = spark.table(table).schema
    given = {OP: "update", POSITION: at, AFTER: at, OFFSET: at, **row}
    values = Row(*(given.get(name) for name in there.names))
    spark.createDataFrame([values], there).writeTo(table).append()


def test_a_history_that_somebody_has_dropped_is_refused_until_it_is_restored(
    spark: SparkSession, tmp_path: Any
) -> None:
    """A new one was made in its place, empty, and cuts showed that there had been nothing."""
    place, view = HistoryPlace("hw_lake", "gone", "source", 1), view_of(*COLUMNS)
    spec = FlowSpec("lake", {"public.t": view}, {"t": ("public.t",)}, {"t": view.table}, {}, {})
    flow: Any = SimpleNamespace(spec=spec, folder=tmp_path, is_new=False)
    place.make(spark, view, new=True)
    write(spark, place.name(view), 7, id=1, branch=5)
    (tmp_path / BEGUN).write_text('{"topics": ["t"]}')
    assert still_written(spark, flow, place, {"public.t"}) == spec
    metadata = loaded(spark, place.name(view)).operations().current().metadataFileLocation()
    spark.sql(f"DROP TABLE {place.name(view)}")
    for _ in range(2):
        with pytest.raises(SinkRefused, match=r"the history of public\.t is gone") as refused:
            still_written(spark, flow, place, {"public.t"})
    _, call, rest = refused.value.fix.partition("CALL ")
    spark.sql(call + rest.partition("); or")[0].replace("<its newest .metadata.json>", metadata) + ")")
    assert still_written(spark, flow, place, {"public.t"}) == spec
    place.make(spark, view, new=False)
    assert [row["branch"] for row in spark.table(place.name(view)).collect()] == [5]
    spark.sql(f"ALTER TABLE {place.name(view)} RENAME TO gone.renamed")
    with pytest.raises(SinkRefused, match="is gone"):
        still_written(spark, flow, place, {"public.t"})
    (tmp_path / BEGUN).write_text('{"topics": []}')  # as of one whose rows have another key, which was put aside
    assert still_written(spark, flow, place, {"public.t"}) == spec


def test_a_column_that_has_the_name_of_one_of_ours_stops_no_history(spark: SparkSession) -> None:
    place = HistoryPlace("hw_lake", "names", "source", 1)
    view = view_of(COLUMNS[0], Column("Valid_From", "text", "text", ordinal=2))
    place.make(spark, view, new=True)
    write(spark, place.name(view), 7, id=1, Valid_From="mine")
    (row,) = spark.sql("SELECT Valid_From, _hw_valid_from, is_current FROM hw_lake.names.t_versions").collect()
    assert tuple(row) == ("mine", None, True)


def test_versions_tell_a_zero_from_a_negative_one_and_their_view_is_made_anew_only_where_it_is_another(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To Spark both are one number: the view of an older Headwater took two rows for one."""
    place, view = HistoryPlace("hw_lake", "floats", "source", 1), view_of(Column("id", "float8", "float8"), COLUMNS[1])
    made, show = list[str](), HistoryPlace._show_versions

    def counted(self: HistoryPlace, spark: SparkSession, view: View) -> None:
        made.append(view.name)
        show(self, spark, view)

    monkeypatch.setattr(HistoryPlace, "_show_versions", counted)
    for new in (True, False):
        place.make(spark, view, new=new)
    assert len(made) == 1
    for at, row in enumerate((0.0, -0.0), start=7):
        write(spark, place.name(view), at, id=row, branch=at)
    versions = "SELECT branch FROM hw_lake.floats.t_versions WHERE is_current ORDER BY branch"
    assert [row["branch"] for row in spark.sql(versions).collect()] == [7, 8]
    older = versions_sql(["id", "branch"], ["id"], place.name(view), "`")
    spark.sql(f"CREATE OR REPLACE VIEW hw_lake.floats.t_versions AS {older}")
    assert [row["branch"] for row in spark.sql(versions).collect()] == [8]
    place.make(spark, view, new=False)
    assert len(made) == 2 and [row["branch"] for row in spark.sql(versions).collect()] == [7, 8]


def test_a_view_that_can_not_be_made_stops_no_history(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """One query writes the histories of all tables."""
    place, view = HistoryPlace("hw_lake", "views", "source", 1), view_of(*COLUMNS)
    spark.sql("CREATE NAMESPACE hw_lake.views")
    spark.sql("CREATE TABLE hw_lake.views.t_versions (id int) USING iceberg")
    place.make(spark, view, new=True)
    assert "`t_versions` is not made: " in caplog.text and "already exists" in caplog.text
    assert place.there(spark, view)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_cut_shows_a_renamed_column_and_not_the_dropped_one_whose_name_it_has(
    spark: SparkSession, at_once: bool
) -> None:
    place = HistoryPlace("hw_lake", f"renamed_{at_once}", "source", 1)
    name, old = Column("name", "text", "text", ordinal=2), Column("title", "text", "text", ordinal=3)
    view = view_of(COLUMNS[0], name, old)
    place.make(spark, view, new=True)
    write(spark, place.name(view), 7, id=1, name="kept", title="dropped")
    if not at_once:
        place.make(spark, view_of(COLUMNS[0], name), new=False)
    after = view_of(COLUMNS[0], replace(name, name="title"), renamed=(("name", "title"),))
    for _ in range(2):
        place.make(spark, after, new=False)
        cut = spark.sql(as_of_sql(["id", "title"], ["id"], place.name(view), 100, "`")).collect()
        assert [tuple(row) for row in cut] == [(1, "kept")]
    (held,) = spark.table(place.name(view)).collect()
    assert held["title__dropped"] == "dropped"


def test_a_name_that_changes_only_in_letter_case_stops_no_history(spark: SparkSession) -> None:
    place, note = HistoryPlace("hw_lake", "letters", "source", 1), Column("Note", "text", "text", ordinal=2)
    name = place.name(view_of(COLUMNS[0], note))
    place.make(spark, view_of(COLUMNS[0], note), new=True)
    write(spark, name, 7, id=1, Note="kept")
    renamed = view_of(COLUMNS[0], replace(note, name="note"), renamed=(("Note", "note"),))
    for _ in range(2):
        place.make(spark, renamed, new=False)
        cut = spark.sql(as_of_sql(["id", "note"], ["id"], name, 100, "`")).collect()
        assert [row.asDict() for row in cut] == [{"id": 1, "note": "kept"}]
    write(spark, name, 8, id=2, note="more")
    place.make(spark, view_of(COLUMNS[0]), new=False)
    another = view_of(COLUMNS[0], replace(note, name="NOTE", ordinal=3))
    for _ in range(2):
        place.make(spark, another, new=False)
    write(spark, name, 9, id=3, NOTE="anew")
    found = spark.table(name).orderBy("id").select("NOTE", "note__dropped").collect()
    assert [tuple(row) for row in found] == [(None, "kept"), (None, "more"), ("anew", None)]
    assert {"NOTE", "note__dropped"} <= set(spark.table("hw_lake.letters.t_versions").columns)


def test_a_views_table_follows_a_name_that_changes_in_letter_case(spark: SparkSession) -> None:
    """Its flow ended at every start."""
    name, view = Column("Name", "text", "text", ordinal=2), "hw_lake.letter_views.t"
    create_table(spark, view, view_of(COLUMNS[0], name), {}, version=3)
    spark.sql(f"INSERT INTO {view} VALUES (1, 'kept', 5)")
    renamed = view_of(COLUMNS[0], replace(name, name="name"), renamed=(("Name", "name"),))
    for _ in range(2):
        create_table(spark, view, renamed, {}, version=3)
        assert [row.asDict()["name"] for row in spark.table(view).collect()] == ["kept"]
    create_table(spark, view, view_of(COLUMNS[0], replace(name, name="NAME", ordinal=3)), {}, version=3)
    assert [row.asDict()["NAME"] for row in spark.table(view).collect()] == [None]


def test_how_far_a_table_has_come_is_told_of_each_partition(spark: SparkSession) -> None:
    place, view = HistoryPlace("hw_lake", "places", "source", 1), view_of(*COLUMNS)
    place.make(spark, view, new=True)
    name, moment = place.name(view), datetime(2026, 1, 1, tzinfo=UTC)
    assert places_held(spark, name, [0]) == {}
    write(spark, name, 70, id=1, **{PARTITION: 0, TIME: moment})
    write(spark, name, 50, id=1, **{PARTITION: 0, AFTER: 90, OFFSET: 71})  # a delete that was found late
    write(spark, name, 60, id=2, **{PARTITION: 1})
    at = int(moment.timestamp() * 1_000_000)
    assert places_held(spark, name, [0, 1, 2]) == {0: Place(70, 90, at), 1: Place(60, 60, 0)}


def test_a_slice_of_tombstones_alone_is_written_behind_what_its_table_holds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, view = HistoryPlace("hw_lake", "purge", "source", 1), view_of(*COLUMNS)
    place.make(spark, view, new=True)
    name = place.name(view)
    for key in (1, 2):
        write(spark, name, 70 + key, id=key, branch=5, **{PARTITION: 0})
    log = [(b'{"id": 1}', None, "t", 0, 74), (b'{"id": 2}', None, "t", 0, 76)]
    looked: list[Any] = []

    def read_slice(_spark: SparkSession, *, starts: Any, ends: Any, **_: Any) -> Any:
        looked.append((starts, ends))
        return spark.createDataFrame(log, RECORD_DDL).coalesce(1)

    monkeypatch.setattr(history, "read_slice", read_slice)
    spec = FlowSpec("lake", {"public.t": view}, {"t": ("public.t",)}, {"t": view.table}, {}, {})
    flow = Flow("_history", spec, Reading("", {}, None), tmp_path)
    quiet: Any = SimpleNamespace(check=lambda: None, wrote=lambda _table: None)
    historian = Historian(place, flow, quiet, quiet)
    historian._append(spark, "t", {0: 73}, {0: 77}, {"headwater.batch": "1"})
    assert len(looked) == 2, "once without what the table holds, and once with it"
    rows = spark.table(name).where(f"{OP} = 'delete'").orderBy(OFFSET).collect()
    assert [(row["id"], row[POSITION], row[AFTER], row[OFFSET]) for row in rows] == [(1, 72, 73, 74), (2, 72, 73, 76)]
    assert spark.sql(as_of_sql(["id"], ["id"], name, 100, "`")).isEmpty()
    assert spark.sql(as_of_sql(["id"], ["id"], name, 73, "`")).count() == 2
    assert spark.table("hw_lake.purge.t_versions").where("is_current").isEmpty()


@pytest.mark.parametrize("killed", [False, True])
def test_a_history_whose_key_gets_another_type_begins_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Its column was put aside: the key of all rows of before was null, so that each earlier cut showed one row of
    them, and each later one a row that was gone."""
    place = HistoryPlace("hw_lake", f"anew_{killed}", "source", 1)
    as_int = Table("public", "t", COLUMNS, ("id",))
    text = replace(as_int, columns=(Column("id", "text", "text", ordinal=1), COLUMNS[1]), since=500)
    (tmp_path / history.BEGUN).write_text('{"topics": ["p.t", "p.u"]}')

    def start(table: Table) -> None:
        view = View.identity(table, "t")
        spec = SimpleNamespace(sink="w", topics={"p.t": ("t",)}, views={"t": view})
        history._put_aside(spark, cast(Flow, SimpleNamespace(folder=tmp_path, spec=spec)), place)
        place.make(spark, view, new=False)

    start(as_int)
    assert BEGINS not in properties_of(spark, place.name(View.identity(as_int)))
    place.make(spark, View.identity(as_int), new=True)
    spark.sql(f"INSERT INTO {place.name(View.identity(as_int))} (id, _hw_op) VALUES (1, 'insert'), (2, 'insert')")
    begun = json.loads((tmp_path / history.BEGUN).read_text())
    assert begun == {"topics": ["p.t", "p.u"]}
    if killed:
        with monkeypatch.context() as cut, pytest.raises(RuntimeError):
            cut.setattr(HistoryPlace, "make", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("killed")))
            start(text)
    for _ in range(2):  # a start that finds it done leaves it
        start(text)
    assert json.loads((tmp_path / history.BEGUN).read_text()) == {"topics": ["p.u"]}
    name = place.name(View.identity(text))
    assert columns_there(spark, name)["id"] == "string" and spark.table(name).isEmpty()
    assert place.begins(spark, View.identity(text)) == 500
    former = name.replace("_history", "_history_by_id")
    assert [row["id"] for row in spark.table(former).orderBy("id").collect()] == [1, 2]
    assert "id__int" not in columns_there(spark, former)
    assert spark.table(name.replace("_history", "_versions")).isEmpty()
    tables = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN hw_lake.anew_{killed}").collect()}
    assert tables == {"t_history", "t_history_by_id"}


def test_another_databases_history_is_not_put_aside_by_who_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It had another name by then, and the pipeline that writes it was told that it is gone."""
    theirs, ours = (HistoryPlace("hw_lake", "others", source, 1) for source in ("theirs", "ours"))
    view = view_of(*COLUMNS)
    theirs.make(spark, view, new=True)
    text = view_of(Column("id", "text", "text", ordinal=1), COLUMNS[1])
    spec = SimpleNamespace(sink="w", topics={"p.t": ("t",)}, views={"t": text})
    history._put_aside(spark, cast(Flow, SimpleNamespace(folder=tmp_path, spec=spec)), ours)
    with pytest.raises(SinkRefused, match="history of another database"):
        ours.make(spark, text, new=True)
    assert theirs.there(spark, view) and columns_there(spark, theirs.name(view))["id"] == "int"
