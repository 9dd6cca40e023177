"""Keeps a query alive that has to replay a batch: its Kafka source would fail when the batch is done.

A crash in the middle of a batch leaves one that was planned and not committed. The restarted query takes its offsets
from the checkpoint and does not ask Kafka for the log's end; so the source's ``latestPartitionOffsets`` is still null
when Spark 4.1 asks it for its metrics after the batch, whatever ``spark.sql.streaming.metricsEnabled`` says, and
``KafkaMicroBatchStream.metrics`` ends the query with a null pointer. No option leaves that call out. So the field is
given an empty map before the batch can have ended: "no partition is behind" until the next trigger asks, which it does
before it uses the field for anything.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

# Long enough for a source to find its brokers. One that does not has not begun its batch, and has nothing to fear.
INITIAL_SECONDS = 10.0
_FIELD = "latestPartitionOffsets"
_log = logging.getLogger(__name__)


def spare(query: StreamingQuery) -> bool:
    """Give a query's Kafka sources an empty map in place of a null pointer. To be called right after the start.

    Returns:
        whether it could. Where it could not (another version of Spark), the query ends after its replayed batch, and
        the runner starts it again: slower, and nothing is lost.
    """
    try:
        execution: Any = query._jsq
        if "Wrapper" in execution.getClass().getName():
            execution = execution.streamingQuery()
        execution.awaitInitialization(int(INITIAL_SECONDS * 1000))  # its sources are made, its batch has not begun
        sources = execution.uniqueSources().keysIterator()
        while sources.hasNext():
            _fill_in(sources.next())
    except Exception as error:  # py4j wraps what Java says in many types
        _log.debug("a query's source could not be spared its metrics: %s", error)
        return False
    return True


def _fill_in(source: Any) -> None:
    field = source.getClass().getDeclaredField(_FIELD)
    field.setAccessible(True)
    if field.get(source) is None:
        jvm: Any = SparkContext._jvm
        field.set(source, getattr(jvm.scala.collection.immutable, "Map$").__getattr__("MODULE$").empty())
