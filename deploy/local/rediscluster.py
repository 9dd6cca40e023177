"""A Redis Cluster on this machine: a few primaries that share the slots, for proofs and figures.

Like the stack's row store each never evicts and logs its writes.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from cdc.errors import StackError
from cdc.saying import to_nobody
from deploy.local import artifacts
from deploy.local.services.redis import RedisStore, program
from deploy.local.site import HOST
from deploy.local.sparkcluster import free_port

SLOTS = 16_384
# The nodes talk on port + 10000 as well.
BUS = 10_000
READY_SECONDS = 30.0


@dataclass
class RedisCluster:
    """The nodes; use it in a ``with`` block.

    Attributes:
        folder: a folder for each node's log of writes.
        nodes: how many primaries; there are no replicas.
    """

    folder: Path
    nodes: int = 3
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where clients begin: any node knows the others."""
        return f"redis://{HOST}:{self.ports[0]}/0"

    def __enter__(self) -> RedisCluster:
        try:
            for number in range(self.nodes):
                self._start(number)
            self._join()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the nodes."""
        for node in self.running:
            node.terminate()
        for node in self.running:
            node.wait(20)
        self.running = []

    def _start(self, number: int) -> None:
        executable = program(artifacts.ensure(["redis"], to_nobody)["redis"])
        folder = self.folder / f"node{number}"
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port(65535 - BUS)
        settings = {**RedisStore.settings, "bind": HOST, "port": str(port), "dir": str(folder), "save": ""}
        settings |= {"cluster-enabled": "yes", "cluster-node-timeout": "15000", "loglevel": "warning"}
        argv = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with (self.folder / f"node{number}.log").open("ab") as log:
            self.running.append(subprocess.Popen([str(executable), *argv], stdout=log, stderr=log))
        self.ports.append(port)

    def _join(self) -> None:
        share = -(-SLOTS // self.nodes)
        for number, port in enumerate(self.ports):
            self._until(lambda port=port: self._ask(port, "PING"), f"node {number}")
            self._ask(port, "CLUSTER", "ADDSLOTS", *range(number * share, min(SLOTS, (number + 1) * share)))
            self._ask(port, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            self._ask(port, "CLUSTER", "MEET", HOST, self.ports[0])
        for number, port in enumerate(self.ports):
            self._until(lambda port=port: self._whole(port), f"node {number}'s view of the cluster")

    def _whole(self, port: int) -> bool:
        said = self._ask(port, "CLUSTER", "INFO")
        text = said.decode() if isinstance(said, bytes) else str(said)
        return "cluster_state:ok" in text and f"cluster_known_nodes:{self.nodes}" in text

    @staticmethod
    def _ask(port: int, *words: Any) -> Any:
        with redis.Redis(HOST, port, socket_timeout=10) as client:
            return client.execute_command(*words)

    @staticmethod
    def _until(done: Any, what: str) -> None:
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                if done():
                    return
            except redis.RedisError:
                pass
            if time.monotonic() > until:
                raise StackError(f"the Redis Cluster did not come up: {what}")
            time.sleep(0.1)
