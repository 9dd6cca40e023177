"""Kafka Connect with Debezium's Postgres connector, exactly-once sources on."""

from __future__ import annotations

from pathlib import Path

import requests

from deploy.local.process import Launch
from deploy.local.services import jvm
from deploy.local.services.base import PROBE_SECONDS, direct
from deploy.local.services.kafka import MAX_MESSAGE_BYTES
from deploy.local.services.plugins import outdated, plugins
from deploy.local.site import HOST, Site

PLUGIN = "headwater.connect.PostgresConnector"

# A third of the first heap is all that Java sets aside for new objects; under load they are collected so often that
# this was a seventh of the worker's processor time.
YOUNG = "128m"


class Connect(jvm.JavaService):
    """The worker that runs connectors."""

    name = "connect"
    needs = ("kafka",)
    port_names = ("connect",)
    boot_seconds = 120.0
    stop_seconds = 60.0  # a first clean stop also writes the class archive

    @classmethod
    def units(cls) -> tuple[str, ...]:
        """Connect's runtime is among Kafka's jars."""
        return ("kafka", "connect-plugins", "connect-avro")

    def prepare(self, site: Site, units: dict[str, Path]) -> None:
        """Write the worker's configuration."""
        folder = site.data(self.name)
        jvm.logging(site, self.name, folder)
        (folder / "connect.properties").write_text(jvm.properties(self._settings(site, plugins(site, units))))

    def _settings(self, site: Site, plugin_path: Path) -> dict[str, object]:
        settings: dict[str, object] = {
            "bootstrap.servers": f"{HOST}:{site.port('kafka')}",
            "group.id": "headwater-connect",
            "listeners": f"http://{HOST}:{site.port('connect')}",
            "rest.advertised.host.name": HOST,
            "offset.storage.partitions": 1,
            "status.storage.partitions": 1,
            # Offsets are flushed with the transaction when exactly-once is on; this is for connectors without it.
            "offset.flush.interval.ms": 1000,
            "offset.flush.timeout.ms": 5000,
            "plugin.path": str(plugin_path),
            "plugin.discovery": "service_load",  # no scan of every class in every jar: seconds at each start
            "scheduled.rebalance.max.delay.ms": 0,  # one worker: nobody to wait for
            "connector.client.config.override.policy": "All",
            "task.shutdown.graceful.timeout.ms": 3000,
            "topic.creation.enable": "true",
            "exactly.once.source.support": "enabled",
            "producer.max.request.size": MAX_MESSAGE_BYTES,
        }
        for side in ("key", "value"):
            settings[f"{side}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
            settings[f"{side}.converter.schemas.enable"] = "false"
        for topic in ("config", "offset", "status"):
            settings[f"{topic}.storage.topic"] = f"connect-{topic}s" if topic != "status" else "connect-status"
            settings[f"{topic}.storage.replication.factor"] = 1
        return settings

    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """``ConnectDistributed connect.properties``."""
        folder = site.data(self.name)
        argv = jvm.java(site, self.name, units["kafka"], ("256m", "1g"), folder / "log4j2.properties")
        argv[1:1] = [f"-XX:NewSize={YOUNG}"]
        argv += site.jdk.archive_flags(site.archive(self.name, units["kafka"]))
        argv += ["org.apache.kafka.connect.cli.ConnectDistributed", str(folder / "connect.properties")]
        return Launch(argv, folder, site.log(self.name))

    def ailment(self, site: Site) -> str | None:
        """The worker has joined its group and lists our connector, which stands on Debezium's."""
        try:
            with direct() as session:
                health = session.get(f"{self.address(site)}/health", timeout=PROBE_SECONDS)
                if health.status_code != 200:
                    return str(health.json().get("message", health.status_code))[:200]
                plugins = session.get(f"{self.address(site)}/connector-plugins", timeout=PROBE_SECONDS).json()
        except (requests.RequestException, ValueError, AttributeError) as error:
            return f"no answer ({type(error).__name__})"
        listed = any(plugin.get("class") == PLUGIN for plugin in plugins)
        return None if listed else "our Postgres connector, above Debezium's, is not listed"

    def address(self, site: Site) -> str:
        """As a URL."""
        return f"http://{HOST}:{site.port('connect')}"

    def behind(self, site: Site, units: dict[str, Path]) -> bool:
        """It reads its plugins once, when it starts."""
        return bool(outdated(site, units))

    def logs(self, site: Site) -> list[Path]:
        """Its own log, then its standard output."""
        return [jvm.server_log(site, self.name), site.log(self.name)]
