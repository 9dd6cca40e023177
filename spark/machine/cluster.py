"""Spark on more than one machine: what differs from ``local[N]``, and what is looked at before a flow starts there.

A cluster fails late and in strange words: no free cores is silence, another Python is a stack trace, a folder that is
not shared is data that nobody finds again. So before anything is written the master is called, executors are awaited,
and one small job asks each of them what it runs and what it can see (docs/decisions/spark-cluster.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import cdc
import sinks
import spark
from cdc.errors import ClusterError, ClusterUnavailable, ConfigError
from cdc.polling import poll
from spark.arrow import map_in_arrow
from spark.machine import own_code

# Where an executor finds the packed environment: Spark unpacks it below the executor's own folder.
UNPACKED = "headwater-env"
# A master gives cores at once; an executor's virtual machine starts in seconds, or in half a minute on a busy machine.
EXECUTOR_SECONDS = 90.0
# Those of other machines come soon after the first; a later one runs the same checked archive or image.
OTHERS_SECONDS = 2.0
CONNECT_SECONDS = 5.0
# Packages whose code runs in executors: driver and executors must have the same.
SHIPPED = tuple(package.__name__ for package in (cdc, sinks, spark))
_SPARK_URL = re.compile(r"^spark://(.+)$")


def is_local(master: str) -> bool:
    """Whether a master URL means this process alone."""
    return master.startswith("local")


def masters(url: str) -> list[tuple[str, int]]:
    """Hosts and ports of a ``spark://`` URL, which may name several for a master with stand-bys."""
    found = _SPARK_URL.match(url)
    places = found[1].split(",") if found else []
    return [(host, int(port)) for host, _, port in (place.rpartition(":") for place in places)]


def settings(url: str, archive: str, java_options: str) -> dict[str, str]:
    """Spark settings that a cluster needs and ``local[N]`` does not.

    Args:
        url: of the master.
        archive: a packed Python environment; "" if the executors have one at the driver's path.
        java_options: for the executors' virtual machines.

    Raises:
        ConfigError: the archive is not there (terminal).
        ClusterUnavailable: a ``spark://`` master does not answer (transient).
    """
    out = {"spark.executor.extraJavaOptions": java_options, "spark.speculation": "false"}
    out[f"spark.executorEnv.{own_code.SAFE}"] = "1"
    if archive:
        if not Path(archive).is_file():
            raise ConfigError(
                f"engine.python_archive: there is no {archive}",
                means="the executors would have no Python to run Headwater's code in",
                fix=f"`headwater pack {archive}` makes it",
            )
        out["spark.archives"] = f"{Path(archive).absolute().as_uri()}#{UNPACKED}"
        out["spark.pyspark.python"] = f"./{UNPACKED}/bin/python"
    if places := masters(url):
        # Executors call the driver back: on the address by which this machine reaches the master, and on no other.
        own = _own_address(places)
        out |= {"spark.driver.host": own, "spark.driver.bindAddress": own}
    return out


def _own_address(places: Sequence[tuple[str, int]]) -> str:
    why = ""
    for place in places:
        try:
            with socket.create_connection(place, CONNECT_SECONDS) as connection:
                return str(connection.getsockname()[0])
        except OSError as error:
            why = str(error)
    named = ", ".join(f"{host}:{port}" for host, port in places)
    raise ClusterUnavailable(
        f"Spark's master does not answer at {named}: {why}",
        means="nothing was started; offsets are where they were",
        fix="start it, or correct engine.master",
    )


def fingerprint() -> str:
    """A hash of the code that runs in executors."""
    root, digest = Path(__file__).parents[2], hashlib.blake2b(digest_size=8)
    for package in SHIPPED:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


# -- looking before anything starts -----------------------------------------------------------------------------------


def check(spark: SparkSession, folders: Sequence[Path] = (), files: Sequence[Path] = ()) -> int:
    """Wait for executors and ask them what they have.

    Args:
        spark: a session on a cluster.
        folders: what executors write and others read: must be one folder for all.
        files: what they read: must be there under the same path.

    Returns:
        how many executors there were.

    Raises:
        ClusterUnavailable: no executor came (transient).
        ClusterError: one has another Python or Headwater, or lacks a file or folder (terminal).
    """
    count = await_executors(spark)
    with _marked(folders) as marks:
        for found in ask(spark, [*marks, *map(str, files)], count):
            _judge(found, marks)
    return count


def executors(spark: SparkSession) -> int:
    """How many executors are registered."""
    return int(_context(spark).getExecutorMemoryStatus().size()) - 1  # the driver counts there


def ended(spark: SparkSession) -> bool:
    """Whether Spark has ended this application: the master removed it, or every executor failed too often."""
    try:
        return bool(_context(spark).isStopped())
    except Exception:  # the virtual machine itself is gone
        return True


def _context(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc()


def await_executors(spark: SparkSession, seconds: float = EXECUTOR_SECONDS) -> int:
    """Wait for the first executor, and for those that come with it.

    Raises:
        ClusterUnavailable: none came (transient).
    """
    count = poll(lambda: executors(spark), lambda found: found > 0 or ended(spark), seconds, 0.2)
    if count < 1:
        host, port = spark.conf.get("spark.driver.host"), spark.conf.get("spark.driver.port")
        raise ClusterUnavailable(
            f"no executor came from {spark.sparkContext.master} within {seconds:.0f} s",
            means="nothing was started; offsets are where they were",
            fix="see the master's page: free cores and memory (another application may hold them all: give each "
            f"spark.cores.max), executors that fail, and whether workers can reach the driver at {host}:{port}",
        )
    settled = time.monotonic() + OTHERS_SECONDS
    while time.monotonic() < settled:
        time.sleep(0.2)
        if (now := executors(spark)) != count:
            count, settled = now, time.monotonic() + OTHERS_SECONDS
    return count


def ask(spark: SparkSession, paths: Sequence[str], count: int) -> list[Mapping[str, Any]]:
    """Answers of the executors: host, where Headwater is there, Python, code, and which of ``paths`` they lack.

    Raises:
        ClusterError: they can't run our Python at all.
    """
    tasks = 4 * max(count, spark.sparkContext.defaultParallelism)
    frame = spark.range(0, tasks, 1, tasks)
    ddl = "host string, place string, python string, code string, lacks string"
    try:
        rows = map_in_arrow(frame, partial(_answer, list(paths)), ddl).distinct().collect()
    except Exception as error:  # Spark wraps what the executors said in many types
        said = str(error)
        raise ClusterError(
            f"executors of {spark.sparkContext.master} can't run Headwater's Python: {_reason(said)}",
            means="nothing was started",
            fix="`headwater pack FILE` and engine.python_archive send them one; or install it at the same path there",
        ) from error
    return [row.asDict() for row in rows]


def _answer(paths: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        time.sleep(0.1)  # so that no executor does all of them alone
    lacks = "\n".join(path for path in paths if not os.access(path, os.R_OK))
    answer = {
        "host": socket.gethostname(),
        "place": str(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "code": fingerprint(),
        "lacks": lacks,
    }
    yield pa.RecordBatch.from_pylist([answer])


def _judge(found: Mapping[str, Any], marks: Mapping[str, Path]) -> None:
    if found["code"] != fingerprint():
        raise ClusterError(
            f"executors on {found['host']} have another Headwater (in {found['place']}) than this process",
            means="rows would be written by code that this process knows nothing of; nothing was started",
            fix="`headwater pack FILE` again, or bring the workers' installation to the same version",
        )
    for path in filter(None, found["lacks"].split("\n")):
        if path in marks:
            raise ClusterError(
                f"executors on {found['host']} do not see {marks[path]} as this process does",
                means="what they write there nobody would find again; nothing was started",
                fix="put it on a file system that all machines mount at that path, or in an object store",
            )
        raise ClusterError(
            f"executors on {found['host']} have no readable {path}",
            means="they could not connect; nothing was started",
            fix="put the file there under the same path on each worker",
        )


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    # What could not be run is named by the outer error only.
    telling = [one for one in lines if "Cannot run" in one] or [
        one for one in lines if re.search(r"Caused by|Error|MISMATCH", one)
    ]
    return (telling[-1] if telling else text.strip().split("\n")[0])[:300]


@contextmanager
def _marked(folders: Sequence[Path]) -> Iterator[dict[str, Path]]:
    """A file of a name that nobody else can have in each folder, for as long as the block takes."""
    marks: dict[str, Path] = {}
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            mark = folder / f".headwater-{secrets.token_hex(8)}"
            marks[str(mark)] = folder
            mark.write_text("")
        yield marks
    finally:
        for path in marks:
            with contextlib.suppress(OSError):
                Path(path).unlink()
