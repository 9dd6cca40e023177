"""A table of the warehouse is made to hold nothing but its living rows: files, manifests and snapshots.

Not one row is looked for: a file is written anew when anything in it is deleted, and every snapshot before that goes.
So it does not matter whether a view shows whose data it holds. Called under the leases of who writes to the table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from cdc.ages import at_least
from cdc.records.history import OFFSET, PARTITION
from spark.warehouse.commits import loaded
from spark.warehouse.large_merge import BRANCH
from spark.warehouse.marks import OURS, QUERY
from spark.warehouse.upkeep.steps import others_in

# No file is written anew for its size, and none is cut.
_ENDLESS = 1 << 50
# Offsets that one statement names.
PAGE = 1_000
# A commit writes its manifests, and is made, or tried a few times more, within two seconds by Iceberg's defaults. Those
# of a compaction of somebody else's that was at it when an erasure began are named by a snapshot after this.
COMMIT_SECONDS = 10.0


def rewrite(spark: SparkSession, table: str, moved: Collection[str], *, files: bool = True) -> str:
    """Leave nothing in a table's files but what its newest snapshot shows. Killed half-way, do it again.

    Args:
        spark: the session.
        table: ``catalog.namespace.table``, each part quoted.
        moved: tags that are to be moved to what is there now.
        files: whether data files are to be written anew; else only what is said of them.

    Returns:
        what was done, in words.

    Raises:
        Exception: as Spark wraps what Iceberg says; the table is whole.
    """
    spark.catalog.refreshTable(table)
    opened = loaded(spark, table)
    if opened.currentSnapshot() is None:
        return "it is empty"
    if opened.refs().containsKey(BRANCH):  # of a batch that was cut
        opened.manageSnapshots().removeBranch(BRANCH).commit()
    anew = _rewrite_files(spark, table) if files else 0
    _rewrite_manifests(spark, table)
    clean = loaded(spark, table).currentSnapshot().sequenceNumber()
    _carry(spark, table, clean)
    opened = loaded(spark, table)
    for name in moved:
        opened.manageSnapshots().replaceTag(name, opened.currentSnapshot().snapshotId()).commit()
    gone = _expire(spark, table, clean)
    tags = f", {len(moved)} tags moved" if moved else ""
    return f"{anew} data files written anew, {gone} snapshots expired{tags}"


def forget_rows(spark: SparkSession, table: str, places: Mapping[int, Sequence[int]]) -> None:
    """Delete rows of a history, told by where in the log they were.

    Args:
        spark: the session.
        table: as ``rewrite``.
        places: partition -> offsets.
    """
    spark.catalog.refreshTable(table)
    for partition, offsets in places.items():
        for start in range(0, len(offsets), PAGE):
            listed = ", ".join(map(str, offsets[start : start + PAGE]))
            spark.sql(f"DELETE FROM {table} WHERE {PARTITION} = {partition} AND {OFFSET} IN ({listed})")  # noqa: S608


def remove_left(spark: SparkSession, table: str, before: float, began: float) -> int | None:
    """Remove what a rewriting has left that was killed between its commit, behind which no snapshot names the old
    files, and their removal: files of nobody, written before it began. Iceberg's procedure keeps those of a day.

    And manifests that it had written for a commit that it did not make: they have the least and greatest values of the
    files that were to go.

    Args:
        spark: the session.
        table: as ``rewrite``.
        before: when that one began (epoch seconds); a file of somebody else's who is at work now is younger.
        began: when this one did; of manifests only those are left that were written since.

    Returns:
        how many; None where another table has its files in the same folder: whose they are can't be told, and nothing
        is removed.
    """
    opened, jvm = loaded(spark, table), spark._jvm
    if others_in(spark, opened):
        return None
    actions: Any = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)  # type: ignore[union-attr]
    time.sleep(max(0.0, COMMIT_SECONDS - at_least(began, time.time())))
    manifests = str(opened.operations().metadataFileLocation("any")).removesuffix("/any")
    removed = 0
    for folder, at in ((opened.location(), before), (manifests, began)):
        removal = actions.deleteOrphanFiles(opened).location(folder).olderThan(int(at * 1000)).usePrefixListing(True)
        found = removal.execute().orphanFileLocations().iterator()
        while found.hasNext():
            found.next()
            removed += 1
    return removed


def _rewrite_files(spark: SparkSession, table: str) -> int:
    catalog, name = table.split(".", 1)
    options = {
        "delete-file-threshold": 1,
        "min-file-size-bytes": 0,
        "max-file-size-bytes": _ENDLESS,
        "remove-dangling-deletes": "true",
    }
    listed = ", ".join(f"'{option}', '{value}'" for option, value in options.items())
    text = f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map({listed}))"
    return int(spark.sql(text).collect()[0]["rewritten_data_files_count"])


def _rewrite_manifests(spark: SparkSession, table: str) -> None:
    """Manifests keep the least and greatest values of files that they say are gone: they are written without those.

    Iceberg's procedure passes over a table that has one manifest; its own call does not.
    """
    jvm: Any = spark._jvm
    # Of Spark's own Guava: one group, so that as many entries as fit go into one manifest.
    constant = jvm.com.google.common.base.Functions.constant("all")
    loaded(spark, table).rewriteManifests().clusterBy(constant).commit()


def _snapshots(spark: SparkSession, table: str) -> list[dict[str, Any]]:
    jvm: Any = spark._jvm
    metadata = loaded(spark, table).operations().current()
    found: dict[str, Any] = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata))
    return list(found.get("snapshots", ()))


def _carry(spark: SparkSession, table: str, clean: int) -> None:
    """Marks of snapshots that are to go, by which queries know what they have applied, go on to empty commits.

    In the order in which they were made: who looks for the newest of them finds the same one.
    """
    newest: dict[str, tuple[int, dict[str, str]]] = {}
    for one in _snapshots(spark, table):
        marks = {name: value for name, value in one.get("summary", {}).items() if name.startswith(OURS)}
        if QUERY in marks:
            newest[marks[QUERY]] = int(one["sequence-number"]), marks
    for number, marks in sorted(newest.values(), key=lambda found: found[0]):
        if number < clean:
            commit = loaded(spark, table).newFastAppend()
            for name, value in marks.items():
                commit = commit.set(name, value)
            commit.commit()


def _expire(spark: SparkSession, table: str, clean: int) -> int:
    """Expire what was there before; what a tag or a branch names is Iceberg's to keep, and is not named here."""
    catalog, name = table.split(".", 1)
    refs = loaded(spark, table).refs().values()
    kept = {one.snapshotId() for one in refs}
    old = [
        int(one["snapshot-id"])
        for one in _snapshots(spark, table)
        if int(one["sequence-number"]) < clean and one["snapshot-id"] not in kept
    ]
    if old:
        ids = ", ".join(f"{one}L" for one in old)
        spark.sql(
            f"CALL {catalog}.system.expire_snapshots(table => '{name}', "
            f"older_than => TIMESTAMP '1970-01-02 00:00:00', snapshot_ids => array({ids}))"
        ).collect()
    return len(old)
