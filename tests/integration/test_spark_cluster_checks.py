"""What is looked at before a flow starts on a cluster, what its executors run, and that nobody sees a password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import artifacts
from deploy.local.sparkcluster import SparkCluster
from spark.machine.packing import pack

pytestmark = [pytest.mark.slow]

SECRET = "hunter2-is-not-shown"
SCRIPT = """
import json, sys, time
from pathlib import Path
import psutil, requests
from cdc.errors import HeadwaterError
from spark.machine import cluster
from spark.machine.session import build_session

master, jars, folder, archive, python, file, conf, seconds = json.load(sys.stdin)
secret = "hunter2" + "-is-not-shown"  # in two parts: this text is itself on a command line
found = {}
if python:
    conf["spark.pyspark.python"] = python
try:
    cluster.await_executors.__defaults__ = (seconds,)
    spark = build_session(
        "checks", master=master, jars=Path(jars), log=Path(folder) / "spark.log", conf=conf, python_archive=archive
    )
    cluster.await_executors(spark)
    until = time.monotonic() + 60
    while cluster.executors(spark) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    files = [Path(file)] if file else []
    found["executors"] = cluster.check(spark, folders=[Path(folder) / "shared"], files=files)
    found["places"] = [answer["place"] for answer in cluster.ask(spark, [], 2)]
    commands = []
    for process in psutil.process_iter():
        try:
            commands.append(" ".join(process.cmdline()))
        except psutil.Error:
            pass
    found["commands"] = commands
    page = spark.sparkContext.uiWebUrl
    if page:
        spark.conf.set("spark.sql.catalog.other.jdbc.password", secret)
        options = {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}
        options["kafka.sasl.jaas.config"] = f'x required username="u" password="{secret}";'
        log = spark.readStream.format("kafka").options(**options).load()
        found["plan"] = log._jdf.queryExecution().toString()
        spark.sql("SET").collect()
        spark.sql("SELECT 1").collect()
        api = f"{page}/api/v1/applications/{spark.sparkContext.applicationId}"
        found["environment"] = requests.get(f"{api}/environment", timeout=30).text
        found["page"] = requests.get(f"{page}/environment/", timeout=30).text
        numbers = [query["id"] for query in requests.get(f"{api}/sql", timeout=30).json()]
        found["queries"] = [requests.get(f"{page}/SQL/execution/?id={n}", timeout=30).text for n in numbers]
    spark.stop()
except HeadwaterError as error:
    found["error"], found["code"] = str(error), error.code
print("FOUND" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster(tmp_path_factory.mktemp("machines"), workers=2) as cluster:
        yield cluster


def asked(master: str, folder: Path, **given: Any) -> dict[str, Any]:
    """What a process of its own found on the cluster."""
    jars = artifacts.ensure(["spark"], lambda _line: None)["spark"]
    conf = {"spark.executor.memory": "512m", **given.get("conf", {})}
    words = [master, str(jars), str(folder), given.get("archive", ""), given.get("python", "")]
    argument = json.dumps([*words, given.get("file", ""), conf, given.get("seconds", 60)])
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env=dict(os.environ), input=argument, capture_output=True, text=True, check=False, timeout=240
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND")), None)
    assert line is not None, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND"))
    return found


def test_nobody_sees_a_password(machines: SparkCluster, tmp_path: Path) -> None:
    conf = {
        "spark.ui.enabled": "true",
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "spark.sql.catalog.hw_x.jdbc.password": SECRET,
        "spark.sql.catalog.hw_x.uri": f"jdbc:postgresql://u:{SECRET}@127.0.0.1/x",
    }
    found = asked(machines.url, tmp_path, conf=conf)
    assert found["executors"] == 2 and "error" not in found
    assert found["queries"] and "spark.hadoop.fs.s3a.secret.key" in found["environment"]
    for place in ("commands", "environment", "page", "queries", "plan"):
        assert SECRET not in json.dumps(found[place]), place


def test_executors_run_the_packed_environment(machines: SparkCluster, tmp_path: Path) -> None:
    archive = tmp_path / "python.tar.gz"
    assert pack(archive) > 500
    found = asked(machines.url, tmp_path, archive=str(archive))
    assert len(found["places"]) == 2  # a folder of its own for each executor
    assert all(Path(place).is_relative_to(machines.folder) for place in found["places"]), found


def test_what_an_executor_lacks_is_named(machines: SparkCluster, tmp_path: Path) -> None:
    found = asked(machines.url, tmp_path, file=str(tmp_path / "authorities.pem"))
    assert found["code"] == "cluster" and "have no readable" in found["error"] and "authorities.pem" in found["error"]
    found = asked(machines.url, tmp_path, python="/nowhere/python")
    assert found["code"] == "cluster" and "can't run Headwater's Python" in found["error"]
    assert "/nowhere/python" in found["error"]
    found = asked(machines.url, tmp_path, archive=str(tmp_path / "none.tar.gz"))
    assert found["code"] == "config" and "headwater pack" in found["error"]


def test_a_cluster_that_gives_nothing_is_not_waited_for_in_silence(machines: SparkCluster, tmp_path: Path) -> None:
    found = asked(machines.url, tmp_path, conf={"spark.executor.memory": "900g"}, seconds=8)
    assert found["code"] == "cluster-unavailable" and "no executor came" in found["error"]
    found = asked("spark://127.0.0.1:9", tmp_path)
    assert found["code"] == "cluster-unavailable" and "does not answer at 127.0.0.1:9" in found["error"]
