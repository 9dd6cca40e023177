"""A Spark session of a test's own, that leaves nothing to the garbage collector of the next one."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def session_of(builder: SparkSession.Builder) -> Iterator[SparkSession]:
    """The builder's session, silent, stopped at the end.

    PySpark leaves the sockets that rows came through to the garbage collector: they are collected here, and not in a
    test that minds them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
        gc.collect()
