"""The stack's servers as containers, by testcontainers: our images, the settings of docker-compose.yml.

Ports, passwords and health probes are the local stack's (``deploy.local``): one site, other processes. Connect and
the registry share the host's network, for they must find the other servers at the addresses that the tests write into
their pipelines; all others are behind ports of 127.0.0.1.
"""

from __future__ import annotations

import os
import signal as signals
import time
from collections.abc import Sequence
from typing import Any

# Its reaper is an image that would have to be pulled; containers end with the session, see ``close``.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"

from ruamel.yaml import YAML
from testcontainers.core.container import DockerContainer

from deploy.images.catalog import IMAGES, ROOT
from deploy.local import artifacts
from deploy.local.endpoints import Endpoints
from deploy.local.services.registry import DEFAULT, SERVICES, select
from deploy.local.site import HOST, Site

# service of the local stack -> service of docker-compose.yml, and the port it listens on inside
NAMES = {
    "postgres": ("postgres", 5432),
    "kafka": ("kafka", 9094),
    "connect": ("connect", 8083),
    "elasticsearch": ("elasticsearch", 9200),
    "redis-cache": ("redis", 6379),
    "redis-store": ("redis-store", 6379),
    "registry": ("registry", 8080),
}
BOOT_SECONDS = 180.0


class Containers:
    """One container a server, started when it is first asked for."""

    def __init__(self) -> None:
        self.site = Site.find()
        self._described = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())["services"]
        self._made: dict[str, DockerContainer] = {}
        artifacts.spark_jars()

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints.of(self.site)

    def up(self, only: Sequence[str] | None = None, *, more: Sequence[str] = ()) -> None:
        for service in select([*(DEFAULT if only is None else only), *more], with_needs=True):
            name = service.name
            if name not in self._made:
                self._made[name] = self._container(name).start()
            else:
                wrapped = self._made[name].get_wrapped_container()
                wrapped.reload()
                if wrapped.status != "running":
                    wrapped.start()
            self._await(name)

    def kill(self, service: str, signal: int = signals.SIGKILL) -> None:
        wrapped = self._made[service].get_wrapped_container()
        wrapped.kill(signal)
        if signal == signals.SIGKILL:
            wrapped.wait()

    def close(self) -> None:
        for container in self._made.values():
            container.stop(force=True, delete_volume=True)

    def _await(self, name: str) -> None:
        deadline = time.monotonic() + BOOT_SECONDS
        while (ailment := SERVICES[name].ailment(self.site)) is not None:
            wrapped = self._made[name].get_wrapped_container()
            wrapped.reload()
            log = wrapped.logs(tail=20).decode(errors="replace")
            assert wrapped.status == "running", f"{name} has ended:\n{log}"
            assert time.monotonic() < deadline, f"{name}: {ailment}\n{log}"
            time.sleep(0.3)

    def _container(self, name: str) -> DockerContainer:
        described, inside = self._described[NAMES[name][0]], NAMES[name][1]
        port = self.site.port(SERVICES[name].port_names[0])
        container = DockerContainer(IMAGES[name.removesuffix("-cache").removesuffix("-store")].tag)
        for key, value in {**described.get("environment", {}), **self._own(name, port)}.items():
            container.with_env(key, value)
        if command := described.get("command"):
            container.with_command(command)
        more: dict[str, Any] = {}
        if name in ("connect", "registry"):
            more["network_mode"] = "host"
        else:
            # `with_bind_ports` would open the port to the network: it knows no address.
            container.ports[str(inside)] = (HOST, port)  # type: ignore[assignment]
        container.with_kwargs(mem_limit=described["mem_limit"], **more)
        return container

    def _own(self, name: str, port: int) -> dict[str, str]:
        """What is said otherwise than in docker-compose.yml."""
        if name == "postgres":
            return {"POSTGRES_PASSWORD": self.site.secret("postgres")}
        if name == "kafka":
            return {"KAFKA_ADVERTISED_LISTENERS": f"INSIDE://127.0.0.1:9092,OUTSIDE://{HOST}:{port}"}
        if name == "connect":
            kafka = f"{HOST}:{self.site.port('kafka')}"
            listener = f"http://{HOST}:{port}"
            return {"BOOTSTRAP_SERVERS": kafka, "CONNECT_LISTENERS": listener, "ADVERTISED_HOST_NAME": HOST}
        if name == "registry":
            return {
                "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": f"{HOST}:{self.site.port('kafka')}",
                "QUARKUS_HTTP_HOST": HOST,
                "QUARKUS_HTTP_PORT": str(port),
                "QUARKUS_MANAGEMENT_HOST": HOST,
                "QUARKUS_MANAGEMENT_PORT": str(self.site.port("registry-management")),
            }
        return {}
