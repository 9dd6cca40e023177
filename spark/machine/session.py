"""One place that makes a Spark session."""

from __future__ import annotations

import logging
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
from cdc.masking import looks_secret, mask_text
from cdc.waits import waiting_for
from spark.disk import temporary
from spark.drain import DRAIN
from spark.machine import class_archive, cluster, own_code, quiet
from spark.machine.jars import BUILD_OWN_JAR, find_jars, of_another, told_of_another
from spark.machine.settings import (
    CHECKPOINTS,
    JAVA_OPTIONS,
    LOCAL_FILES,
    LOOPBACK,
    OWN_FILES,
    OWN_SETTINGS,
    session_settings,
)
from spark.reading.source import SOURCE

_log = logging.getLogger(__name__)
# Spark's launcher puts at the end of the class path what the environment names here.
_AT_THE_END = "SPARK_DIST_CLASSPATH"
# PySpark then starts no virtual machine: somebody (spark-submit) has.
_IS_STARTED = "PYSPARK_GATEWAY_PORT"


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
    own_code.not_remote()
    log.parent.mkdir(parents=True, exist_ok=True)
    local, found = cluster.is_local(master), [] if jars is None else find_jars(jars)
    if (other := of_another(found)) is not None:
        _log.warning("%s; %s", told_of_another(other), BUILD_OWN_JAR)
    place = LOOPBACK if local else cluster.settings(master, python_archive, JAVA_OPTIONS)
    if found and not local:
        place = {"spark.jars": ",".join(map(str, found)), **place}
    own, where, environment = temporary.options(conf or {})
    if not local:  # executors are told the same, and have machines of their own
        where = {}
    java = (java_options or JAVA_OPTIONS + class_archive.java_options()) + own
    settings = session_settings(java, log, driver_memory, place, {**(conf or {}), **where}, plain=jars is None)
    # PySpark takes the executors' Python from here, and not from spark.pyspark.python.
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = settings["spark.pyspark.python"], sys.executable
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _launch({"spark.master": master, **settings}, quiet.output(log), found if local else [], environment)
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


def _launch(settings: Mapping[str, str], said: Path, jars: Sequence[Path], more: Mapping[str, str]) -> None:
    """Start the virtual machine, if it is not there, with what is no secret: all users may read its command line.

    Args:
        settings: Spark's.
        said: gets what it says on its terminal.
        jars: come last in its class path. What Spark is told of as ``spark.jars`` it copies, and loads by a loader of
            its own, whose classes no archive holds (spark/machine/startup.py).
        more: of its environment.

    Raises:
        ConfigError: there is no Java that Spark runs on, or it did not start.
    """
    if SparkContext._gateway is None:
        home = None if _IS_STARTED in os.environ else for_spark()
        before = os.environ.get(_AT_THE_END)
        environment = {_AT_THE_END: os.pathsep.join([*map(str, jars), *([before] if before else [])]), **more}
        environment |= own_code.environment() | own_code.pinned_spark()
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
