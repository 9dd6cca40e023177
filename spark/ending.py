"""The end of a joined view's task: what it has written to the row store is pending no more."""

from __future__ import annotations

from functools import lru_cache

from pyspark import TaskContext

from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from spark.reading.spec import FlowSpec, unpack


def end_task(spec: FlowSpec, packed: bytes) -> None:
    """To be called by the stage that writes documents, when all of them are answered for.

    With Spark SQL in between that is another worker than the one that applied the rows; the attempt has one number.
    """
    context = TaskContext.get()
    if spec.row_store is not None and context is not None:
        _store(packed).end(context.taskAttemptId())


@lru_cache(maxsize=8)
def _store(packed: bytes) -> RedisRowStore:
    settings = unpack(packed).row_store
    assert settings is not None
    return RedisRowStore(StoreSettings(**settings))
