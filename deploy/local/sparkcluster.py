"""A Spark standalone cluster on this machine: a master and workers as processes of their own, for proofs and figures.

Not part of ``headwater up``: the pipeline does not need it there. What it shows holds on several machines as well: the
driver, the master and the workers talk over TCP only, and the workers get neither our environment nor our folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import pyspark
import requests

from cdc.errors import StackError
from cdc.java import for_spark
from deploy.local.services.base import direct
from deploy.local.site import HOST

# A JVM starts within seconds; on a loaded machine with two cores it may take ten times that.
READY_SECONDS = 90.0
# The master's own REST port is fixed, and nobody here needs it.
DAEMON_OPTIONS = "-XX:+UseSerialGC -Dspark.master.rest.enabled=false"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def free_port(highest: int = 65535) -> int:
    """A port that nobody listens on now."""
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port <= highest:
            return port


@dataclass
class SparkCluster:
    """A master and workers; use it in a ``with`` block.

    Attributes:
        folder: for logs and the executors' folders.
        workers: how many are started.
        cores: task slots a worker offers. Tasks wait on servers, so it may be more than the machine has.
        memory: a worker's memory for executors.
        silence: seconds after which the master gives a silent worker up; it looks as often.
    """

    folder: Path
    workers: int = 2
    cores: int = 1
    memory: str = "1g"
    silence: int = 60
    master: subprocess.Popen[bytes] | None = None
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    web: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """What ``--master`` takes."""
        return f"spark://{HOST}:{self.port}"

    def __enter__(self) -> SparkCluster:
        try:
            named = ("--host", HOST, "--port", str(self.port), "--webui-port", str(self.web))
            self.master = self._start("master", MASTER, *named)
            self._wait(lambda state: state["status"] == "ALIVE", "the master")
            for number in range(self.workers):
                self.start_worker(number)
            self._wait(lambda state: state["aliveworkers"] == self.workers, "the workers")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_worker(self, number: int) -> None:
        """Start a worker, or one that was killed again."""
        folder = self.folder / f"worker{number}"
        named = ("--host", HOST, "--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(folder))
        self.running[number] = self._start(
            f"worker{number}", WORKER, *named, "--webui-port", str(free_port()), self.url
        )

    def state(self) -> dict[str, Any]:
        """What the master says of itself, its workers and applications."""
        with direct() as session:
            found: dict[str, Any] = session.get(f"http://{HOST}:{self.web}/json/", timeout=5).json()
        return found

    def stop(self) -> None:
        """End all of it."""
        for process in [*self.running.values(), *([self.master] if self.master else [])]:
            below = family(process.pid)
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
            for left in below:  # an executor notices that its worker is gone, but not at once
                with contextlib.suppress(psutil.NoSuchProcess):
                    left.kill()
        self.running, self.master = {}, None
        for number in range(self.workers):  # jars and archives that were sent there
            shutil.rmtree(self.folder / f"worker{number}", ignore_errors=True)

    def log(self) -> str:
        """The ends of all logs."""
        found = sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("worker*/*/*/stderr"))
        return "\n".join(f"-- {path}\n{path.read_text(errors='replace')[-2000:]}" for path in found)

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        home, java = Path(str(pyspark.__file__)).parent, for_spark()
        environment = {
            "PATH": os.environ.get("PATH", ""),
            # As for the driver: the servers' Java may be too new for Spark.
            **({"JAVA_HOME": str(java)} if java else {}),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{DAEMON_OPTIONS} -Dspark.worker.timeout={self.silence}",
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            words = [str(home / "bin" / "spark-class"), *command]
            return subprocess.Popen(words, env=environment, cwd=self.folder, stdout=log, stderr=log)

    def _wait(self, good: Any, what: str) -> None:
        until = time.monotonic() + READY_SECONDS
        while True:
            with contextlib.suppress(requests.RequestException, ValueError):
                if good(self.state()):
                    return
            if time.monotonic() > until:
                raise StackError(f"{what} of the Spark cluster did not start\n{self.log()}")
            time.sleep(0.3)


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it; empty when it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
