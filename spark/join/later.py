"""Deferred documents: an airline is renamed, fifty thousand flights are to be written, and other changes do not wait.

A batch notes such roots in the row store and commits. The driver looks there several times a second; when something
waits, it claims it and runs a Spark job of its own over the shards, beside the live batches. What was claimed is
forgotten only when the job has ended well: killed, it is done again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.flow import Flow
from spark.join.plans import documents
from spark.join.stage import Form, begin, documents_form, joiner_of, view_of
from spark.reading.entries import Decoded
from spark.reading.expressions import entry_batch
from spark.reading.spec import unpack
from spark.write import apply_decoded


def make_shards(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Shard numbers in, their documents written (a ``mapInArrow`` function)."""
    yield from apply_decoded(packed, of_shards(packed, batches))


def shard_rows(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Shard numbers in, their documents with typed rows out, for Spark SQL."""
    spec = unpack(packed)
    for decoded in of_shards(packed, batches):
        yield entry_batch(spec, view_of(spec), decoded)


def of_shards(packed: bytes, batches: Iterator[pa.RecordBatch], form: Form | None = None) -> Iterator[Decoded]:
    """Shard numbers in, the entries of their roots out."""
    joiner, form = begin(joiner_of(packed)), form or documents_form(packed)
    for batch in batches:
        for shard in batch.column("id").to_pylist():
            for made in joiner.later(shard):
                yield Decoded(*form(joiner, made, 0), 0)


def make_deferred(spark: SparkSession, flow: Flow, shards: list[int]) -> int:
    """Make the documents of claimed shards; returns how many were written."""
    packed = flow.spec.pack()
    summary = documents(shard_numbers(spark, shards), flow.spec, packed, make_shards, shard_rows).collect()
    return sum(row["written"] for row in summary)


def shard_numbers(spark: SparkSession, shards: list[int]) -> DataFrame:
    """The shards as a frame of ``id``, cut into as many tasks as there shall be."""
    # Half of the task slots stay free for the live batches.
    tasks = max(1, min(len(shards), spark.sparkContext.defaultParallelism // 2))
    return spark.range(0, len(shards), 1, tasks).select(
        F.element_at(F.array(*(F.lit(shard) for shard in shards)), (F.col("id") + 1).cast("int")).alias("id")
    )
