"""Debezium's JDBC sink in a Connect worker of its own: from a topic into a second database of the local Postgres.

It wants records with schemas, and a key that has one: our topics' keys are JSON without. So a Debezium connector of its
own in the local stack's worker brings the flights into a topic, whole events in Avro, which is what its manual advises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import requests
from confluent_kafka.admin import AdminClient

from benchmarks.peers import jars
from benchmarks.peers.measuring import wait_until
from cdc.errors import KafkaError, StackError
from cdc.log.ends import LogEnds
from cdc.pipeline import Connect as ConnectSettings
from connectors.debezium import AVRO_CONVERTER, CONNECTOR_CLASS
from connectors.rest import ConnectClient
from deploy.local import artifacts
from deploy.local.endpoints import Endpoints
from deploy.local.keeper import Keeper
from deploy.local.services import jvm
from deploy.local.services.base import PROBE_SECONDS, direct
from deploy.local.services.connect import Connect
from deploy.local.site import Site
from deploy.local.stack import LocalStack
from examples.common import connect, conninfo

UNIT, NAME, PREFIX = "jdbc-sink", "peer-connect", "benchjdbc"
TOPIC, SOURCE = f"{PREFIX}.public.flights", "benchjdbc-source"
SINK_CLASS = "io.debezium.connector.jdbc.JdbcSinkConnector"
# From HEADWATER_PORT_BASE: our worker has +83.
PORT_OFFSET = 17
PARTITIONS = 4
# What its makers offer for speed: larger batches, and one statement with arrays for all rows of one.
TUNED = {
    "batch.size": "5000",
    "consumer.override.max.poll.records": "5000",
    "dialect.postgres.unnest.insert.enabled": "true",
}
Progress = Callable[[str], None]


class PeerConnect(Connect):
    """Our Connect service with the sink among its plugins.

    Args:
        stack: the site of the local stack, whose Kafka it uses.
    """

    name = NAME

    def __init__(self, stack: Site) -> None:
        self.stack = stack

    @classmethod
    def units(cls) -> tuple[str, ...]:
        """As ours, and the sink."""
        return (*Connect.units(), UNIT)

    def prepare(self, site: Site, units: dict[str, Path]) -> None:
        """Write the worker's configuration; its plugins are those of the stack's worker, and the sink."""
        folder = site.data(self.name)
        jvm.logging(site, self.name, folder)
        settings = self._settings(site, self.stack.data(Connect.name) / "plugins") | {
            "bootstrap.servers": Endpoints.of(self.stack).kafka,
            "group.id": NAME,
            "plugin.path": f"{self.stack.data(Connect.name) / 'plugins'},{units[UNIT]}",
            **{f"{topic}.storage.topic": f"{NAME}-{topic}" for topic in ("config", "offset", "status")},
        }
        (folder / "connect.properties").write_text(jvm.properties(settings))

    def ailment(self, site: Site) -> str | None:
        """The worker lists the sink."""
        try:
            with direct() as session:
                listed = session.get(f"{self.address(site)}/connector-plugins", timeout=PROBE_SECONDS).json()
            return None if any(one.get("class") == SINK_CLASS for one in listed) else "the sink is not listed"
        except (requests.RequestException, ValueError, AttributeError) as error:
            return f"no answer ({type(error).__name__})"


@contextmanager
def worker(stack: LocalStack, progress: Progress) -> Iterator[str]:
    """Run the worker beside the local stack; its URL. It is stopped at the end.

    Raises:
        StackError: the sink can't be had, or the worker can't be started.
    """
    service = PeerConnect(stack.site)
    place = Site(stack.site.home, stack.site.port_base + PORT_OFFSET, stack.site.account)
    units = artifacts.ensure(list(Connect.units()), progress) | {UNIT: jars.ensure(UNIT, progress)}
    keeper = Keeper(service, place)
    try:
        keeper.up(units, progress, threading.Event())
        yield service.address(place)
    finally:
        keeper.down()


class JdbcSink:
    """Fills a table of a second database from the flights' topic.

    Args:
        stack: the local stack, with its registry.
        url: of the peer's worker.
        source: database whose flights are captured.
        target: database to fill, which exists.
    """

    def __init__(self, stack: LocalStack, url: str, source: str, target: str) -> None:
        self.stack, self.source, self.target = stack, source, target
        self._worker, self._stack_worker = (ConnectClient(_connect(one)) for one in (url, stack.endpoints.connect_url))
        self._log = LogEnds(stack.endpoints.kafka, {})

    @contextmanager
    def captured(self, rows: int) -> Iterator[None]:
        """Bring so many rows into the topic by a connector of Debezium's; all of it is removed at the end."""
        self._stack_worker.put_config(SOURCE, self._source())
        try:
            wait_until(lambda: self._end() >= rows, lambda: _check(self._stack_worker, SOURCE), 0.5, "the topic's rows")
            yield
        finally:
            self._stack_worker.delete(SOURCE)
            self._log.close()
            admin = AdminClient({"bootstrap.servers": self.stack.endpoints.kafka})
            for done in admin.delete_topics([TOPIC]).values():
                done.result()
            self._worker.close()
            self._stack_worker.close()

    def load_seconds(self, rows: int, options: Mapping[str, str]) -> float:
        """Fill the table anew, from offset 0: seconds from the sink's configuration until all rows are there.

        Args:
            rows: how many there are.
            options: of the sink, beside those that it needs.
        """
        name = f"{PREFIX}-sink-{time.time_ns()}"  # another name is another consumer group: it begins at offset 0
        with connect(conninfo(self.stack.endpoints, self.target), autocommit=True) as database:
            database.execute("DROP TABLE IF EXISTS flights")
            began = time.perf_counter()
            self._worker.put_config(name, {**self._sink(), **options})
            try:
                wait_until(lambda: _count(database) == rows, lambda: _check(self._worker, name), 0.5, "the sink's rows")
                return time.perf_counter() - began
            finally:
                self._worker.delete(name)

    def _end(self) -> int:
        with suppress(KafkaError):  # the topic is made with its first record
            return sum(self._log.ends([TOPIC])[TOPIC].values())
        return 0

    def _source(self) -> dict[str, str]:
        endpoints = self.stack.endpoints
        return {
            "connector.class": CONNECTOR_CLASS,
            "database.hostname": endpoints.postgres_host,
            "database.port": str(endpoints.postgres_port),
            "database.dbname": self.source,
            "database.user": endpoints.postgres_superuser,
            "database.password": endpoints.postgres_password,
            "plugin.name": "pgoutput",
            "slot.name": PREFIX,
            "publication.name": PREFIX,
            "publication.autocreate.mode": "filtered",
            "topic.prefix": PREFIX,
            "table.include.list": "public.flights",
            "schema.name.adjustment.mode": "avro",
            "topic.creation.default.partitions": str(PARTITIONS),
            "topic.creation.default.replication.factor": "1",
            **self._avro(),
        }

    def _sink(self) -> dict[str, str]:
        """As its manual's example, with as many tasks as the topic has partitions."""
        endpoints = self.stack.endpoints
        return {
            "connector.class": SINK_CLASS,
            "tasks.max": str(PARTITIONS),
            "topics": TOPIC,
            "connection.url": f"jdbc:postgresql://{endpoints.postgres_host}:{endpoints.postgres_port}/{self.target}",
            "connection.username": endpoints.postgres_superuser,
            "connection.password": endpoints.postgres_password,
            "insert.mode": "upsert",
            "delete.enabled": "true",
            "primary.key.mode": "record_key",
            "schema.evolution": "basic",
            "collection.name.format": "flights",
            **self._avro(),
        }

    def _avro(self) -> dict[str, str]:
        registry = {
            "url": self.stack.endpoints.registry_url.replace("/ccompat/v7", "/registry/v2"),
            "auto-register": "true",
            "serializer.dereference-schema": "true",
        }
        found: dict[str, str] = {}
        for side in ("key", "value"):
            found[f"{side}.converter"] = AVRO_CONVERTER
            found |= {f"{side}.converter.apicurio.registry.{name}": value for name, value in registry.items()}
        return found


def _connect(url: str) -> ConnectSettings:
    return ConnectSettings.model_validate({"url": url})


def _check(client: ConnectClient, name: str) -> None:
    status = client.status(name)
    if status is not None and status.failed:
        raise StackError(f"connector {name} has failed: {status.trace}")


def _count(database: psycopg.Connection[Any]) -> int:
    with suppress(psycopg.errors.UndefinedTable):  # the sink makes it
        row = database.execute("SELECT count(*) FROM flights").fetchone()
        return int(row[0]) if row else 0
    return 0
