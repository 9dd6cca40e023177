"""One place that makes a Spark session, with every setting and the trouble it prevents."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from spark import startup

# The jars the engine needs, by the start of their file names. deploy/ fetches them; a cluster may bring its own.
REQUIRED_JARS = (
    "spark-sql-kafka-0-10",
    "spark-token-provider-kafka-0-10",
    "kafka-clients",
    "commons-pool2",
    "iceberg-spark-runtime",
    "sqlite-jdbc",
    "postgresql",
)

# Deep regular expressions overflow the default stack when a query stops; serial GC keeps a small heap small.
JAVA_OPTIONS = "-Xss4m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true"

SETTINGS: Mapping[str, str] = {
    # Loopback unless the operator says otherwise: Spark's default binds the machine's public address.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Each checkpoint file otherwise gets a checksum file beside it: twice the files and twice the pause a batch.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.ui.showConsoleProgress": "false",
    # Without these three every micro-batch pays ~150 ms for re-reading jar directories and loopback TCP.
    "spark.python.daemon.module": "spark.worker_daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    # A merge into the warehouse takes seconds; FAIR pools keep the cache's 10 ms tasks from queueing behind it.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Planning a stateless micro-batch again at run time costs more than the batch.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    # How many batches of offsets a checkpoint keeps: enough to see what happened, small enough to list quickly.
    "spark.sql.streaming.minBatchesToRetain": "50",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def find_jars(folder: Path) -> list[Path]:
    """List the jars in ``folder``.

    Raises:
        ConfigError: the folder lacks one that the engine needs (terminal).
    """
    jars = sorted(folder.glob("*.jar")) if folder.is_dir() else []
    missing = [name for name in REQUIRED_JARS if not any(jar.name.startswith(name) for jar in jars)]
    if missing:
        raise ConfigError(
            f"Spark's jars are not complete in {folder}: missing {', '.join(missing)}",
            means="Spark can't read Kafka or write Iceberg without them",
            fix="run `headwater up`, which fetches them, or set `engine.jars` to a folder that holds them",
        )
    return jars


def build_session(
    app: str,
    *,
    master: str,
    jars: Path,
    log: Path,
    driver_memory: str = "1g",
    conf: Mapping[str, str] | None = None,
    java_options: str = "",
) -> SparkSession:
    """Start (or reuse) this process's Spark session.

    Args:
        app: name shown by Spark's tools.
        master: a Spark master URL; ``local[4]`` runs here. More threads than cores are right: tasks wait on servers.
        jars: folder with the pinned jars.
        log: Spark's own log file; rolled at 20 MB, three kept.
        driver_memory: JVM heap, in Spark's notation (``1g``).
        conf: the operator's own settings, which win over ours.
        java_options: instead of our own.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log.parent.mkdir(parents=True, exist_ok=True)
    java = java_options or JAVA_OPTIONS + startup.java_options()
    logging = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        **SETTINGS,
        "spark.driver.extraJavaOptions": f"{java} -Dlog4j2.configurationFile={logging} -Dheadwater.log={log}",
        "spark.driver.memory": driver_memory,
        "spark.pyspark.python": sys.executable,
        "spark.jars": ",".join(str(jar) for jar in find_jars(jars)),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
