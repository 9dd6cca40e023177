"""A batch into a large table gives what one MERGE gives, is seen at once, or not at all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from cdc.catalogue import Column, Table
from cdc.join.expressions import quoted
from cdc.view import View
from sinks.contract import UNVERSIONED
from spark.warehouse import large_merge
from spark.warehouse import marks as marked
from spark.warehouse.commits import History, loaded
from spark.warehouse.counted import told
from spark.warehouse.large_merge import BRANCH, CHANGES, _known, held, held_bytes, merge_new, merge_small
from spark.warehouse.merge import GONE, merge_statement
from spark.warehouse.table import create_table
from spark.warehouse.upkeep.plan import Act, Policy
from spark.warehouse.upkeep.steps import do, signs_of
from spark.warehouse.upkeep.upkeep import is_conflict
from tests.support.plain_spark import lake_session

# PySpark leaves the sockets that rows come through to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.sampled(part=0),
]
COLUMNS = ("a", "b", "v", "_hw_version")
# Two columns of a key; of each: newer, older, gone, gone without a version, gone and older, new, gone and never there.
THERE = [(1, "x", "old", 10), (2, "x", "newer", 50), (3, "y", "old", 10), (4, "y", "old", 10), (5, "z", "newer", 50)]
BATCH = [
    (1, "x", "new", 20, False),
    (2, "x", "stale", 40, False),
    (3, "y", None, 20, True),
    (4, "y", None, UNVERSIONED, True),
    (5, "z", None, 40, True),
    (6, "x", "added", 20, False),
    (7, "x", None, 20, True),
    (1, "other half of a key", "added", 20, False),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with lake_session(tmp_path_factory.mktemp("lake")) as session:
        session.sql("CREATE NAMESPACE hw_lake.n")
        yield session


def table(spark: SparkSession, name: str, form: str = "3") -> str:
    made = f"`hw_lake`.`n`.`{name}`"
    spark.sql(
        f"CREATE TABLE {made} (a int, b string, v string, _hw_version bigint) USING iceberg TBLPROPERTIES "
        f"('format-version'='{form}', 'write.merge.mode'='merge-on-read')"
    )
    spark.createDataFrame(THERE, "a int, b string, v string, _hw_version bigint").writeTo(made).append()
    return made


def batch(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(BATCH, f"a int, b string, v string, _hw_version bigint, {GONE} boolean")


def rows(spark: SparkSession, name: str) -> list[Any]:
    spark.catalog.refreshTable(name)
    return sorted(tuple(row) for row in spark.table(name).collect())


def small(spark: SparkSession, name: str, merge: Callable[..., Any] = merge_small) -> Any:
    keys = ["a", "b"]
    return merge(name, batch(spark), keys, partial(merge_statement, keys=keys, columns=COLUMNS, new=False), GONE)


@pytest.mark.parametrize("merge", [merge_small, merge_new])
def test_it_gives_what_one_merge_gives_and_once_more_changes_nothing(
    spark: SparkSession, merge: Callable[..., Any]
) -> None:
    one, other = table(spark, f"one_{merge.__name__}"), table(spark, f"other_{merge.__name__}")
    batch(spark).createOrReplaceTempView(CHANGES)
    spark.sql(merge_statement(other, ["a", "b"], COLUMNS))
    loaded(spark, one).manageSnapshots().createBranch(BRANCH).commit()  # a batch that was cut has left it
    small(spark, one, merge)
    expected = rows(spark, other)
    assert rows(spark, one) == expected
    assert [(row[:3]) for row in expected] == [
        (1, "other half of a key", "added"),
        (1, "x", "new"),
        (2, "x", "newer"),
        (5, "z", "newer"),
        (6, "x", "added"),
    ]
    small(spark, one, merge)
    assert rows(spark, one) == expected
    assert list(loaded(spark, one).refs()) == ["main"]


def test_rows_of_which_none_is_there_are_appended_and_only_files_that_may_have_them_are_read(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, keys = table(spark, "filled"), ["a", "b"]
    added = [(number, "x", "added", 20, False) for number in range(100, 200)] + [(200, "x", None, 20, True)]
    frame = spark.createDataFrame(added, f"a int, b string, v string, _hw_version bigint, {GONE} boolean")
    looked = _known(frame, made, keys)
    plan = looked._jdf.queryExecution().executedPlan().toString()
    assert "a >= 100" in plan and "a <= 200" in plan, plan
    monkeypatch.setattr(large_merge, "_change", None)  # no MERGE
    before = loaded(spark, made).currentSnapshot().snapshotId()
    assert merge_new(made, frame, keys, str, GONE)
    assert rows(spark, made) == sorted([*THERE, *(row[:4] for row in added[:-1])])
    assert commits_since(spark, made, before) == 1


@pytest.mark.parametrize(("limit", "most"), [("SMALL_RECORDS", 4), ("SMALL_BYTES", 1)])
def test_a_batch_of_which_too_much_is_there_is_left_to_one_merge(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    made = table(spark, f"left_{limit}")
    monkeypatch.setattr(large_merge, limit, most)  # five rows of the batch are there
    before = loaded(spark, made).currentSnapshot().snapshotId()
    assert small(spark, made, merge_new) is False
    handle = loaded(spark, made)
    handle.refresh()
    assert list(handle.refs()) == ["main"] and handle.currentSnapshot().snapshotId() == before


def test_rows_are_held_until_the_end_and_no_longer(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="cut"), held(batch(spark)) as kept:
        assert kept.count() == len(BATCH) and held_bytes(kept) > 0
        raise ValueError("cut")
    assert held_bytes(kept) == 0


def test_the_batch_goes_to_every_task_and_the_table_is_not_sorted(spark: SparkSession) -> None:
    """As the engine's batches are: held, and of a size that Spark does not know."""
    made, plans = table(spark, "sent"), list[str]()
    held = batch(spark).repartition(2).localCheckpoint()
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")

    def change(name: str) -> str:
        statement = merge_statement(name, ["a", "b"], COLUMNS, new=False)
        plans.append(spark.sql(f"EXPLAIN {statement}").collect()[0][0])
        return statement

    merge_small(made, held, ["a", "b"], change, GONE)
    assert len(plans) == 1 and "BroadcastHashJoin" in plans[0] and "SortMergeJoin" not in plans[0]
    assert spark.conf.get("spark.sql.autoBroadcastJoinThreshold") == before
    # So it would be.
    held.createOrReplaceTempView(CHANGES)
    statement = merge_statement(made, ["a", "b"], COLUMNS, new=False)
    assert "SortMergeJoin" in spark.sql(f"EXPLAIN {statement}").collect()[0][0]


def commits_since(spark: SparkSession, name: str, before: int) -> int:
    """How many commits lie between a snapshot and the current one, to which readers were led at once."""
    handle = loaded(spark, name)
    handle.refresh()
    log, snapshot, count = handle.history(), handle.currentSnapshot(), 0
    assert log.get(log.size() - 2).snapshotId() == before
    while snapshot.snapshotId() != before:
        snapshot, count = handle.snapshot(snapshot.parentId()), count + 1
    return count


@pytest.mark.parametrize("form", ["2", "3"])
def test_a_second_pass_is_made_where_a_row_may_be_new_and_only_there(spark: SparkSession, form: str) -> None:
    """What a commit has deleted is counted of deletion vectors, which hold what was deleted before as well."""
    made, names = table(spark, f"passes{form}", form), ["a", "b"]
    held = {row[:2]: row for row in rows(spark, made)}
    keys = sorted(held)
    ended = (*keys[0], None, UNVERSIONED, True)
    changed = [(*key, "again", 50, False) for key in keys[1:3]]
    for number, (changes, commits) in enumerate(
        [
            (changed[:1], 1),
            (changed, 1),  # one of them for the second time: its file has deletes
            ([*changed[:1], ended], 1),
            ([*changed[:1], ended], 2),  # the delete finds nothing
            ([(*changed[1][:3], 49, False)], 2),  # older: it changes nothing
            ([*changed, (77, "q", "added", 60, False)], 2),
            ([(78, "q", "added", 60, False), (78, "r", "added", 60, False), (79, "q", None, 60, True)], 1),
            ([(78, "q", "newer", 61, False), (78, "s", "added", 60, False), (80, "q", "added", 60, False)], 2),
            ([(79, "q", "added", 60, False), (80, "r", "added", 60, False)], 2),
            ([], 2),
        ]
    ):
        frame = spark.createDataFrame(changes, f"a int, b string, v string, _hw_version bigint, {GONE} boolean")
        before = loaded(spark, made).currentSnapshot().snapshotId()
        merge_small(made, frame, names, partial(merge_statement, keys=names, columns=COLUMNS, new=False), GONE)
        for a, b, value, version, gone in changes:
            if gone:
                held.pop((a, b), None)
            elif version >= held.get((a, b), (0, 0, 0, 0))[3]:
                held[a, b] = (a, b, value, version)
        assert rows(spark, made) == sorted(held.values()), number
        assert commits_since(spark, made, before) == commits, number


def test_a_file_is_of_several_row_groups_so_that_one_reader_has_work_for_several_threads(spark: SparkSession) -> None:
    """Also of a table that was made before that; who has chosen a size keeps it."""
    columns = (Column("id", "bigint", "int8"), Column("v", "text", "text"))
    view = View.identity(Table("public", "grouped", columns, ("id",)))
    for made, size in (("new", None), ("before", None), ("chosen", "1048576")):
        name = f"`hw_lake`.`n`.`grouped_{made}`"
        if made != "new":
            said = f"TBLPROPERTIES ('write.parquet.row-group-size-bytes'='{size}')" if size else ""
            spark.sql(f"CREATE TABLE {name} (id bigint, v string, _hw_version bigint) USING iceberg {said}")
        create_table(spark, name, view, {}, version=3)
        filled = spark.range(0, 400_000, 1, 1).selectExpr("id", "sha2(string(id), 512) v", "1L _hw_version")
        filled.writeTo(name).append()
        (file,) = spark.sql(f"SELECT file_path FROM {name}.files").collect()
        groups = pq.ParquetFile(file.file_path.removeprefix("file:")).metadata.num_row_groups
        assert (2 <= groups <= 10) if size is None else groups > 20, (made, groups)


@pytest.mark.parametrize("kind", ["int", "bigint", "smallint", "string"])
def test_rows_that_no_file_can_have_are_appended_and_their_keys_not_looked_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As numbers of a sequence are; of texts Iceberg keeps no whole bounds, so they are looked for."""
    made, keys = f"`hw_lake`.`n`.`sequence_{kind}`", ["a"]
    modes = "'format-version'='3', 'write.merge.mode'='merge-on-read'"
    spark.sql(f"CREATE TABLE {made} (a {kind}, v string, _hw_version bigint) USING iceberg TBLPROPERTIES ({modes})")
    spark.sql(f"INSERT INTO {made} SELECT CAST(id + 100 AS {kind}), 'old', 1 FROM range(100)")
    looked = list[str]()
    read = SparkSession.table

    def table(name: str) -> DataFrame:
        if sys._getframe(1).f_globals["__name__"] == merge_small.__module__:  # who appends asks for its columns alone
            looked.append(name)
        return read(spark, name)

    monkeypatch.setattr(spark, "table", table, raising=False)
    held = {row.a: (row.v, row._hw_version) for row in read(spark, made).collect()}
    steps: list[tuple[list[tuple[int, str | None]], int]] = [
        ([(200, "new"), (201, "new")], 0),
        ([(200, "changed"), (150, "changed"), (202, "new"), (203, "new")], 0),
        ([(150, "changed"), (99, "new"), (204, "new")], 1),  # one new that lies before
        ([(150, "changed"), (205, "new"), (300, None)], 0),  # there is none to delete
        ([(206, "new"), (205, None)], 0),
        ([(207, "new"), (206, "changed"), (205, None)], 1),  # what was deleted is not there any more
    ]
    for step, (changes, looks) in enumerate(steps):
        version, looked[:] = step + 2, []
        given = [(str(key) if kind == "string" else key, value, version, value is None) for key, value in changes]
        frame = spark.createDataFrame(given, f"a {kind}, v string, _hw_version bigint, {GONE} boolean")
        change = partial(merge_statement, keys=keys, columns=["a", "v", "_hw_version"], new=False)
        merge_small(made, frame, keys, change, GONE)
        for key, value, _, gone in given:
            held.pop(key, None)
            if not gone:
                held[key] = (value, version)
        spark.catalog.refreshTable(made)
        assert {row.a: (row.v, row._hw_version) for row in read(spark, made).collect()} == held, step
        assert kind == "string" or len(looked) == looks, step
    assert read(spark, made).count() == len(held)


@pytest.mark.parametrize("merge", [merge_small, merge_new])
def test_nothing_is_seen_of_it_if_somebody_else_has_committed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, merge: Callable[..., Any]
) -> None:
    one = table(spark, f"busy_{merge.__name__}")
    marks = {marked.QUERY: merge.__name__, marked.BATCH: "7", marked.OFFSETS: "{}"}

    def marking() -> None:
        for name, value in marks.items():
            spark.conf.set(f"spark.sql.iceberg.snapshot-property.{name}", value)

    def intrude(statement: str, *given: Any, **named: Any) -> Any:
        done = SparkSession.sql(spark, statement, *given, **named)
        if statement.startswith("MERGE"):
            for name in marks:
                spark.conf.unset(f"spark.sql.iceberg.snapshot-property.{name}")
            SparkSession.sql(spark, f"INSERT INTO {one} VALUES (6, 'x', 'of somebody else', 30)")
            marking()
        return done

    monkeypatch.setattr(spark, "sql", intrude, raising=False)
    before = rows(spark, one)
    marking()
    with pytest.raises(IllegalArgumentException) as failed:
        small(spark, one, merge)
    assert is_conflict(str(failed.value))
    spark.catalog.refreshTable(one)
    assert not History(spark, one).holds(marks), "what nobody has seen is not done"
    monkeypatch.undo()
    assert rows(spark, one) == sorted([*before, (6, "x", "of somebody else", 30)])
    small(spark, one, merge)
    spark.catalog.refreshTable(one)
    assert History(spark, one).holds(marks)
    assert [row for row in rows(spark, one) if row[0] == 6] == [(6, "x", "of somebody else", 30)]


def test_the_step_between_goes_at_once_and_the_batch_is_still_known(spark: SparkSession) -> None:
    """Also that of a batch which was cut; what was there before may be read by somebody."""
    made, now = table(spark, "steps"), time.time()
    marks = {marked.QUERY: "steps", marked.BATCH: "7", marked.OFFSETS: "{}"}
    for name, value in marks.items():
        spark.conf.set(f"spark.sql.iceberg.snapshot-property.{name}", value)
    with pytest.raises(ValueError, match="cut"), large_merge._on_branch(loaded(spark, made), made) as branch:
        batch(spark).drop(GONE).limit(1).writeTo(branch).append()
        raise ValueError("cut")
    small(spark, made)
    for name in marks:
        spark.conf.unset(f"spark.sql.iceberg.snapshot-property.{name}")
    spark.catalog.refreshTable(made)
    expected, signs = rows(spark, made), signs_of(spark, loaded(spark, made))
    assert [one.seen for one in signs.snapshots] == [True, False, False, True]
    assert do(Act.EXPIRE, spark, made, signs, Policy(), now).startswith("2 snapshots expired")
    spark.catalog.refreshTable(made)
    assert [one.seen for one in signs_of(spark, loaded(spark, made)).snapshots] == [True, True]
    assert rows(spark, made) == expected and History(spark, made).holds(marks)


def test_what_is_observed_of_a_batch_is_told_whichever_way_it_goes(spark: SparkSession) -> None:
    """A small batch is held by a checkpoint of the session; a frame that comes to nothing may be planned away."""
    for frame, count in ((batch(spark), len(BATCH)), (batch(spark).where("a > 100"), 0)):
        seen = Observation()
        frame.observe(seen, F.count("*").alias("records")).groupBy("a").agg(F.max("v")).localCheckpoint()
        assert told(seen).get("records", 0) == count


def test_how_much_a_batch_holds_is_known(spark: SparkSession) -> None:
    for size in (100, 10_000):
        frame = spark.range(0, 1000, 1, 2).select("id", F.expr(f"repeat(uuid(), {size // 36 + 1})").alias("v"))
        held = held_bytes(frame.localCheckpoint())
        assert 1000 * size < held < 3000 * size + 500_000, size


@pytest.mark.parametrize("merge", [merge_small, merge_new])
def test_a_name_may_have_points_and_quotes(spark: SparkSession, merge: Callable[..., Any]) -> None:
    keys = ["a.b", "it`s \"'"]
    columns, named = [*keys, "v", "_hw_version"], ", ".join(f"{quoted(name)} string" for name in [*keys, "v"])
    made = f"`hw_lake`.`n`.`named_{merge.__name__}`"
    spark.sql(f"CREATE TABLE {made} ({named}, _hw_version bigint) USING iceberg TBLPROPERTIES ('format-version'='3')")
    spark.createDataFrame([("1", "x", "old", 1)], f"{named}, _hw_version bigint").writeTo(made).append()
    changes = [("1", "x", "new", 2, False), ("2", "y", "added", 2, False)]
    frame = spark.createDataFrame(changes, f"{named}, _hw_version bigint, {GONE} boolean")
    merge(made, frame, keys, partial(merge_statement, keys=keys, columns=columns, new=False), GONE)
    assert rows(spark, made) == [row[:4] for row in changes]
