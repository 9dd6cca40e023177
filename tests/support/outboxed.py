"""An application with an outbox: what it has committed, what its topics hold, what the sinks show."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from cdc.pipeline import load
from examples.common import ensure_database
from sinks.iceberg import catalogue as iceberg
from tests.support.joined import Documents
from tests.support.own_tables import OwnTables, Writing

OWNER, PREFIX = "outbox_owner", "events-out"
TYPES = ("order", "Customer.v2")
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, state text);
CREATE TABLE outbox (
  id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL,
  payload jsonb, at timestamptz NOT NULL DEFAULT now());
INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000001', 'order', 'old', 'kept', '{"n": 0}');
"""
OLD = "00000000-0000-0000-0000-000000000001"
VIEWS: dict[str, Any] = {
    "event": {"root": "outbox", "columns": ["id", "aggregatetype", "aggregateid", "type", "payload"]},
    "sale": {
        "root": "outbox",
        "events": ["order"],
        "columns": ["aggregateid"],
        "fields": {"n": "cast(get_json_object(payload, '$.n') AS bigint)"},
        "where": "type = 'paid'",
    },
    "state": {
        "root": "outbox",
        "events": ["order"],
        "columns": [{"aggregateid": "about"}],
        "fold": {
            "initial": "named_struct('placed', 0, 'paid', 0, 'last', cast(null as bigint))",
            "step": "named_struct('placed', state.placed + if(event.type = 'placed', 1, 0), 'paid', state.paid + "
            "if(event.type = 'paid', 1, 0), 'last', cast(get_json_object(event.payload, '$.n') as bigint))",
        },
    },
}
# What an aggregate's id may be: of a person, of another alphabet, of the characters that JSON and Kafka mind.
AGGREGATES = ("1", "Ünïcödé 🛒", 'a "quoted\\" | one', "2/zwei")
Event = dict[str, Any]


@dataclass
class Outboxed(OwnTables):
    """The pipeline: events in a cache, an index and a warehouse; ``parts`` of ``source.outbox`` besides."""

    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(TABLES.encode())
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        lake = self.folder / "warehouse"
        place = {"catalog_uri": str(lake / "catalog.db"), "warehouse": str(lake), "namespace": self.name}
        sinks = {
            "cache": self.cache(["event", "state"]),
            "search": self.search(["sale"]),
            "warehouse": {"type": "iceberg", **place, "trigger_seconds": 1, "tables": "all"},
        }
        outbox = {"table": "public.outbox", "types": list(TYPES), "message_prefix": PREFIX, **self.parts}
        tables = ["public.orders", "public.outbox"]
        self.write_own(tables, VIEWS, sinks, {"outbox": outbox, "heartbeat_seconds": 1})

    def topics(self) -> list[str]:
        """Those of events."""
        return [f"{self.name}-events", *(f"{self.name}-events.{one}" for one in TYPES)]

    def records(self, topic: str) -> list[tuple[int, bytes, Any]]:
        """(partition, key, value as JSON) of all committed records of a topic, in each partition's order."""
        settings = {"group.id": "test", "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.stack.endpoints.kafka, **settings})
        found = []
        try:
            left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in left])
            while left:
                message = consumer.poll(30)
                assert message is not None
                if message.error():
                    left.discard(message.partition())
                else:
                    value = message.value()
                    found.append((message.partition(), message.key(), None if value is None else json.loads(value)))
        finally:
            consumer.close()
        return found

    def count(self, query: str) -> int:
        """A number from Postgres."""
        with psycopg.connect(self.conninfo) as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def in_table(self) -> Documents:
        """id -> row of the warehouse's table of events, each once."""
        found: Documents = {}
        sink: Any = load(self.file, self.environment()).sinks["warehouse"]
        for batch in iceberg.scan(sink, "hw_warehouse", "outbox"):
            for row in batch.to_pylist():
                assert row["id"] not in found, f"{row['id']} is there twice"
                found[row["id"]] = row
        return found


class Application(Writing):
    """Writes events as applications do: most rows are deleted with the transaction that inserts them.

    Attributes:
        events: those that were committed, in the order of their commits.
    """

    pause, least = 0.004, 50

    def __init__(self, conninfo: str) -> None:
        super().__init__(conninfo)
        self.events: list[Event] = []

    def row(self, connection: psycopg.Connection[Any]) -> None:
        written = [self._event(self.committed) for _ in range(self.random.choice((1, 1, 3)))]
        ids, kept = [one["id"] for one in written], self.random.random()
        with connection.transaction() as transaction:
            connection.execute("INSERT INTO orders VALUES (%s, 'new')", [self.committed])
            for one in written:
                self._write(connection, one)
            if kept < 0.6:
                connection.execute("DELETE FROM outbox WHERE id = ANY(%s)", [ids])
            elif kept < 0.7:
                connection.execute("UPDATE outbox SET type = type WHERE id = ANY(%s)", [ids])
            elif kept < 0.85:
                raise psycopg.Rollback(transaction)
        if not 0.7 <= kept < 0.85:
            self.events += written

    def _event(self, number: int) -> Event:
        one = self.random
        return {
            "id": str(uuid.UUID(int=one.getrandbits(128), version=4)),
            "aggregatetype": one.choice((*TYPES, "Unheard of/ünknown")),
            "aggregateid": one.choice(AGGREGATES),
            "type": one.choice(("placed", "paid")),
            "payload": {"n": number, "é": ["🛒", 1.50, None]},
        }

    def _write(self, connection: psycopg.Connection[Any], event: Event) -> None:
        if self.random.random() < 0.3:
            said = ("SELECT pg_logical_emit_message(true, %s, %s)", [PREFIX, json.dumps(event)])
        else:
            values = [*list(event.values())[:4], json.dumps(event["payload"])]
            said = ("INSERT INTO outbox VALUES (%s, %s, %s, %s, %s)", values)
        connection.execute(*said)
