"""A batch into a large table: at a cost that follows the batch, and is seen at once.

A MERGE that also inserts must keep every row of its source, so Spark can't send the source to the table's rows: it
shuffles and sorts the table's keys instead: ten times the table took five times as long (docs/decisions/warehouse.md).
A MERGE that only changes rows which are there sends the source around and passes over the keys once; what is new is
then appended. Both are done on a branch of the table, to which its readers are led by one commit at the end. That one
fails if anybody else has committed meanwhile: nothing is seen of the batch then, and it is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegralType, StringType

from cdc.join.expressions import quoted
from spark.warehouse.commits import loaded
from spark.warehouse.key_order import KeyOrder
from spark.warehouse.whose import append_rows

# From so many rows on a table is large (with 340,000 both ways take the same), and up to so many records and bytes a
# batch is small: it goes to every task and through the driver, whom some hundred documents of a megabyte would end.
LARGE_ROWS, SMALL_RECORDS, SMALL_BYTES = 500_000, 100_000, 64 << 20
# Spark's own estimate of a small batch may be as much: it goes by the columns' types, not by what is in them.
SENT_BYTES = 1 << 30
BRANCH, CHANGES = "headwater", "hw_changes"


def merge_small(table: str, rows: DataFrame, keys: Sequence[str], change: Callable[[str], str], gone: str) -> None:
    """Merge a few rows into a large table.

    Args:
        table: its name inside Spark, as it is loaded.
        rows: the changes, one a key; they are read four times, so they should be held.
        keys: names of the key's columns.
        change: gives the MERGE of the view ``CHANGES`` into a table of this name, without an insert.
        gone: the column of ``rows`` that says that there must be none.

    Raises:
        IllegalArgumentException: somebody else has committed to the table meanwhile
        (``spark.warehouse.upkeep.upkeep.is_conflict``).
    """
    spark = rows.sparkSession
    handle = loaded(spark, table)
    with _on_branch(handle, table) as branch:
        ordered, fresh = KeyOrder.of(rows, keys[0]), rows.where(~F.col(gone))
        if ordered.none_there(handle, BRANCH):
            append_rows(fresh.drop(gone), branch)
            return
        _change(rows, ordered.count, change(branch))
        handle.refresh()
        # Each row of the batch has taken the place of one, or removed it: then none is new, no second pass is due.
        # A key has one row in the table: each commit of ours keeps it so, and `verify` tells where somebody's has not.
        replaced = _replaced(handle)
        if 0 < ordered.count == replaced:
            return
        # As many rows as were replaced have the least keys, and none can have the others: those before are there.
        if ordered.none_there(handle, BRANCH, replaced):
            fresh = fresh.where(F.col(quoted(keys[0])) >= ordered.key(replaced))
        else:
            named = [quoted(name) for name in keys]
            mine = F.broadcast(rows.select(*named))
            there = spark.table(branch).select(*named).join(mine, list(keys))
            fresh = fresh.join(there, list(keys), "left_anti")
        append_rows(fresh.drop(gone), branch)


def merge_new(table: str, rows: DataFrame, keys: Sequence[str], change: Callable[[str], str], gone: str) -> bool:
    """Merge many rows into a large table, most of which it does not have, as all are while it is filled.

    A MERGE with an insert reads and sorts the table's rows, so that each batch of a load cost more than the one before
    it. Here only the keys are looked for, in those files that may hold them, and what is not there is appended.

    Args:
        table, rows, keys, change, gone: as ``merge_small``.

    Returns:
        whether it was done; False, and nothing is changed, if the table has more of the keys than ``SMALL_RECORDS``.

    Raises:
        IllegalArgumentException: as ``merge_small``.
    """
    with suppress(_NotNew), _on_branch(loaded(rows.sparkSession, table), table) as branch:
        with held(_known(rows, branch, keys)) as there:
            count = there.count()
            if count > SMALL_RECORDS:
                raise _NotNew
            fresh = rows.where(~F.col(gone))
            if count:
                mine = F.broadcast(there)
                with held(rows.join(mine, list(keys), "left_semi").select(*map(quoted, rows.columns))) as changed:
                    if held_bytes(changed) > SMALL_BYTES:
                        raise _NotNew
                    _change(changed, count, change(branch))
                fresh = fresh.join(mine, list(keys), "left_anti")
            append_rows(fresh.drop(gone), branch)
        return True
    return False


class _NotNew(Exception):
    """Too many of a batch's rows are there already."""


def _known(rows: DataFrame, table: str, keys: Sequence[str]) -> DataFrame:
    """Those keys of a batch that a table has.

    Rows are read in the order of their key mostly, when a table is captured, so a batch's keys lie between two of them:
    Iceberg then leaves out the files that have none of these. Only of types that come to Python and back unharmed.
    """
    named = [quoted(name) for name in keys]
    there, first = rows.sparkSession.table(table).select(*named), F.col(named[0])
    if isinstance(rows.select(first).schema[0].dataType, IntegralType | StringType):
        lowest, highest = rows.agg(F.min(first), F.max(first)).collect()[0]
        if lowest is not None:
            there = there.where(first.between(F.lit(lowest), F.lit(highest)))
    return there.join(rows.select(*named), list(keys), "left_semi")


def _change(rows: DataFrame, count: int, statement: str) -> None:
    """Run a MERGE of ``CHANGES``, which are so many rows; of a limited frame Spark knows how large it can be."""
    rows.limit(max(count, 1)).createOrReplaceTempView(CHANGES)
    with _sent_around(rows.sparkSession):
        rows.sparkSession.sql(statement)


@contextmanager
def _on_branch(handle: Any, table: str) -> Iterator[str]:
    """A branch's name, whose commits readers see at the end, by one; none of them if the block raises.

    Raises:
        IllegalArgumentException: at the end, somebody else has committed to the table meanwhile.
    """
    if handle.refs().containsKey(BRANCH):  # of a batch that was cut
        handle.manageSnapshots().removeBranch(BRANCH).commit()
    handle.manageSnapshots().createBranch(BRANCH, handle.currentSnapshot().snapshotId()).commit()
    try:
        yield f"{table}.branch_{BRANCH}"
        handle.refresh()
        # Led there, and let go of the branch, in one commit: each writes the table's metadata anew.
        handle.manageSnapshots().fastForwardBranch("main", BRANCH).removeBranch(BRANCH).commit()
    except BaseException:
        with suppress(PySparkException, Py4JJavaError):  # the next batch removes what is left
            handle.refresh()
            handle.manageSnapshots().removeBranch(BRANCH).commit()
        raise


@contextmanager
def _sent_around(spark: SparkSession) -> Iterator[None]:
    """Inside, Spark sends to every task what it knows to be small, instead of sorting the table.

    It does not do so for a hint: the join of a MERGE has one of its own (that the table is never sent), and then those
    of its sides are not looked at (``EliminateResolvedHint``); a table of 3.4 million keys was sorted for one row.
    """
    name = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(name)
    spark.conf.set(name, str(SENT_BYTES))
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


@contextmanager
def held(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that were made once and are kept, on disk where memory is short, until the block ends.

    Without the end they would stay until Java collects its garbage: a load's batches are hundreds of megabytes each.
    """
    made = rows.localCheckpoint()
    try:
        yield made
    finally:
        with suppress(Py4JJavaError):
            made._jdf.queryExecution().logical().rdd().unpersist(False)


def held_bytes(rows: DataFrame) -> int:
    """How much memory and disk a frame takes that ``held`` has just given.

    Args:
        rows: the frame.
    """
    kept = rows._jdf.queryExecution().logical().rdd().id()
    infos: Any = rows.sparkSession.sparkContext._jsc.sc().getRDDStorageInfo()
    return sum(info.memSize() + info.diskSize() for info in infos if info.id() == kept)


def _replaced(handle: Any) -> int:
    """How many rows of the table the branch's newest commit has marked as deleted: replaced ones, and those that went.

    A deletion vector is written anew with what it held before, hence the difference.
    """
    snapshot = handle.snapshot(BRANCH)
    if snapshot.snapshotId() == handle.currentSnapshot().snapshotId():
        return 0  # the MERGE has committed nothing
    summary = snapshot.summary()
    added, removed = (int(summary.get(f"{verb}-position-deletes") or 0) for verb in ("added", "removed"))
    return added - removed
