"""Kafka: one KRaft node that is broker and controller, data kept over restarts."""

from __future__ import annotations

import base64
import shutil
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local.process import Launch, run_once
from deploy.local.services import jvm
from deploy.local.services.base import PROBE_SECONDS
from deploy.local.site import HOST, Site

MAX_MESSAGE_BYTES = 10 * 2**20


class Kafka(jvm.JavaService):
    """The log between the database and the views."""

    name = "kafka"
    port_names = ("kafka", "kafka-controller")
    boot_seconds = 90.0
    stop_seconds = 60.0  # a first clean stop also writes the class archive

    @classmethod
    def units(cls) -> tuple[str, ...]:
        """Broker, tools and Connect are one set of jars."""
        return ("kafka",)

    def prepare(self, site: Site, units: dict[str, Path]) -> None:
        """Write the configuration; format the log folder once."""
        folder = site.data(self.name)
        log4j2 = jvm.logging(site, self.name, folder)
        (folder / "server.properties").write_text(jvm.properties(self._settings(site)))
        logs = folder / "logs"
        if (logs / "meta.properties").exists():
            return
        # Formatting is not atomic: half a format is thrown away. A log that was ever used has its meta.properties.
        shutil.rmtree(logs, ignore_errors=True)
        # The tool would take a cluster id that begins with "-" for an option.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)
        argv = jvm.java(site, "kafka-format", units["kafka"], ("64m", "256m"), log4j2)
        argv += ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(folder / "server.properties")]
        run_once("formatting Kafka's storage", argv, folder)

    def _settings(self, site: Site) -> dict[str, object]:
        client, controller = f"{HOST}:{site.port('kafka')}", f"{HOST}:{site.port('kafka-controller')}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{client}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": site.data(self.name) / "logs",
            # A typo in a topic's name must be an error, not a new topic with the wrong clean-up policy.
            "auto.create.topics.enable": "false",
            "num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # Rows up to this size travel; the broker, its fetchers and the producers must agree.
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
            "log.cleaner.backoff.ms": 1000,
            "log.cleaner.dedupe.buffer.size": 32 * 2**20,
            "log.retention.check.interval.ms": 10000,
        }

    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """``kafka.Kafka server.properties``."""
        folder = site.data(self.name)
        argv = jvm.java(site, self.name, units["kafka"], ("256m", "512m"), folder / "log4j2.properties")
        argv += site.jdk.archive_flags(site.archive(self.name, units["kafka"]))
        return Launch([*argv, "kafka.Kafka", str(folder / "server.properties")], folder, site.log(self.name))

    def ailment(self, site: Site) -> str | None:
        """Ask for the cluster's metadata and see that it has a controller."""
        quiet = {"log_level": 0, "socket.timeout.ms": int(PROBE_SECONDS * 1000)}
        client = AdminClient({"bootstrap.servers": self.address(site), **quiet}, logger=None)
        try:
            metadata = client.list_topics(timeout=PROBE_SECONDS)
        except KafkaException as error:
            return str(error.args[0].str() if error.args else error)
        return None if metadata.brokers else "no broker has registered yet"

    def address(self, site: Site) -> str:
        """As bootstrap.servers."""
        return f"{HOST}:{site.port('kafka')}"

    def logs(self, site: Site) -> list[Path]:
        """Its own log, then its standard output."""
        return [jvm.server_log(site, self.name), site.log(self.name)]
