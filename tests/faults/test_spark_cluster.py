"""Spark on more than one machine: what two workers make equals what one process makes, and equals Postgres.

A real standalone cluster: a master and two workers are processes of their own, with one task slot each and nothing of
our environment; topics have 8 partitions, rows are in a Redis Cluster of 3 nodes, indices have 3 shards.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from deploy.local.stack import LocalStack
from tests.support.cluster import FLIGHTS, Clustered, clustered

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]


@pytest.fixture(scope="module")
def case(local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    """The pipeline, its Spark and its Redis."""
    with clustered(local_stack, tmp_path_factory.mktemp("cluster"), conf={"spark.executor.memory": "512m"}) as made:
        yield made


def test_two_workers_make_what_one_process_makes(case: Clustered) -> None:
    assert case.machines is not None and case.store is not None
    case.start(*case.on_cluster)
    (application,) = case.machines.state()["activeapps"]
    assert application["cores"] == 2
    assert len(case.machines.executors()) == 2
    with case.traffic(seconds=10, seed=1):
        pass
    assert case.assert_same_as_alone() > FLIGHTS
    assert all(count > 100 for count in case.store.key_counts())


def test_a_worker_that_is_killed_changes_nothing(case: Clustered) -> None:
    assert case.machines is not None and case.runner is not None
    with case.traffic(seconds=20, seed=2):
        time.sleep(5)
        case.machines.kill_worker(0)
        time.sleep(8)
        case.machines.start_worker(0)
    case.assert_same_as_alone()
    assert case.runner.poll() is None
    assert not case.dead_letters()
