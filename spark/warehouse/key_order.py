"""Which rows of a batch are new, told by the least and greatest keys of a table's files, of which none is read.

Numbers that a sequence gives grow: rows that are inserted have greater keys than all that were before them, mostly. Of
each file Iceberg knows the greatest key. Where none can have those of a batch, looking through the table's keys, which
is half of what a batch of some hundred rows costs, is not due (docs/decisions/warehouse.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegralType

from cdc.join.expressions import quoted


@dataclass(frozen=True)
class KeyOrder:
    """A batch's rows by the first column of their key.

    Only of integers: they have one order in Java and in Python, and Iceberg cuts the bounds of others off.

    Attributes:
        spark: the session.
        name: the column's name.
        count: how many rows there are.
        keys: its values, the least first; None of another type.
    """

    spark: SparkSession
    name: str
    count: int
    keys: pa.ChunkedArray | None

    @classmethod
    def of(cls, rows: DataFrame, name: str) -> KeyOrder:
        """Of rows that are few enough to come to the driver, read once.

        Args:
            rows: a batch's.
            name: the first column of their key.
        """
        column = rows.select(quoted(name))
        if not isinstance(column.schema[0].dataType, IntegralType):
            return cls(rows.sparkSession, name, rows.count(), None)
        keys = column.toArrow().column(0)
        return cls(rows.sparkSession, name, len(keys), None if keys.null_count else keys.sort())

    def key(self, place: int) -> int:
        """The value at a place in the order, from 0."""
        assert self.keys is not None
        value: int = self.keys[place].as_py()
        return value

    def none_there(self, table: Any, branch: str, place: int = 0) -> bool:
        """Whether a branch can have none of the rows from a place on.

        Args:
            table: Iceberg's handle of the table, refreshed.
            branch: its branch.
            place: in the order, from 0.

        Returns:
            False also where it is not known.
        """
        if self.keys is None or place >= self.count:
            return False
        jvm: Any = self.spark._jvm
        iceberg = jvm.org.apache.iceberg
        from_there = iceberg.expressions.Expressions.greaterThanOrEqual(self.name, self.key(place))
        # Not a scan's plan, which reads what is deleted as well, on threads of its own: 4 ms in place of 25.
        seen = getattr(iceberg.FindFiles, "in")(table).inSnapshot(table.snapshot(branch).snapshotId())
        files = seen.withRecordsMatching(from_there).collect()
        try:
            return not files.iterator().hasNext()
        finally:
            files.close()
