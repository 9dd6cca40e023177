"""What is broken: a stack of its own, a shop and a bank in one database, joined views of both in every sink."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from ruamel.yaml import YAML

from cdc.pipeline import Pipeline, load
from deploy.local.site import DEFAULT_PORT_BASE
from examples.shop import generate
from tests.chaos.steps import LINKS
from tests.support import bank
from tests.support.proxy import Proxy
from tests.support.scenario import SHOP, Scenario

NAME = "chaos"
SIZES = generate.Sizes(150, 60, 300)
# Our own ports, so that a stack that somebody works with is left alone.
PORTS_FROM_BASE = 500
# The cleaner works all the time, but of a key that changes all the time it leaves what is younger than a minute: a
# batch that is planned now is read within that time also on a busy machine, so no flow starves. The steps that need
# more let go of it (`compact_everything`). Tombstones stay as long as the pipeline says: who is away for longer is
# another fault. A segment is closed by the next record after its time, so it takes a steady load.
SPARED_MS = 60_000
COMPACTED_BY_FORCE = {
    "segment.ms": "3000",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": str(SPARED_MS),
    "segment.bytes": str(2**20),
}
# Batches one right after the other would keep two cores busy with starting them, and nothing else would get done.
ENGINE = {"trigger_ms": 4000}
TABLES = ("customers", "products", "orders", "order_items", "bank.banks", "bank.accounts")
SINK_VIEWS = {
    "search": ["customer", "product", "order_item", "customer_card", "bank"],
    "cache": ["customer", "order_card", "account"],
}


def home() -> Path:
    """Where its servers, state and results lie."""
    return Path(os.environ.get("CHAOS_HOME") or ".headwater/chaos").absolute()


def settle_environment() -> None:
    """Point this process and all that it starts at a stack of its own."""
    base = int(os.environ.get("CHAOS_PORT_BASE") or 0)
    base = base or int(os.environ.get("HEADWATER_PORT_BASE") or DEFAULT_PORT_BASE) + PORTS_FROM_BASE
    os.environ |= {"HEADWATER_HOME": str(home()), "HEADWATER_PORT_BASE": str(base)}


def _qualified(part: Any) -> Any:
    """The bank's views, with the schema that its tables have here."""
    if not isinstance(part, dict):
        return part
    named = {key: f"bank.{value}" for key, value in part.items() if key in ("root", "table")}
    return {key: _qualified(value) for key, value in part.items()} | named


@dataclass
class World(Scenario):
    """One pipeline, its servers, and the wires in between.

    Attributes:
        links: server -> the proxy that every client of this pipeline passes.
    """

    name: str = NAME
    links: dict[str, Proxy] = field(default_factory=dict)

    def prepare(self, *_: object) -> None:
        """Databases, pipeline file, capture, topics that are compacted all the time."""
        self.conninfo = generate.load(self.stack.endpoints, self.name, sizes=SIZES)
        with self.as_owner() as connection:
            connection.execute("CREATE SCHEMA bank")
            connection.execute("GRANT USAGE ON SCHEMA bank TO headwater")
        with psycopg.connect(self.bank_conninfo) as connection, connection.cursor() as cursor:
            cursor.execute(bank.TABLES)
            cursor.executemany("INSERT INTO banks VALUES (%s, %s)", [(n, f"Bank {n}") for n in range(bank.BANKS)])
            rows = [(n, n % bank.BANKS, bank.EACH, "signed") for n in range(bank.ACCOUNTS)]
            cursor.executemany("INSERT INTO accounts VALUES (%s, %s, %s, %s)", rows)
        for link in LINKS:
            self.links[link] = Proxy("127.0.0.1", self.stack.site.port(link))
        self.write_pipeline()
        self.run("apply", "--wait")
        self.compact_by_force()

    @property
    def bank_conninfo(self) -> str:
        """The owner's, with the bank's tables in front."""
        return psycopg.conninfo.make_conninfo(self.conninfo, options="-c timezone=UTC -c search_path=bank")

    @contextlib.contextmanager
    def as_owner(self, seconds: int = 5) -> Iterator[psycopg.Connection[Any]]:
        """A connection past the proxy; it gives up when the server does not answer."""
        connection = psycopg.connect(
            self.conninfo, autocommit=True, connect_timeout=seconds, tcp_user_timeout=seconds * 1000
        )
        with connection:
            connection.execute(f"SET lock_timeout = {seconds * 1000}".encode())
            yield connection

    def write_pipeline(self) -> None:
        """The shop's file with the bank's views, every server behind its proxy."""
        document: dict[str, Any] = YAML(typ="safe").load(SHOP.read_text())
        views = document["views"] | {name: _qualified(view) for name, view in bank.VIEWS.items()}
        of = {link: f"127.0.0.1:{proxy.port}" for link, proxy in self.links.items()}
        document |= {"name": self.name, "views": views, "engine": ENGINE | {"state_dir": str(self.folder / "state")}}
        tables = [table if "." in table else f"public.{table}" for table in TABLES]
        document["source"] |= {"database": self.name, "port": self.links["postgres"].port, "tables": tables}
        document["kafka"] |= {"compaction_lag_hours": round(SPARED_MS / 3_600_000, 4)}
        document["row_store"] = {"url": f"redis://{of['redis-store']}/0"}
        sinks = document["sinks"]
        sinks["search"] |= {"url": f"http://{of['elasticsearch']}", "views": SINK_VIEWS["search"]}
        sinks["cache"] |= {"url": f"redis://{of['redis-cache']}/0", "views": SINK_VIEWS["cache"]}
        warehouse = self.folder / "warehouse"
        sinks["warehouse"] |= {
            "catalog_uri": str(warehouse / "catalog.db"),
            "warehouse": str(warehouse),
            "namespace": self.name,
            "tables": ["bank.accounts"],
            "trigger_seconds": 10,
        }
        self.write_file(document)

    def pipeline(self) -> Pipeline:
        """The loaded file."""
        return load(self.file, self.environment())

    # -- the log -------------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The compacted topics."""
        pipeline = self.pipeline()
        return [pipeline.topic(table) for table in pipeline.source.tables]

    def compact_by_force(self) -> None:
        """Let the cleaner run all the time; `apply` sets the topics back, so this follows each."""
        self._configure_topics(COMPACTED_BY_FORCE)

    @contextlib.contextmanager
    def compact_everything(self) -> Iterator[None]:
        """Within this the cleaner spares nothing."""
        self._configure_topics({"min.compaction.lag.ms": "0"})
        try:
            yield
        finally:
            self.compact_by_force()

    def _configure_topics(self, settings: Mapping[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.stack.endpoints.kafka})
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        wanted = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name in self.topics()]
        for done in admin.incremental_alter_configs(wanted).values():
            done.result(30)

    def log_left(self) -> tuple[int, int]:
        """How many offsets the compacted topics have given out, and how many records of them are left."""
        settings = {"bootstrap.servers": self.stack.endpoints.kafka, "group.id": "chaos", "enable.partition.eof": True}
        consumer = Consumer(settings)
        offsets = records = 0
        try:
            for topic in self.topics():
                for number in consumer.list_topics(topic, 30).topics[topic].partitions:
                    offsets += consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1]
                    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
                    while (message := consumer.poll(10)) is not None and not message.error():
                        records += 1
        finally:
            consumer.close()
        return offsets, records

    # -- wires ---------------------------------------------------------------------------------------------------------

    def mend(self, link: str) -> None:
        """Make a wire whole again. What a deaf one swallowed is lost, so its connections end first."""
        self.links[link].mode = "closed"
        self.links[link].mode = "open"

    def close(self) -> None:
        """End the runner and the servers; data, logs and state stay for a look."""
        self.stop()
        for proxy in self.links.values():
            proxy.close()
