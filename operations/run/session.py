"""A Spark session for a pipeline: its warehouses' catalogues known, its machines checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from cdc.pipeline import Pipeline
from operations.run.machines import check_machines
from operations.state_folder import state_dir
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogue import catalog_name
from spark.session import build_session
from spark.warehouse import catalog_settings


def warehouse_settings(pipeline: Pipeline, sinks: Sequence[str]) -> dict[str, str]:
    """What Spark must be told of the catalogues of those of these sinks that are warehouses."""
    conf: dict[str, str] = {}
    for name in sinks:
        sink = pipeline.sinks[name]
        if sink.form == "columns":
            conf |= catalog_settings(catalog_name(name), iceberg.spark_properties(sink))
    return conf


def open_spark(pipeline: Pipeline, sinks: Sequence[str], log: str = "verify") -> SparkSession:
    """Start Spark with the catalogues of the warehouse sinks known to it; ``log`` names its log file."""
    conf = {**warehouse_settings(pipeline, sinks), **pipeline.engine.spark_conf}
    engine = pipeline.engine
    spark = build_session(
        f"headwater {pipeline.name}",
        master=engine.master,
        jars=Path(engine.jars or os.environ.get("HEADWATER_SPARK_JARS", "")),
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
