"""What an Iceberg table says of its own past: which batch each commit was.

Asked of the table's metadata, which Spark has loaded already, and not by a query over its ``snapshots`` table: that is
a job of its own in each batch of each table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from spark.warehouse.marks import BATCH, OFFSETS, QUERY, READER, WHOLE, same_offsets


def loaded(spark: SparkSession, table: str) -> Any:
    """Iceberg's own handle of a table, as Spark's catalogue has it loaded: not newer than the last ``refreshTable``.

    Nor than our own last commit: what a promotion has put under its name meanwhile is never taken for it.

    Args:
        spark: the session.
        table: ``catalog.namespace.table``, each part quoted where it must be.

    Raises:
        AnalysisException: there is none.
    """
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)


@dataclass(frozen=True)
class Applied:
    """A batch that was committed.

    Attributes:
        whole: no record of it can be left: its newest commit says so, or a later batch has followed.
        reader: whose first pass that commit is; None if it does not say so.
    """

    whole: bool
    reader: str | None


class History:
    """The commits of a table.

    Args:
        spark: the session.
        table: its name inside Spark.
    """

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark, self._name = spark, table
        self._table = loaded(spark, table)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever committed."""
        return self._table.currentSnapshot() is None

    @property
    def rows(self) -> int:
        """How many rows the table has, deleted ones that no compaction has removed yet included."""
        snapshot = self._table.currentSnapshot()
        return 0 if snapshot is None else int(snapshot.summary().get("total-records") or 0)

    def holds(self, marks: Mapping[str, str]) -> bool:
        """Whether the very batch with these marks was committed, perhaps in part, and readers were led to it.

        Args:
            marks: ``QUERY``, ``BATCH`` and ``OFFSETS``.
        """
        return self.applied(marks) is not None

    def applied(self, marks: Mapping[str, str]) -> Applied | None:
        """What the newest commit of that batch says of it; None if there is none.

        A query counts its batches on, so the newest of its own commits decides, but for one thing: a checkpoint that
        was put back counts the same numbers again. Then all commits that are remembered are looked through.

        Args:
            marks: as ``holds``.
        """
        followed, batch = False, int(marks[BATCH])
        for summary in self._back():
            if summary.get(QUERY) == marks[QUERY]:
                number = int(summary.get(BATCH) or 0)
                if summary.get(BATCH) == marks[BATCH] and same_offsets(summary.get(OFFSETS), marks[OFFSETS]):
                    return Applied(followed or summary.get(WHOLE) is not None, summary.get(READER))
                if number < batch:
                    break
                followed = followed or number > batch
        return None

    def _back(self) -> Iterator[Any]:
        """Summaries of the commits that readers were led to, the newest first.

        Not all snapshots: a batch that was cut on its branch has left some that nobody has seen
        (spark/warehouse/large_merge.py).
        """
        log = self._table.history()
        for at in range(log.size() - 1, -1, -1):
            snapshot = self._table.snapshot(log.get(at).snapshotId())
            if snapshot is not None:
                yield snapshot.summary()
