"""A Spark session for a pipeline: its warehouses' catalogues known, its machines checked; alone, or beside others'."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from operations.run.machines import check_machines
from operations.state.folder import state_dir
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogue import catalog_name
from spark.machine.jars import require_s3
from spark.machine.session import build_session, use_own_classes
from spark.warehouse.table import catalog_settings

# What a virtual machine is made of; the rest of ``engine`` is a pipeline's own.
OF_THE_MACHINE = ("master", "driver_memory", "jars", "python_archive", "spark_conf")
_CATALOGUES = "spark.sql.catalog."


def warehouse_settings(pipeline: Pipeline, sinks: Sequence[str]) -> dict[str, str]:
    """What Spark must be told of the catalogues of those of these sinks that are warehouses.

    Raises:
        ConfigError: a credential is not in the environment, or a jar is missing that a warehouse in a bucket needs.
    """
    conf: dict[str, str] = {}
    for name in sinks:
        sink = pipeline.sinks[name]
        if sink.form == "columns":
            if iceberg.needs_s3(sink):
                require_s3(jars_of(pipeline))
            conf |= catalog_settings(catalog_name(name), iceberg.spark_properties(sink))
    return conf


def jars_of(pipeline: Pipeline) -> Path:
    """The folder, or folders, of Spark's jars."""
    return Path(pipeline.engine.jars or os.environ.get("HEADWATER_SPARK_JARS", ""))


def open_spark(pipeline: Pipeline, sinks: Sequence[str], log: str = "verify") -> SparkSession:
    """Start Spark with the catalogues of the warehouse sinks known to it; ``log`` names its log file."""
    conf = {**warehouse_settings(pipeline, sinks), **pipeline.engine.spark_conf}
    engine = pipeline.engine
    spark = build_session(
        f"headwater {pipeline.name}",
        master=engine.master,
        jars=jars_of(pipeline),
        log=state_dir(pipeline).absolute() / pipeline.name / f"spark-{log}.log",
        driver_memory=engine.driver_memory,
        conf=conf,
        python_archive=engine.python_archive,
    )
    try:
        check_machines(pipeline, sinks, spark)
    except BaseException:
        spark.stop()
        raise
    return spark


class Sessions:
    """Where a pipeline of this process gets its Spark session: from a virtual machine of its own."""

    def open(self, pipeline: Pipeline, sinks: Sequence[str], log: str) -> SparkSession:
        """As ``open_spark``."""
        return open_spark(pipeline, sinks, log)

    def close(self, spark: SparkSession) -> None:
        """Give it back, once its queries have ended."""
        spark.stop()


class SharedSessions(Sessions):
    """One virtual machine for several pipelines, each with a session of its own in it: queries, settings and
    catalogues of one are no business of the others. A context manager; the machine ends with it.

    Args:
        pipelines: the loaded files.

    Raises:
        ConfigError: two are of one name, or they ask for machines that differ (terminal).
    """

    def __init__(self, pipelines: Sequence[Pipeline]) -> None:
        refuse_unlike(pipelines)
        self._first = pipelines[0]
        self._lock = threading.Lock()
        self._base: SparkSession | None = None

    def open(self, pipeline: Pipeline, sinks: Sequence[str], log: str) -> SparkSession:
        """A session of the one machine, which the first to ask starts; its log is beside the first pipeline's state."""
        with self._lock:
            if self._base is None:
                self._base = open_spark(self._first, (), "shared")
            session = self._base.newSession()
        for name, value in {**warehouse_settings(pipeline, sinks), **pipeline.engine.spark_conf}.items():
            if name.startswith(_CATALOGUES):  # all else the machine has been given
                session.conf.set(name, value)
        use_own_classes(session, pipeline.engine.spark_conf)
        check_machines(pipeline, sinks, session)
        return session

    def close(self, spark: SparkSession) -> None:
        """The machine stays: others are at work in it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._base is not None:
            with suppress(Exception):  # SIGTERM to the whole group ends the machine before us
                self._base.stop()


def refuse_unlike(pipelines: Sequence[Pipeline]) -> None:
    """Refuse pipelines that can't be run by one process. Pure.

    Raises:
        ConfigError: two are of one name, or they ask for machines that differ; named (terminal).
    """
    first, names = pipelines[0], [pipeline.name for pipeline in pipelines]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two of these files are of the pipeline {name}", fix="name each pipeline once")
    for other in pipelines[1:]:
        for setting in OF_THE_MACHINE:
            here, there = getattr(first.engine, setting), getattr(other.engine, setting)
            if here != there:
                raise ConfigError(
                    f"engine.{setting} of pipeline {other.name} is not that of {first.name}",
                    means="one process has one Spark for all of its pipelines; nothing was started",
                    fix="make `engine` equal, or run them in processes of their own",
                )
