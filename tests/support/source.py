"""A source database of a test's own on the shared stack: roles, tables, pipelines, and what reaches Kafka."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from psycopg import sql

from cdc.pipeline import Pipeline
from connectors.drop import drop
from deploy.local.endpoints import Endpoints


@dataclass
class SourceDatabase:
    """One database with an owner, who is no superuser, and a replication role, who owns nothing."""

    endpoints: Endpoints
    name: str
    password: str = field(repr=False)
    pipelines: list[Pipeline] = field(default_factory=list)

    @property
    def owner(self) -> str:
        return f"{self.name}_owner"

    @property
    def replicator(self) -> str:
        return f"{self.name}_repl"

    def connect(self, role: str | None = None, database: str | None = None) -> psycopg.Connection[Any]:
        """As the owner by default; ``role="superuser"`` for the server's."""
        superuser = role == "superuser"
        return psycopg.connect(
            host=self.endpoints.postgres_host,
            port=self.endpoints.postgres_port,
            user=self.endpoints.postgres_superuser if superuser else role or self.owner,
            password=self.endpoints.postgres_password if superuser else self.password,
            dbname=database or self.name,
            autocommit=True,
        )

    def execute(self, *statements: str) -> None:
        """Run SQL as the owner, each statement in a transaction of its own."""
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query).fetchall()

    def create(self) -> None:
        with self.connect("superuser", "postgres") as connection:
            for role, rights in ((self.owner, "LOGIN"), (self.replicator, "LOGIN REPLICATION")):
                create = sql.SQL("CREATE ROLE {} " + rights + " PASSWORD {}")
                connection.execute(create.format(sql.Identifier(role), sql.Literal(self.password)))
            create = sql.SQL("CREATE DATABASE {} OWNER {}")
            connection.execute(create.format(sql.Identifier(self.name), sql.Identifier(self.owner)))

    def destroy(self) -> None:
        for pipeline in self.pipelines:
            drop(pipeline, topics=True)
        with self.connect("superuser", "postgres") as connection:
            slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
            connection.execute(slots, [self.name])
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name)))
            for role in (self.owner, self.replicator):
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))

    def pipeline(self, *tables: str, name: str | None = None, **parts: dict[str, Any]) -> Pipeline:
        """A pipeline over tables of this database, dropped with it; ``parts`` replace keys of the file's parts."""
        raw: dict[str, Any] = {
            "version": 1,
            "name": name or self.name,
            "source": {
                "host": self.endpoints.postgres_host,
                "port": self.endpoints.postgres_port,
                "database": self.name,
                "user": self.replicator,
                "password": self.password,
                "setup_user": self.owner,
                "setup_password": self.password,
                "tables": list(tables),
                "heartbeat_seconds": 1,
            },
            "kafka": {"bootstrap": self.endpoints.kafka},
            "connect": {"url": self.endpoints.connect_url},
            "views": {"any": {"root": tables[0].replace("*", "any")}},
            "sinks": {"cache": {"type": "redis", "url": self.endpoints.redis_cache_url, "view": "any"}},
            "policy": {},
        }
        for part, keys in parts.items():
            raw[part] = {**raw.get(part, {}), **keys}
        pipeline = Pipeline.model_validate(raw)
        self.pipelines = [p for p in self.pipelines if p.name != pipeline.name] + [pipeline]
        return pipeline

    def filled_in(self, text: str, **more: str) -> str:
        """A pipeline file's text with this database, its roles and the stack's servers in its places."""
        ends = self.endpoints
        return text.format(
            name=self.name,
            host=ends.postgres_host,
            port=ends.postgres_port,
            user=self.replicator,
            owner=self.owner,
            password=self.password,
            kafka=ends.kafka,
            connect=ends.connect_url,
            **more,
        )

    def records(self, topic: str, partitions: int = 2) -> list[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
        """Every committed record of a topic, as (key, value), partition by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.endpoints.kafka,
                "group.id": "test",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        out = []
        try:
            for partition in range(partitions):
                consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
                while (message := consumer.poll(10)) is not None and not message.error():
                    key, value = message.key(), message.value()
                    out.append((orjson.loads(key) if key else None, orjson.loads(value) if value else None))
                assert message is not None, f"topic {topic} could not be read"
        finally:
            consumer.close()
        return out

    def latest(self, topic: str, partitions: int = 2) -> dict[str, dict[str, Any] | None]:
        """What compaction would keep: each key's newest row, None for a tombstone."""
        newest: dict[str, dict[str, Any] | None] = {}
        for key, value in self.records(topic, partitions):
            newest[json.dumps(key, sort_keys=True)] = value["after"] if value else None
        return newest


# Seen on a machine that others used as well: what takes 100 s took 400.
PATIENCE = 4


def eventually(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether something becomes true within some seconds of a quiet machine."""
    deadline = time.monotonic() + seconds * PATIENCE
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


@contextlib.contextmanager
def source_database(endpoints: Endpoints) -> Iterator[SourceDatabase]:
    """A database for the duration of a block."""
    database = SourceDatabase(endpoints, f"t{secrets.token_hex(4)}", secrets.token_hex(8))
    database.create()
    try:
        yield database
    finally:
        database.destroy()
