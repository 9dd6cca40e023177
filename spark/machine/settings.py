"""Spark's settings, each with the trouble it prevents. Nothing is started here."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from cdc.errors import ConfigError
from cdc.masking import HIDDEN_NAMES
from spark.drain import DRAIN, OUR_DRAIN
from spark.reading.source import OURS, SOURCE

# The second compiler is kept for what is really hot, ten times Java's own thresholds: planning a batch calls thousands
# of methods a few hundred times each, and compiling them took more of two cores than running them, for half an hour
# (docs/decisions/processor-time.md). Loops still count as they did (BackEdgeThreshold).
SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
)
# Deep regular expressions overflow the default stack when a query stops; serial GC keeps a small heap small, and
# so does a small beginning: Java's own is a 64th of the machine's memory, which a pipeline at rest never gives back.
# A day goes through a Spark Row as midnight in Java's own zone, which some days of some zones do not have: it would
# come out as the next one. (The session's zone is another setting, below.)
JAVA_OPTIONS = f"-Xss4m -Xms128m -XX:+UseSerialGC {SECOND_COMPILER} -Djava.net.preferIPv4Stack=true -Duser.timezone=UTC"

# A virtual machine that is told of two collectors does not start.
_OUR_COLLECTOR = "-XX:+UseSerialGC "
_COLLECTOR = re.compile(r"-XX:\+Use(Serial|Parallel|G1|Z|Shenandoah|Epsilon)GC\b")

_DRIVER_JAVA, _EXECUTOR_JAVA = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"

# Loopback unless the operator says otherwise: Spark's default binds the machine's public address.
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

# A password inside of an address.
_LOGIN = r"://[^/@\s]*:[^@\s]*@"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    # Each checkpoint file otherwise gets a checksum file beside it: twice the files and twice the pause a batch.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.ui.showConsoleProgress": "false",
    # Without these three every micro-batch pays ~150 ms for re-reading jar directories and loopback TCP.
    "spark.python.daemon.module": "spark.machine.worker_daemon",
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
    # What is observed of a frame is lost where a plan is cut short behind it because nothing has come through.
    "spark.sql.adaptive.optimizer.excludedRules": ("org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.ansi.enabled": "true",
    # What Spark's pages and logs show of settings and plans: stars for these. Its own patterns do not know all of ours.
    # The first is looked for in names and in values, the second in names, the third in texts of plans.
    "spark.redaction.regex": f"(?i){HIDDEN_NAMES}|{_LOGIN}",
    "spark.sql.redaction.options.regex": f"(?i)url|{HIDDEN_NAMES}",
    "spark.redaction.string.regex": f"(?i)passw[a-z]*[\"']?\\s*[=:]\\s*[\"']?[^\"',;\\s]+|{_LOGIN}",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}

# What is set where our own classes for Spark (deploy/spark) are at hand.
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
OWN_SETTINGS: Mapping[str, str] = {
    # A checkpoint's files without a process for each.
    CHECKPOINTS: "headwater.spark.LocalCheckpoints",
    # A query that finds nothing rests in its source until something comes, and then need not wait once more.
    SOURCE: OURS,
    # A batch is planned once less.
    DRAIN: OUR_DRAIN,
    "spark.sql.streaming.pollingDelay": "1ms",
}
# A warehouse's files in a local folder without four processes for each; where no cluster's executors need the class.
LOCAL_FILES = "spark.hadoop.fs.file.impl"
OWN_FILES = "headwater.spark.LocalFiles"


def session_settings(
    java: str, log: Path, driver_memory: str, place: Mapping[str, str], conf: Mapping[str, str], *, plain: bool
) -> dict[str, str]:
    """All of a session's settings but its name and its master.

    Args:
        java: options of the driver's virtual machine.
        log: Spark's own log file.
        driver_memory: of that machine's heap, in Spark's notation (``1g``).
        place: what where it runs asks for.
        conf: the operator's own, which win over ours; options of Java are added to ours.
        plain: it only reads Spark SQL, without Iceberg.

    Raises:
        ConfigError: one of the operator's can't be right (terminal).
    """
    logging = Path(__file__).with_name("log4j2.properties").as_uri()
    ours_java = f'{java} -Dlog4j2.configurationFile={logging} "-Dheadwater.log={log}"'
    ours = {
        **SETTINGS,
        _DRIVER_JAVA: ours_java,
        "spark.driver.memory": driver_memory,
        "spark.pyspark.python": sys.executable,
        **place,
    }
    settings = {**ours, **conf}
    if plain:
        settings.pop("spark.sql.extensions", None)
    for key in (_DRIVER_JAVA, _EXECUTOR_JAVA):
        if key in ours and key in conf:
            settings[key] = _added(ours[key], conf[key])
    if settings.get("spark.speculation", "false") != "false":
        raise ConfigError(
            "engine.spark_conf: spark.speculation is on",
            means="two attempts at one task would work on the same rows of the row store at once",
            fix="leave it out",
        )
    return settings


def _added(ours: str, own: str) -> str:
    """Options of a virtual machine: the operator's after ours, as of two that say one thing the last counts."""
    return f"{ours.replace(_OUR_COLLECTOR, '') if _COLLECTOR.search(own) else ours} {own}"
