"""Which machines Spark runs on, and what all of them must see of what the pipeline file names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from cdc.pipeline.fields import MASTER, PATTERNS
from sinks.configure import shared_folders
from spark.machine import cluster

# What verify and explain evaluate are pages of a few thousand rows that come from this process and go back to it.
ALONE = "local[2]"


def with_master(pipeline: Pipeline, master: str | None) -> Pipeline:
    """The pipeline on another Spark master; as the file says without one.

    Raises:
        ConfigError: that is no master's URL.
    """
    if master is None:
        return pipeline
    if not re.fullmatch(MASTER, master):
        raise ConfigError(f"--master {master}: expected {PATTERNS[MASTER]}")
    return pipeline.model_copy(update={"engine": pipeline.engine.model_copy(update={"master": master})})


def alone(pipeline: Pipeline, master: str | None) -> Pipeline:
    """The pipeline for a verb that has little for Spark to do: in this process unless ``--master`` says otherwise.

    A standalone cluster whose cores are all held by ``run`` would let such a verb wait for ever.
    """
    cluster_in_file = not cluster.is_local(pipeline.engine.master)
    return with_master(pipeline, ALONE if master is None and cluster_in_file else master)


def check_machines(pipeline: Pipeline, sinks: Sequence[str], spark: SparkSession) -> None:
    """Before anything starts on a cluster: executors are there, run what we run and see what they must see.

    Raises:
        ClusterUnavailable: no executor came (transient).
        ClusterError: one lacks something (terminal).
    """
    if cluster.is_local(pipeline.engine.master):
        return
    parts = [pipeline.sinks[name] for name in sinks]
    folders = [folder for part in parts for folder in shared_folders(part)]
    named = [getattr(part, "ca_certs", None) for part in (*parts, pipeline.row_store, pipeline.source.registry)]
    options = pipeline.kafka.options_plain()
    named += [options.get(f"ssl.{name}.location") for name in ("ca", "certificate", "key", "keystore")]
    cluster.check(
        spark,
        folders=folders,
        files=[Path(str(file)) for file in named if file],
    )
