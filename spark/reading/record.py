"""A record of the log as tasks get it: the columns that are read of Kafka, and Arrow batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
# The same in Spark's words.
RECORD_DDL = "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint"


def records_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The records of a batch: key, value, topic, partition and offset of each."""
    return zip(*(batch.column(name).to_pylist() for name in RECORD.names), strict=True)


def batch_of(records: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Records as a task gets them.

    Args:
        records: tuples that begin with ``RECORD``'s columns; what follows in them is left out.
    """
    columns = list(zip(*records, strict=True))[: len(RECORD)] if records else [()] * len(RECORD)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, RECORD, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD)
