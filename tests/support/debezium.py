"""A bare Debezium for the codec's tests: database, connector and topics of its own, with the settings the codec needs.

Independent of connectors/ on purpose: the codec must be right about what Debezium sends, whoever configured it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import requests
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.log.registry import encoding_of
from cdc.records.encoding import Encoding
from tests.support.servers import Servers

# The settings that docs/types.md asks for; each of them decides how values look.
VALUE_SETTINGS = {
    "key.converter": "headwater.connect.RowJsonConverter",
    "decimal.handling.mode": "string",
    "time.precision.mode": "microseconds",
    "interval.handling.mode": "string",
    "binary.handling.mode": "bytes",
    "hstore.handling.mode": "json",
    "include.unknown.datatypes": "true",
}
JSON_SETTINGS = {
    "value.converter": "headwater.connect.RowJsonConverter",
}
# The registry's address is still to be put in.
AVRO_SETTINGS = {
    "value.converter": "headwater.connect.RowAvroConverter",
    "value.converter.apicurio.registry.auto-register": "true",
    "value.converter.apicurio.registry.as-confluent": "true",
    "value.converter.apicurio.registry.use-id": "contentId",
    "value.converter.apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
    "value.converter.apicurio.registry.headers.enabled": "false",
    "value.converter.apicurio.registry.serializer.dereference-schema": "true",
    "schema.name.adjustment.mode": "avro",
}
Record = tuple[bytes | None, bytes | None, int]


class Lab:
    """One scratch database captured by one connector; ``name`` is database, slot, publication, connector and prefix."""

    def __init__(self, stack: Servers, form: str = "json") -> None:
        self.ends = stack.endpoints
        self.form = form
        self.name = f"hwcodec_{uuid.uuid4().hex[:8]}"
        self._admin = AdminClient({"bootstrap.servers": self.ends.kafka})
        self._topics: list[str] = []
        self._connections: list[psycopg.Connection[Any]] = []

    def connect(self, database: str | None = None, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        """A superuser's connection; closed with the lab."""
        ends = self.ends
        made = psycopg.connect(
            host=ends.postgres_host,
            port=ends.postgres_port,
            user=ends.postgres_superuser,
            password=ends.postgres_password or "",
            dbname=database or self.name,
            autocommit=autocommit,
        )
        self._connections.append(made)
        return made

    def topic(self, table: str) -> str:
        return f"{self.name}.public.{table}"

    def create_topics(self, tables: Sequence[str]) -> None:
        self._topics = [*(self.topic(table) for table in tables), f"{self.name}-signal"]
        made = self._admin.create_topics(
            [NewTopic(t, 1, 1, config={"cleanup.policy": "compact"}) for t in self._topics]
        )
        for future in made.values():
            future.result()

    def start(self, tables: Sequence[str], **more: str) -> None:
        ends = self.ends
        config = (
            VALUE_SETTINGS
            | self._converter()
            | {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.hostname": ends.postgres_host,
                "database.port": str(ends.postgres_port),
                "database.user": ends.postgres_superuser,
                "database.password": ends.postgres_password or "",
                "database.dbname": self.name,
                "topic.prefix": self.name,
                "plugin.name": "pgoutput",
                "slot.name": self.name,
                "publication.name": self.name,
                "publication.autocreate.mode": "disabled",
                "table.include.list": ",".join(f"public.{table}" for table in tables),
                "signal.enabled.channels": "source,kafka",
                "signal.data.collection": "public.signal",
                "signal.kafka.topic": f"{self.name}-signal",
                "signal.kafka.bootstrap.servers": ends.kafka,
                "incremental.snapshot.watermarking.strategy": "insert_delete",
                "poll.interval.ms": "10",
                "skipped.operations": "t",
                **more,
            }
        )
        answer = requests.put(f"{ends.connect_url}/connectors/{self.name}/config", json=config, timeout=60)
        assert answer.status_code < 300, answer.text

    def _converter(self) -> dict[str, str]:
        if self.form == "json":
            return JSON_SETTINGS
        url = self.ends.registry_url.replace("/apis/ccompat/v7", "/apis/registry/v2")
        return AVRO_SETTINGS | {"value.converter.apicurio.registry.url": url}

    @property
    def encoding(self) -> Encoding:
        return encoding_of(None if self.form == "json" else {"url": self.ends.registry_url})

    def restart(self) -> None:
        url = f"{self.ends.connect_url}/connectors/{self.name}/restart?includeTasks=true"
        wait_for("restart accepted", lambda: requests.post(url, timeout=60).status_code < 300)

    def incremental_snapshot(self, table: str) -> None:
        data = {"data-collections": [f"public.{table}"], "type": "incremental"}
        producer = Producer({"bootstrap.servers": self.ends.kafka})
        producer.produce(
            f"{self.name}-signal", key=self.name, value=json.dumps({"type": "execute-snapshot", "data": data})
        )
        assert producer.flush(30) == 0

    def read(self, table: str, until: Callable[[list[Record]], bool], seconds: float = 90) -> list[Record]:
        """Everything in a table's topic, once ``until`` says that it is enough."""
        consumer = Consumer(
            {"bootstrap.servers": self.ends.kafka, "group.id": self.name, "isolation.level": "read_committed"}
        )
        consumer.assign([TopicPartition(self.topic(table), 0, 0)])
        found: list[Record] = []
        deadline = time.monotonic() + seconds
        try:
            while not until(found):
                assert time.monotonic() < deadline, f"{len(found)} records in {table} after {seconds} s: {self.trace()}"
                message = consumer.poll(0.5)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.append((message.key(), message.value(), message.offset()))
        finally:
            consumer.close()
        return found

    def trace(self) -> str:
        return requests.get(f"{self.ends.connect_url}/connectors/{self.name}/status", timeout=60).text[:2000]

    def close(self) -> None:
        """Leave nothing behind."""
        for connection in self._connections:
            connection.close()
        url = f"{self.ends.connect_url}/connectors/{self.name}"
        requests.put(f"{url}/stop", timeout=60)
        wait_for("stopped", lambda: not requests.get(f"{url}/status", timeout=60).json().get("tasks"))
        requests.delete(f"{url}/offsets", timeout=60)
        requests.delete(url, timeout=60)
        for future in self._admin.delete_topics(self._topics).values() if self._topics else ():
            future.exception()
        with self.connect("postgres", autocommit=True) as root:
            slots = "SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name = %s"
            wait_for("slot free", lambda: root.execute(slots, [self.name]).fetchone() == (0,))
            drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
            root.execute(drop, [self.name])
            root.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


def wait_for(what: str, done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not {what} after {seconds} s"
        time.sleep(0.1)


@contextmanager
def lab_on(stack: Servers, form: str = "json") -> Iterator[Lab]:
    stack.up(["postgres", "kafka", "connect"], more=["registry"] if form == "avro" else ())
    lab = Lab(stack, form)
    with lab.connect("postgres", autocommit=True) as root:
        root.execute(f"CREATE DATABASE {lab.name} ENCODING 'UTF8' TEMPLATE template0")
    try:
        yield lab
    finally:
        lab.close()
