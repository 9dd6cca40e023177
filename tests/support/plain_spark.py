"""A Spark session of a test's own, that leaves nothing to the garbage collector of the next one."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from spark.machine.settings import JAVA_OPTIONS, SETTINGS
from spark.warehouse.table import catalog_settings


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


@contextmanager
def engine_session() -> Iterator[SparkSession]:
    """A session with the engine's own settings, but for those of Python's workers and of our own classes."""
    builder = SparkSession.builder.master("local[1]")
    plain = {n: v for n, v in SETTINGS.items() if not n.startswith(("spark.python.", "spark.sql.extensions"))}
    for name, value in {**plain, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}.items():
        builder = builder.config(name, value)
    with session_of(builder) as session:
        yield session


@contextmanager
def lake_session(folder: Path) -> Iterator[SparkSession]:
    """A session with an Iceberg catalogue ``hw_lake`` in a folder, and the engine's own settings that matter there."""
    lake = SimpleNamespace(catalog_uri=str(folder / "c.db"), warehouse=str(folder / "w"), namespace="n")
    jars = ",".join(str(jar) for jar in artifacts.spark_jars())
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    builder = builder.config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
    for name in ("spark.sql.extensions", "spark.ui.enabled", "spark.sql.ansi.enabled"):
        builder = builder.config(name, SETTINGS[name])
    for name, value in catalog_settings("hw_lake", iceberg.spark_properties(lake)).items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with session_of(builder) as session:
            yield session
