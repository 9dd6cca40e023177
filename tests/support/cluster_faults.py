"""What may happen to a local Spark cluster, and what a test looks at in it and in a Redis Cluster."""

from __future__ import annotations

import contextlib

import psutil
import redis

from deploy.local.rediscluster import RedisCluster
from deploy.local.services.base import direct
from deploy.local.site import HOST
from deploy.local.sparkcluster import SparkCluster, family


def kill_worker(machines: SparkCluster, number: int) -> None:
    """kill -9 of a worker with its executors and their Python workers, as when its machine loses power."""
    worker = machines.running.pop(number)
    for process in family(worker.pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    worker.wait(30)


def signal_worker(machines: SparkCluster, number: int, signal: int) -> None:
    """Send a signal to a worker, its executors and their Python workers: SIGSTOP is a machine that is frozen."""
    for process in family(machines.running[number].pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal)


def end_applications(machines: SparkCluster) -> None:
    """What the "kill" of the master's page does."""
    with direct() as session:
        for application in machines.state()["activeapps"]:
            form = {"id": application["id"], "terminate": "true"}
            session.post(f"http://{HOST}:{machines.web}/app/kill/", data=form, timeout=10).raise_for_status()


def executors(machines: SparkCluster) -> list[psutil.Process]:
    """The executors' virtual machines."""
    return [p for worker in machines.running.values() for p in family(worker.pid)[1:] if "java" in _name(p)]


def key_counts(store: RedisCluster) -> list[int]:
    """How many keys each node has."""
    counts = []
    for port in store.ports:
        with redis.Redis(HOST, port, socket_timeout=10) as client:
            counts.append(int(client.dbsize()))
    return counts


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""
