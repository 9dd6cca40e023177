"""One place that makes a Spark session, with every setting and the trouble it prevents."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.core import context
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from cdc.java import for_spark
from cdc.masking import HIDDEN_NAMES, looks_secret, mask_text
from cdc.waits import waiting_for
from spark.drain import DRAIN, OUR_DRAIN
from spark.machine import class_archive, cluster, quiet
from spark.reading.source import OURS, SOURCE

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

# What Iceberg needs besides to reach a bucket: the client of S3, which alone is larger than all of these.
S3_JAR = "iceberg-aws-bundle"

# The second compiler is kept for what is really hot, ten times Java's own thresholds: planning a batch calls thousands
# of methods a few hundred times each, and compiling them took more of two cores than running them, for half an hour
# (docs/decisions/processor-time.md). Loops still count as they did (BackEdgeThreshold).
SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
)
# Deep regular expressions overflow the default stack when a query stops; serial GC keeps a small heap small, and
# so does a small beginning: Java's own is a 64th of the machine's memory, which a pipeline at rest never gives back.
JAVA_OPTIONS = f"-Xss4m -Xms128m -XX:+UseSerialGC {SECOND_COMPILER} -Djava.net.preferIPv4Stack=true"

_DRIVER_JAVA = "spark.driver.extraJavaOptions"
# Spark's launcher puts at the end of the class path what the environment names here.
_AT_THE_END = "SPARK_DIST_CLASSPATH"
# PySpark then starts no virtual machine: somebody (spark-submit) has.
_IS_STARTED = "PYSPARK_GATEWAY_PORT"

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


# Our own classes for Spark (deploy/spark), and what is set where they are at hand.
OWN_JAR = "headwater-spark.jar"
BUILD_OWN_JAR = f"`headwater up` builds it; elsewhere `python -m deploy.spark.build {OWN_JAR}` in engine.jars"
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


def find_jars(folders: Path) -> list[Path]:
    """List the jars in a folder, or in several with ``:`` between them, as in a PATH.

    Raises:
        ConfigError: they lack one that the engine needs (terminal).
    """
    jars = _jars_in(folders)
    missing = [name for name in REQUIRED_JARS if not any(jar.name.startswith(name) for jar in jars)]
    if missing:
        raise ConfigError(
            f"Spark's jars are not complete in {folders}: missing {', '.join(missing)}",
            means="Spark can't read Kafka or write Iceberg without them",
            fix="run `headwater up`, which fetches them, or set `engine.jars` to a folder that holds them",
        )
    beside = class_archive.beside(OWN_JAR)
    return jars if beside is None or any(jar.name == OWN_JAR for jar in jars) else [*jars, beside]


def require_s3(folders: Path) -> None:
    """Refuse a warehouse in a bucket without the client of S3.

    Args:
        folders: as ``find_jars``.

    Raises:
        ConfigError: none of them has it (terminal).
    """
    if not any(jar.name.startswith(S3_JAR) for jar in _jars_in(folders)):
        raise ConfigError(
            f"Spark's jars in {folders} lack {S3_JAR}, without which a warehouse in s3:// can't be opened",
            means="nothing was started",
            fix="`headwater up --with s3` fetches it (66 MiB); then set HEADWATER_SPARK_JARS as `headwater ps --env` "
            "prints it, or put the jar into `engine.jars`",
        )


def _jars_in(folders: Path) -> list[Path]:
    return [jar for one in str(folders).split(os.pathsep) for jar in sorted(Path(one).glob("*.jar"))]


@waiting_for("Spark to start")
def build_session(
    app: str,
    *,
    master: str,
    jars: Path | None,
    log: Path,
    driver_memory: str = "1g",
    conf: Mapping[str, str] | None = None,
    python_archive: str = "",
    java_options: str = "",
) -> SparkSession:
    """Start (or reuse) this process's Spark session.

    Args:
        app: name shown by Spark's tools.
        master: a Spark master URL; ``local[4]`` runs here. More threads than cores are right: tasks wait on servers.
        jars: folder with the pinned jars; a cluster's executors fetch them from this process. None for a session that
            only reads Spark SQL, and neither Kafka nor Iceberg.
        log: Spark's own log file; rolled at 20 MB, three kept.
        driver_memory: JVM heap, in Spark's notation (``1g``).
        conf: the operator's own settings, which win over ours.
        python_archive: for a cluster, see ``spark.machine.cluster.settings``.
        java_options: instead of our own.

    Raises:
        ConfigError: jars or the archive are missing, or a setting can't be right (terminal).
        ClusterUnavailable: the master does not answer (transient).
        ClusterError: Spark could not be started on it.
    """
    java = java_options or JAVA_OPTIONS + class_archive.java_options()
    logging = Path(__file__).with_name("log4j2.properties").as_uri()
    log.parent.mkdir(parents=True, exist_ok=True)
    local, found = cluster.is_local(master), [] if jars is None else find_jars(jars)
    ours = LOOPBACK if local else cluster.settings(master, python_archive, JAVA_OPTIONS)
    ours_java = f'{java} -Dlog4j2.configurationFile={logging} "-Dheadwater.log={log}"'
    settings = {
        **SETTINGS,
        _DRIVER_JAVA: ours_java,
        "spark.driver.memory": driver_memory,
        "spark.pyspark.python": sys.executable,
        **({"spark.jars": ",".join(map(str, found))} if found and not local else {}),
        **ours,
        **(conf or {}),
    }
    if jars is None:
        settings.pop("spark.sql.extensions", None)
    if own := (conf or {}).get(_DRIVER_JAVA):
        settings[_DRIVER_JAVA] = f"{ours_java} {own}"  # after ours: of two the last counts
    if settings.get("spark.speculation", "false") != "false":
        raise ConfigError(
            "engine.spark_conf: spark.speculation is on",
            means="two attempts at one task would work on the same rows of the row store at once",
            fix="leave it out",
        )
    # PySpark takes the executors' Python from here, and not from spark.pyspark.python.
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = settings["spark.pyspark.python"], sys.executable
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _launch({"spark.master": master, **settings}, quiet.output(log), found if local else [])
    quiet.hush()
    if local and _loads(OWN_FILES):
        settings.setdefault(LOCAL_FILES, OWN_FILES)
        _forget_file_systems()
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _handlers_kept():
        session = builder.getOrCreate()
    use_own_classes(session, conf or {})
    return session


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Let PySpark set no handler of Ctrl-C. Its own asks Java, over the connection that the main thread may just be
    reading: that ended in an exception of any kind, anywhere, instead of an orderly stop. Putting ours back afterwards
    is too late: the context sets its own a second before the session is there."""
    module: Any = context
    theirs, module.signal = module.signal, _Signals
    try:
        yield
    finally:
        module.signal = theirs


class _Signals:
    """What PySpark's context sees of Python's module ``signal`` meanwhile."""

    SIGINT = signal.SIGINT

    @staticmethod
    def signal(number: int, handler: Any) -> None:
        """Set nothing."""


def use_own_classes(session: SparkSession, wanted: Mapping[str, str]) -> None:
    """Set what our own classes do better, where they are all at hand; what the operator wants goes first.

    Args:
        session: each session of a machine needs it anew.
        wanted: ``engine.spark_conf``.
    """
    if _loads(OWN_SETTINGS[CHECKPOINTS], OWN_SETTINGS[SOURCE], OWN_SETTINGS[DRAIN]):
        for setting, value in OWN_SETTINGS.items():
            session.conf.set(setting, wanted.get(setting, value))


def _loads(*classes: str) -> bool:
    """Whether the virtual machine has these classes: one that was started before our jar was built never will."""
    gateway: Any = SparkContext._gateway
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        for name in classes:
            loader.loadClass(name)
    except Py4JJavaError:
        return False
    return True


def _forget_file_systems() -> None:
    """Hadoop keeps the first one that it was asked for as long as its virtual machine lives, and Spark's start may have
    asked."""
    if SparkContext._active_spark_context is None:
        gateway: Any = SparkContext._gateway
        gateway.jvm.org.apache.hadoop.fs.FileSystem.closeAll()


def _launch(settings: Mapping[str, str], said: Path, jars: Sequence[Path]) -> None:
    """Start the virtual machine, if it is not there, with what is no secret: all users may read its command line.

    Args:
        settings: Spark's.
        said: gets what it says on its terminal.
        jars: come last in its class path. What Spark is told of as ``spark.jars`` it copies, and loads by a loader of
            its own, whose classes no archive holds (spark/machine/startup.py).

    Raises:
        ConfigError: there is no Java that Spark runs on, or it did not start.
    """
    if SparkContext._gateway is None:
        home = None if _IS_STARTED in os.environ else for_spark()
        before = os.environ.get(_AT_THE_END)
        environment = {_AT_THE_END: os.pathsep.join([*map(str, jars), *([before] if before else [])])}
        environment |= {"JAVA_HOME": str(home)} if home else {}
        quiet.keep(said)
        shown = SparkConf(loadDefaults=False)
        for name, value in settings.items():
            if not (looks_secret(name) or mask_text(str(value)) != str(value)):
                shown.set(name, str(value))
        try:
            with said.open("ab") as out, _environment(**environment), _none_left():
                gateway = launch_gateway(shown, {"stdout": out, "stderr": out})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)
        except PySparkRuntimeError as error:
            raise ConfigError(
                f"Java did not start for Spark; its own words, if it had any:\n{quiet.tail(said)}",
                fix=f"look at {home or 'the `java` on the PATH'}, engine.driver_memory and engine.spark_conf",
            ) from error


@contextmanager
def _none_left() -> Iterator[None]:
    """End the virtual machine that is being started when we are asked to end meanwhile. PySpark removes the folder into
    which it would write its port; its main thread then fails, and the others keep 300 MiB for ever."""
    module: Any = java_gateway
    theirs, started = module.Popen, []

    def popen(*command: Any, **how: Any) -> Any:
        started.append(theirs(*command, **how))
        return started[-1]

    module.Popen = popen
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        module.Popen = theirs


@contextmanager
def _environment(**wanted: str) -> Iterator[None]:
    """What the virtual machine finds in its environment, and no process that is started later."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
