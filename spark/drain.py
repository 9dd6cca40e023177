"""The end of a query whose work is done in its tasks: its rows, a summary, are counted and let go."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

# A setting of the session: the sink of such queries. Ours does what Spark's does without planning each batch once more.
DRAIN, OUR_DRAIN = "headwater.drain", "headwater.spark.Drain"


def drained(summary: DataFrame) -> DataStreamWriter:
    """A query whose totals come with Spark's progress reports, where ``spark.disk.status`` reads them.

    Args:
        summary: rows of ``spark.write.SUMMARY``, whose making is the query's work.
    """
    counted = summary.observe(
        "applied",
        *(
            F.sum(name).alias(name)
            for name in ("records", "written", "stale", "deleted", "rejected", "retries", "sink_us")
        ),
        F.max("position").alias("position"),
        F.max("ts_ms").alias("ts_ms"),
    )
    return counted.writeStream.format(str(summary.sparkSession.conf.get(DRAIN, "noop")))
