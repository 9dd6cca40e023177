"""Spark on more than one machine: what two workers make equals what one process makes, and equals Postgres.

A real standalone cluster: a master and two workers are processes of their own, with one task slot each and nothing of
our environment; topics have 8 partitions, rows are in a Redis Cluster of 3 nodes, indices have 3 shards.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from deploy.local.sparkcluster import SparkCluster
from spark.disk.filling import FillState
from tests.support.cluster import FLIGHTS, SILENCE_SECONDS, Clustered, clustered
from tests.support.cluster_faults import end_applications, executors, key_counts, kill_worker, signal_worker
from tests.support.scenario import START_SECONDS
from tests.support.servers import Servers

# Until the master has given a silent worker up, and more than a task may be away (sinks/awake.py).
FROZEN_SECONDS = 2 * SILENCE_SECONDS + 5
END_SECONDS = 60

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]


@pytest.fixture(scope="module")
def case(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    """The pipeline, its Spark and its Redis."""
    with clustered(local_stack, tmp_path_factory.mktemp("cluster"), conf={"spark.executor.memory": "512m"}) as made:
        yield made


def running(case: Clustered) -> tuple[SparkCluster, subprocess.Popen[bytes]]:
    """The cluster, and the runner on it; started if it does not run, so that each test can be run alone."""
    if case.runner is None:
        case.start(*case.on_cluster)
    assert case.machines is not None and case.runner is not None
    return case.machines, case.runner


def test_two_workers_make_what_one_process_makes(case: Clustered) -> None:
    machines, _ = running(case)
    assert case.store is not None
    (application,) = machines.state()["activeapps"]
    assert application["cores"] == 2
    assert len(executors(machines)) == 2
    with case.traffic(seconds=10, seed=1):
        pass
    assert case.assert_same_as_alone() > FLIGHTS
    assert all(count > 100 for count in key_counts(case.store))


def test_a_worker_that_is_killed_changes_nothing(case: Clustered) -> None:
    machines, runner = running(case)
    with case.traffic(seconds=28, seed=2):
        time.sleep(5)
        kill_worker(machines, 0)
        assert len(executors(machines)) == 1
        time.sleep(8)
        machines.start_worker(0)
        time.sleep(6)
        other = psutil.Process(machines.running[1].pid).children()[0]
        workers = other.children(recursive=True)
        other.kill()  # the virtual machine only: its Python workers must not go on without it
        gone, alive = psutil.wait_procs(workers, timeout=10)
        assert gone and not alive
    case.assert_same_as_alone()
    assert runner.poll() is None
    assert len(executors(machines)) == 2  # the new worker was given to the application
    assert not case.dead_letters()


def test_a_worker_that_is_paused_and_wakes_up_changes_nothing(case: Clustered) -> None:
    machines, runner = running(case)
    with case.traffic(seconds=FROZEN_SECONDS + 15, seed=3):
        time.sleep(3)
        signal_worker(machines, 0, signal.SIGSTOP)
        time.sleep(FROZEN_SECONDS)
        assert machines.state()["aliveworkers"] == 1
        signal_worker(machines, 0, signal.SIGCONT)
    case.assert_same_as_alone()
    assert runner.poll() is None


def test_an_application_that_the_master_ends_ends_the_runner(case: Clustered) -> None:
    machines, runner = running(case)
    end_applications(machines)
    assert runner.wait(END_SECONDS) == 1
    assert "has ended this application" in case.log()
    assert "has ended this application" in case.status_of("search", case.view("flight"))["last_error"]
    case.runner = None


def test_a_rebuild_whose_worker_is_killed_ends_equal(case: Clustered) -> None:
    machines, _ = running(case)
    case.stop()
    command = [sys.executable, "-m", "console.cli", "rebuild", str(case.file), "search", "--master", machines.url]
    with (case.folder / "rebuild.log").open("ab") as log:
        process = subprocess.Popen(command, env=case.environment(), stdout=log, stderr=log)
    begun = case.folder / "state" / case.name / "search" / "g2" / case.view("flight") / "fill.json"
    until = time.monotonic() + START_SECONDS
    while not begun.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(2)
    assert not FillState.from_json(begun.read_text()).done
    kill_worker(machines, 1)
    assert process.wait(START_SECONDS) == 0, (case.folder / "rebuild.log").read_text()[-3000:]
    case.assert_equal("--sink", "search", "--generation", "2")
