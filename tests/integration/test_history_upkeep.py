"""A history's tables are kept by who appends to them, and nothing that is asked of a history is lost by it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.catalogue import Column, Table
from cdc.records.history import COLUMNS, as_of_sql
from cdc.view import View
from sinks.iceberg.history import CUT
from spark.flow import Flow
from spark.warehouse.commits import loaded
from spark.warehouse.history.history import Historian
from spark.warehouse.history.put_back import offsets_there
from spark.warehouse.history.tables import HistoryPlace, columns_of, properties_of
from spark.warehouse.upkeep import plan, steps
from spark.warehouse.upkeep.plan import DAY, Policy
from spark.warehouse.upkeep.steps import shorten, signs_of
from spark.warehouse.upkeep.turns import Turns
from spark.warehouse.upkeep.upkeep import Upkeep, read_note
from tests.support.plain_spark import lake_session

# PySpark leaves the sockets that rows came through to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.sampled(turn=0, of=2),
]
VIEW = View.identity(Table("public", "t", (Column("id", "int4", "int4"), Column("v", "text", "text")), ("id",)), "t")
MANY, BATCHES, ROWS, KEPT = 4, 14, 3, Policy()
DAY_MS = int(DAY * 1000)


class Clock:
    """Time, put forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Lake:
    """A history of one table whose records are made up: batch N has the offsets from N * ROWS on."""

    def __init__(self, spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.spark, self.folder, self.clock = spark, folder, Clock()
        # A process has one catalogue of the name, whatever folder the next session is told.
        self.place = HistoryPlace("hw_lake", f"n{folder.name}", "source", 1)
        self.place.make(spark, VIEW, new=True)
        self.table = self.place.name(VIEW)
        patch.setattr(Historian, "_rows", lambda _self, *given: self.rows(given[3][0], given[4][0]))
        (folder / "checkpoint" / "offsets").mkdir(parents=True)
        (folder / "checkpoint" / "metadata").write_text('{"id": "query"}')
        self.historian = self.started()

    def started(self, policy: Policy = KEPT) -> Historian:
        """One that knows nothing yet, as after a start."""
        spec = SimpleNamespace(topics={"t": ("t",)}, views={"t": VIEW})
        reading = SimpleNamespace(max_offsets=None)
        flow = SimpleNamespace(spec=spec, reading=reading, about={}, checkpoint=self.folder / "checkpoint")
        lease: Any = SimpleNamespace(check=lambda: None)
        turns = Turns(Upkeep(policy, self.folder, self.clock), self.clock)
        return Historian(self.place, cast(Flow, flow), lease, turns)

    def rows(self, start: int, end: int) -> DataFrame:
        """Changes of three rows, again and again."""
        schema = ", ".join(f"{name} {kind}" for name, kind in columns_of(VIEW).items())
        found = []
        for at in range(max(start, 0), end):
            ours = ["update", at + 100, at + 99, 1, None, 0, at, "source", None]
            found.append((at % 3, f"v{at}", *ours))
        assert len(COLUMNS) == len(found[0]) - 2
        return self.spark.createDataFrame(found, schema).coalesce(1)

    def batch(self, number: int, historian: Historian | None = None) -> None:
        """A batch, up to which Spark has not noted that it was done."""
        text = json.dumps({"t": {"0": (number + 1) * ROWS}})
        (self.folder / "checkpoint" / "offsets" / str(number)).write_text(f"v1\n{{}}\n{text}")
        frame: Any = SimpleNamespace(sparkSession=self.spark)
        (historian or self.historian)(frame, number)

    def signs(self) -> Any:
        return signs_of(self.spark, loaded(self.spark, self.table))

    def as_of(self, cut: int) -> dict[int, str]:
        self.spark.catalog.refreshTable(self.table)
        found = self.spark.sql(as_of_sql(["id", "v"], ["id"], self.table, cut, "`")).collect()
        return {row["id"]: row["v"] for row in found}

    def offsets(self) -> list[int]:
        self.spark.catalog.refreshTable(self.table)
        return sorted(row["_hw_offset"] for row in self.spark.table(self.table).collect())


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(plan, "MANY_FILES", MANY)
    monkeypatch.setattr(plan, "MANY_MANIFESTS", MANY)
    monkeypatch.setattr(plan, "MANY_EXPIRED", MANY)
    monkeypatch.setattr(plan, "ORPHANS_EVERY", 100 * DAY)  # some seconds each
    monkeypatch.setattr(plan, "REST", 0.0)
    monkeypatch.setattr(plan, "RARE_REST", 0.0)
    with lake_session(tmp_path) as spark:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        yield Lake(spark, tmp_path, monkeypatch)


def test_files_and_snapshots_are_bounded_and_every_event_cut_and_name_stays(lake: Lake, tmp_path: Path) -> None:
    """Each batch appended a file and a snapshot to each changed table, and none was ever put together or expired."""
    cut = 5 * ROWS + 99
    files = list[int]()
    for number in range(BATCHES):
        lake.batch(number)
        if number == 4:
            lake.spark.sql(f"ALTER TABLE {lake.table} CREATE TAG november")
            lake.spark.sql(f"ALTER TABLE {lake.table} SET TBLPROPERTIES ('{CUT}november'='{{}}')")
            before = lake.as_of(cut)
        lake.clock.ahead += 3 * DAY if number == BATCHES // 2 else 60.0
        files.append(lake.signs().files)
    signs, events = lake.signs(), BATCHES * ROWS
    assert max(files) <= 2 * MANY and len(signs.snapshots) < BATCHES, (files, signs)
    assert {"compact", "expire"} <= read_note(tmp_path)["t_history"]["steps"].keys()
    assert lake.offsets() == list(range(events)) and offsets_there(lake.spark, lake.table) == {0: events}
    assert lake.as_of(cut) == before == {0: "v12", 1: "v13", 2: "v14"}
    tagged = lake.spark.sql(f"SELECT * FROM {lake.table} VERSION AS OF 'november'").count()
    assert tagged == 5 * ROWS and CUT + "november" in properties_of(lake.spark, lake.table)


def test_a_batch_that_was_cut_behind_its_upkeep_is_not_appended_twice(lake: Lake) -> None:
    """Compaction's commit, which says nothing of a batch, is the newest then; and all older ones may have gone."""
    for number in range(10 * MANY):
        lake.batch(number)
        lake.clock.ahead += 3 * DAY if number == MANY else 60.0
        signs = lake.signs()
        marks = next(one.marks for one in signs.snapshots if one.id == signs.current)
        if number > 2 * MANY and not marks:
            break
    assert not marks and len(signs.snapshots) < number
    lake.batch(number, lake.started())
    assert lake.offsets() == list(range((number + 1) * ROWS))


def test_marks_of_an_older_query_that_are_carried_on_do_not_lead_back(lake: Lake) -> None:
    for number in range(3):
        lake.batch(number)
    late = loaded(lake.spark, lake.table).newFastAppend()
    late.set("headwater.query-id", "older").set("headwater.offsets", '{"0":1}').commit()
    lake.spark.catalog.refreshTable(lake.table)
    assert offsets_there(lake.spark, lake.table) == {0: 3 * ROWS}


def test_maintenance_false_leaves_a_history_alone(lake: Lake) -> None:
    historian = lake.started(Policy(on=False))
    for number in range(MANY + 2):
        lake.batch(number, historian)
    assert lake.signs().files == MANY + 2


def test_what_has_gathered_before_goes_at_once_and_takes_no_mark_or_tag(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compare the files of 20,000 snapshots with those that stay took longer than the log keeps every event."""
    historian = lake.started(Policy(on=False))
    for number in range(6):
        lake.batch(number, historian)
        if not number:
            lake.spark.sql(f"ALTER TABLE {lake.table} CREATE TAG november")
    monkeypatch.setattr(steps, "FAR_TOO_MANY", 2)
    monkeypatch.setattr(plan, "HOUR", 0.001)  # each is the newest one of its own
    second = lake.signs().snapshots[2].id
    loaded(lake.spark, lake.table).expireSnapshots().expireSnapshotId(second).expireOlderThan(DAY_MS).commit()
    assert shorten(lake.spark, lake.table, Policy(on=False), time.time() + DAY) == 0
    assert shorten(lake.spark, lake.table, Policy(), time.time()) == 0, "all are young"
    assert shorten(lake.spark, lake.table, Policy(snapshot_days=2), time.time() + DAY) == 0, "promised for two days"
    assert shorten(lake.spark, lake.table, Policy(), time.time() + DAY) == 3
    assert offsets_there(lake.spark, lake.table) == {0: 6 * ROWS} and lake.offsets() == list(range(6 * ROWS))
    assert lake.spark.sql(f"SELECT * FROM {lake.table} VERSION AS OF 'november'").count() == ROWS
