"""The optional parts of docker-compose.yml for real: live queries on a Spark cluster of containers, records as Avro."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from cdc.errors import StackError
from cdc.saying import Say
from deploy.compose.system import System
from deploy.images.catalog import ROOT
from deploy.images.docker import docker
from deploy.local.services.base import direct

WORKERS = 2
READY_SECONDS = 240.0
AWAY_SECONDS = 3.0


def prove(system: System, arrives: Callable[[], None], say: Say) -> dict[str, Any]:
    """Move the running system onto two Spark workers, kill one, then change its records to Avro.

    Args:
        system: up, with the flights example caught up.
        arrives: commits a row and returns when the index has it; raises StackError if it does not come.
        say: told one line at a time.

    Returns:
        Seconds until a commit was in the index after each step.

    Raises:
        StackError: something of it did not happen.
    """
    with tempfile.TemporaryDirectory(prefix="headwater-profiles-") as name:
        file = Path(name) / "pipeline.yaml"
        _as_avro(file)
        system.environment |= {
            "COMPOSE_PROFILES": "spark,registry",
            "HEADWATER_RUN_OPTIONS": "--master spark://spark-master:7077",
        }
        up = ("up", "-d", "--scale", f"spark-worker={WORKERS}")
        began = time.monotonic()
        system.compose(*up, seconds=READY_SECONDS)
        arrives()
        report = {"cluster_seconds": round(time.monotonic() - began, 1)}
        say(f"{WORKERS} Spark workers: a new commit is in the index {report['cluster_seconds']} s after `up`")
        victim = _executors(system)[0]
        began = time.monotonic()
        docker("kill", victim)
        arrives()
        report["worker_killed_seconds"] = round(time.monotonic() - began, 1)
        time.sleep(AWAY_SECONDS)
        docker("start", victim)
        say(f"a worker killed: a new commit is in the index after {report['worker_killed_seconds']} s")
        system.healthy("registry", READY_SECONDS)
        began = time.monotonic()
        system.environment["HEADWATER_PIPELINE"] = str(file)
        system.compose("stop", "headwater")  # another format: it would go on with the old file
        system.compose(*up, seconds=READY_SECONDS)
        arrives()
        report["avro_seconds"] = round(time.monotonic() - began, 1)
        subjects = _subjects(system)
        say(f"Avro: another file, a new commit is in the index after {report['avro_seconds']} s; subjects {subjects}")
    return report


def _as_avro(file: Path) -> None:
    """The flights example with records in Avro."""
    yaml = YAML()
    document = yaml.load((ROOT / "examples/flights/pipeline.yaml").read_text())
    document["source"] |= {"format": "avro", "registry": {"url": "${HEADWATER_REGISTRY}"}}
    with file.open("w") as out:
        yaml.dump(document, out)
    file.chmod(0o644)  # the container's user is another one


def _executors(system: System) -> list[str]:
    """The workers' containers; each must have an executor of the live queries.

    Raises:
        StackError: a worker has none: the queries run somewhere else.
    """
    workers = system.compose("ps", "-q", "spark-worker").split()
    deadline = time.monotonic() + READY_SECONDS
    while True:
        busy = [one for one in workers if "CoarseGrainedExecutorBackend" in docker("top", one, "-eo", "pid,args")]
        if len(busy) == WORKERS:
            return busy
        if time.monotonic() > deadline:
            raise StackError(f"{len(busy)} of {len(workers)} Spark workers have an executor, {WORKERS} were expected")
        time.sleep(1)


def _subjects(system: System) -> list[str]:
    """The schemas' names in the registry, when there are any.

    Raises:
        StackError: none, so nothing was written as Avro.
    """
    address = f"http://127.0.0.1:{system.port('registry')}/apis/ccompat/v7/subjects"
    with direct() as session:
        subjects: list[str] = session.get(address, timeout=10).json()
    if not subjects:
        raise StackError("the registry holds no schema: records are not Avro")
    return subjects
