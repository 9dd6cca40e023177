"""docker-compose.yml as one thing: bring it up, ask it, kill a part of it, take it down."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.errors import StackError
from deploy.compose.env import fresh
from deploy.images.catalog import ROOT
from deploy.images.docker import docker
from deploy.images.engine import compose

FILE = ROOT / "docker-compose.yml"
# Where the ports begin, unless HEADWATER_PORT_BASE says otherwise: beside the local stack, not on it.
PORT_BASE = 21000
PORTS = {
    "postgres": 432,
    "kafka": 92,
    "connect": 83,
    "elasticsearch": 200,
    "redis_cache": 379,
    "redis_store": 380,
    "registry": 80,
}
# A first `up` loads 367,687 rows and takes a snapshot of them; a loaded machine may need this long.
UP_SECONDS = 900
PIPELINE = "/etc/headwater/pipeline.yaml"


@dataclass
class System:
    """One compose project on images built here, with passwords and ports of its own."""

    project: str
    base: int = field(default_factory=lambda: int(os.environ.get("HEADWATER_PORT_BASE") or PORT_BASE))
    environment: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.environment = fresh(images=True) | {"COMPOSE_PROJECT_NAME": self.project}
        self.environment |= {f"HEADWATER_PORT_{name.upper()}": str(self.port(name)) for name in PORTS}

    def port(self, name: str) -> int:
        """A server's port on 127.0.0.1."""
        return self.base + PORTS[name]

    def compose(self, *arguments: str, seconds: float = 120) -> str:
        """Run compose on the project; StackError with its last words if it fails."""
        command = [*compose(), "-p", self.project, "-f", str(FILE), *arguments]
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
        if done.returncode != 0:
            raise StackError(f"`compose {' '.join(arguments)}` failed: {(done.stdout + done.stderr).strip()[-3000:]}")
        return done.stdout

    def up(self) -> None:
        """Everything, in the order of its conditions; returns when the live queries have been started."""
        self.compose("up", "-d", seconds=UP_SECONDS)

    def down(self) -> None:
        """Remove containers, network and volumes."""
        self.compose("down", "--volumes", "--timeout", "30", seconds=300)

    def container(self, service: str) -> str:
        """The id of a service's container."""
        return self.compose("ps", "-q", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """What Docker knows of a service's container."""
        found: dict[str, Any] = json.loads(docker("inspect", self.container(service)))[0]
        return found

    def health(self, service: str) -> str:
        """``healthy``, ``starting``, ``unhealthy``, or the state of a container that does not run."""
        state = self.inspect(service)["State"]
        return str(state["Health"]["Status"]) if state["Running"] else str(state["Status"])

    def healthy(self, service: str, seconds: float) -> None:
        """Wait for a container's health check; StackError with what it printed when it does not pass in time."""
        deadline = time.monotonic() + seconds
        while (health := self.health(service)) != "healthy":
            if time.monotonic() > deadline:
                raise StackError(f"{service} is {health}: {self.logs(service)}")
            time.sleep(0.5)

    def logs(self, service: str, lines: int = 15) -> str:
        """The last lines that a service printed."""
        done = docker("logs", "--tail", str(lines), self.container(service), check=False)
        return done or self.compose("logs", "--tail", str(lines), service)

    def ask(self, *arguments: str, ok: Sequence[int] = (0,), seconds: float = 600) -> Any:
        """A verb with ``--json``, run in the container of the live queries.

        Raises:
            StackError: it ended with another exit code than ``ok``.
        """
        verb, *rest = arguments
        command = ["docker", "exec", self.container("headwater"), "headwater", verb, PIPELINE, *rest, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode not in ok:
            raise StackError(f"headwater {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)

    def caught_up(self, seconds: float) -> Mapping[str, Any]:
        """Wait until every sink has applied what is in the log; the status then."""
        return self.wait(lambda report: all(map(_has_all, report["sinks"])), seconds)

    def wait(self, good: Callable[[Mapping[str, Any]], bool], seconds: float) -> Mapping[str, Any]:
        """Ask for the status until it is as wanted; StackError when it does not become so."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                report = self.ask("status", seconds=60)
                if good(report):
                    return report  # type: ignore[no-any-return]
                seen = str([(s["sink"], s["state"], s["lag_events"], s["last_error"]) for s in report["sinks"]])
            except (StackError, subprocess.TimeoutExpired) as error:  # the container may just be starting
                seen = str(error)
            if time.monotonic() > deadline:
                raise StackError(f"not so after {seconds:.0f} s: {seen}\n{self.logs('headwater')}")
            time.sleep(3)  # each question costs the two cores half a second


def _has_all(sink: Mapping[str, Any]) -> bool:
    return bool(sink["state"] == "running" and sink["lag_events"] == 0)
