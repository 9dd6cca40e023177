"""A history that was put back, by a rollback or with its catalogue, is seen to lack what was written to it since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as Lake

from cdc.catalogue import Column, Table
from cdc.errors import LogTruncated, SinkUnavailable
from cdc.log.ends import Offsets
from cdc.view import View
from spark import shorter
from spark.disk.applied import FILE, applied_offsets
from spark.disk.checkpoint import committed_offsets, planned
from spark.reading.spec import FlowSpec
from spark.warehouse.history import history, put_back
from spark.warehouse.history.put_back import read_lost, taken_back
from spark.warehouse.marks import OFFSETS, offsets_said

ROW = pa.table({"v": [1]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t_history", ROW.schema)
    yield table
    catalog.close()


def written(lake: Lake, *ends: int | None) -> list[int]:
    """Appends up to these offsets, or (None) of upkeep, which says none; their snapshots."""
    found = []
    for end in ends:
        lake.append(ROW, {} if end is None else {OFFSETS: json.dumps({"0": end, "1": 7})})
        snapshot = lake.current_snapshot()
        assert snapshot is not None
        found.append(snapshot.snapshot_id)
    return found


def said(lake: Lake) -> dict[int, int]:
    return offsets_said(json.loads(lake.refresh().metadata.model_dump_json()))


def test_what_a_rollback_has_left_behind_tells_of_nothing_that_is_there(lake: Lake) -> None:
    assert said(lake) == {}
    first, _, _, last = written(lake, 3, 6, None, 9)
    assert said(lake) == {0: 9, 1: 7}
    lake.manage_snapshots().rollback_to_snapshot(first).commit()
    assert said(lake) == {0: 3, 1: 7}
    written(lake, None, 4)
    assert said(lake) == {0: 4, 1: 7}
    lake.manage_snapshots().set_current_snapshot(last).commit()  # and led back to where it was
    assert said(lake) == {0: 9, 1: 7}


def test_a_snapshot_behind_some_that_upkeep_has_expired_tells_all_the_same(lake: Lake) -> None:
    """The line of parents ends at those, and the log of those that were current begins behind them."""
    _, between, _ = written(lake, 9, None, None)
    lake.maintenance.expire_snapshots().by_id(between).commit()
    assert said(lake) == {0: 9, 1: 7}


class Spark:
    """A session whose tables have a row of the log's offset 8 in partition 1, and none behind it elsewhere."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def table(self, _: str) -> Any:
        return self

    def where(self, condition: str) -> Any:
        self.asked.append(condition)
        return self

    def limit(self, _: int) -> Any:
        return self

    def isEmpty(self) -> bool:
        return "(_hw_partition = 1 AND _hw_offset >= 7)" not in self.asked[-1]


@pytest.mark.parametrize(
    ("applied", "lacks"),
    [
        ({0: 9, 1: 7}, {}),  # as it was left
        ({0: 12, 1: 7}, {0: 9}),
        ({0: 12, 1: 8}, {}),  # somebody has expired those that said so: the rows are there
        ({0: 5, 2: 4}, {}),  # killed between the append and the commit; a partition that is new
    ],
)
def test_a_table_that_says_less_than_was_written_and_has_no_row_of_it_was_put_back(
    monkeypatch: pytest.MonkeyPatch, applied: dict[int, int], lacks: dict[int, int]
) -> None:
    monkeypatch.setattr(put_back, "offsets_there", lambda *_: {0: 9, 1: 7})
    spark: Any = Spark()
    assert taken_back(spark, "t", applied) == lacks


def test_one_of_before_snapshots_said_so_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_back, "offsets_there", lambda *_: {})
    spark: Any = Spark()
    assert taken_back(spark, "t", {0: 9}) == {} and spark.asked == []


VIEWS = {name: View.identity(Table("public", name, (Column("id", "int4", "int4"),), ("id",)), name) for name in "tu"}


class Place:
    """Where tables are; gaps that were noted."""

    def __init__(self) -> None:
        self.gaps: list[Any] = []

    def name(self, view: View) -> str:
        return f"n.{view.name}_history"

    def note_gap(self, _spark: object, sink: str, moments: tuple[float, float], starts: Offsets, why: str) -> None:
        self.gaps.append((sink, moments, starts, why))

    def check(self, *_: object) -> None: ...


class Log:
    """A log that begins at an offset, and ends at one."""

    begin, end = 0, 99

    def __init__(self, *_: object) -> None: ...

    def bounds(self, topics: Any) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
        return {topic: {0: self.begin} for topic in topics}, {topic: {0: self.end} for topic in topics}

    def close(self) -> None: ...


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A history of t and u, of which u was put back from 7 to 2."""
    for what, text in (("offsets", 'v1\n{}\n{"t":{"0":9},"u":{"0":7}}'), ("commits", "v1\n{}")):
        (tmp_path / "checkpoint" / what).mkdir(parents=True)
        (tmp_path / "checkpoint" / what / "4").write_text(text)
    (tmp_path / "checkpoint/offsets/5").write_text('v1\n{}\n{"t":{"0":9},"u":{"0":8}}')
    (tmp_path / FILE).write_text('{"batch": 4, "offsets": {"t": {"0": 9}, "u": {"0": 7}}}')
    monkeypatch.setattr(put_back, "LogEnds", Log)
    monkeypatch.setattr(put_back, "taken_back", lambda _, name, at: {0: 2} if name[2] == "u" else {})
    return SimpleNamespace(
        spec=FlowSpec("lake", VIEWS, {"t": ("t",), "u": ("u",)}, {}, {}, {}),
        reading=SimpleNamespace(bootstrap="", client={}, tombstone_seconds=100),
        folder=tmp_path,
        checkpoint=tmp_path / "checkpoint",
        is_new=False,
    )


def test_what_such_a_table_lacks_is_read_again_and_what_may_be_compacted_is_noted(
    flow: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows were gone, and cuts in between were called complete; rows that did not change again stayed old."""
    place, spark = Place(), object()
    read_lost(spark, flow, place)  # type: ignore[arg-type]
    ((sink, (since, until), starts, why),) = place.gaps
    assert (sink, since, starts) == ("lake", 0.0, {"u": {0: 2}}) and until > 0
    assert why.endswith("compacted since: u")
    assert "n.u_history was put back to an older state" in caplog.text
    # Until it has read it, no cut is made: it is not told to be applied.
    assert committed_offsets(flow.checkpoint) == (4, {"t": {0: 9}}) and planned(flow.checkpoint) == 4
    assert applied_offsets(flow.folder) == {"t": {0: 9}}
    read_lost(spark, flow, place)  # type: ignore[arg-type]
    assert len(place.gaps) == 1, "its start was killed"


def test_what_the_log_has_lost_of_it_is_refused_and_stays_so(flow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "begin", 3)
    for _ in range(2):
        with pytest.raises(LogTruncated, match="u/0 begins at 3, it is at 2"):
            read_lost(object(), flow, Place())  # type: ignore[arg-type]


def test_a_log_that_was_put_back_with_the_tables_is_refused_and_stays_so(
    flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine was restored from an older copy: the place in the log was forgotten before anybody held it against the
    log's end, and what came to stand in the lost places was taken for what had been there."""
    monkeypatch.setattr(shorter, "SHORTER_SECONDS", 0.0)
    monkeypatch.setattr(Log, "end", 5)
    place = Place()
    for ends in ("ends", "ended"):
        with pytest.raises(LogTruncated, match=f"has read t/0 up to 9, and it {ends} at 5") as error:
            read_lost(object(), flow, place)  # type: ignore[arg-type]
        assert "headwater resnapshot FILE --all" in error.value.fix and "another namespace" in error.value.fix
        monkeypatch.setattr(Log, "end", 99)  # the tables were read again
    assert place.gaps == [] and committed_offsets(flow.checkpoint)[1] == {"t": {0: 9}, "u": {0: 7}}
    (flow.folder / shorter.SHORTER).unlink()
    read_lost(object(), flow, place)  # type: ignore[arg-type]
    assert len(place.gaps) == 1


def test_a_table_that_is_put_back_under_a_history_that_runs_is_written_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec: Any = SimpleNamespace(topics={"u": ("u",)}, views=VIEWS)
    free: Any = SimpleNamespace(check=lambda: None, wrote=lambda _: None)
    frame, place = Appended(), Place()
    place.begins = lambda *_: 0  # type: ignore[attr-defined]
    historian = history.Historian(place, SimpleNamespace(spec=spec), free, free)  # type: ignore[arg-type]
    monkeypatch.setattr(history, "offsets_there", lambda *_: {0: 2})
    monkeypatch.setattr(history, "columns_there", lambda *_: {})
    monkeypatch.setattr(history, "with_former", lambda *_: frame)
    monkeypatch.setattr(historian, "_rows", lambda *_: None)
    monkeypatch.setattr(history, "current_snapshot", lambda *_: frame.snapshot)
    asked: list[Any] = []
    monkeypatch.setattr(history, "taken_back", lambda *given: asked.append(given[1:]) or lacking)
    lacking: dict[int, int] = {}
    spark: Any = object()
    historian._append(spark, "u", {0: 2}, {0: 5}, {})
    historian._append(spark, "u", {0: 5}, {0: 6}, {})
    assert asked == [], "it is as it was left"
    frame.snapshot = 40  # of upkeep
    historian._append(spark, "u", {0: 6}, {0: 7}, {})
    assert asked == [("n.u_history", {0: 6})] and frame.snapshot == 41
    frame.snapshot, lacking[0] = 1, 5  # of a rollback
    with pytest.raises(SinkUnavailable, match="was put back to an older state"):
        historian._append(spark, "u", {0: 7}, {0: 8}, {})
    assert frame.snapshot == 1


class Appended:
    """What is written, each time another snapshot."""

    snapshot = 0

    def writeTo(self, _: str) -> Any:
        return self

    def option(self, *_: object) -> Any:
        return self

    def append(self) -> None:
        self.snapshot += 1


def test_a_start_looks_at_its_tables_once_they_are_claimed_and_before_the_log_is_read(
    flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("_put_aside", "read_again", "note_gap", "shorten"):
        monkeypatch.setattr(history, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(history, "still_written", lambda _spark, flow, *_: flow.spec)
    monkeypatch.setattr(history, "replace", lambda one, **_: one)
    place: Any = Place()
    place.make = lambda *_, new: done.append("make")

    def read(*_: object) -> None:
        done.append("read_lost")
        raise KeyboardInterrupt

    monkeypatch.setattr(history, "read_lost", read)
    lease: Any = SimpleNamespace(check=lambda: None)
    with pytest.raises(KeyboardInterrupt):
        history.start_history(cast(Any, None), flow, place, lease, (), cast(Any, None))
    assert done == ["_put_aside", "read_again", "make", "shorten", "make", "shorten", "read_lost"]
