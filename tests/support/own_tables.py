"""A pipeline over tables of a test's own, whose file is written here; and who writes to such tables meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import Producer
from ruamel.yaml import YAML

from examples.common import REPLICATION_ROLE
from tests.support.background import Background
from tests.support.joined import Joined


@dataclass
class OwnTables(Joined):
    """The pipeline; what it captures and keeps, its subclasses say."""

    def write_own(
        self,
        tables: Sequence[str],
        views: Mapping[str, Any],
        sinks: Mapping[str, Any],
        source: Mapping[str, Any] | None = None,
        *,
        setup: bool = True,
        **more: Any,
    ) -> None:
        """Write the pipeline file.

        Args:
            tables: as in the file.
            views: as in the file, by their names without the test's.
            sinks: as in the file: see ``cache`` and ``search``.
            source: what it has besides.
            setup: whether the owner is named.
            more: other parts of the file.
        """
        ends = self.stack.endpoints
        place = {"host": ends.postgres_host, "port": ends.postgres_port, "database": self.name}
        user = {"user": REPLICATION_ROLE, "password": "${HEADWATER_SOURCE_PASSWORD}"}
        owner = {"setup_user": self.owner, "setup_password": "${HEADWATER_SETUP_PASSWORD}"} if setup else {}
        document = {
            "version": 1,
            "name": self.name,
            "source": {**place, **user, **owner, "tables": list(tables), **(source or {})},
            "kafka": {"bootstrap": ends.kafka},
            "connect": {"url": ends.connect_url},
            "views": {self.view(name): view for name, view in views.items()},
            "row_store": {"url": ends.redis_store_url},
            "sinks": dict(sinks),
            "engine": {"state_dir": str(self.folder / "state")},
            **more,
        }
        with self.file.open("w") as out:
            YAML().dump(document, out)

    def cache(self, views: Iterable[str]) -> dict[str, Any]:
        """A sink in Redis, with keys of the test's own."""
        url, named = self.stack.endpoints.redis_cache_url, [self.view(name) for name in views]
        return {"type": "redis", "url": url, "key_prefix": f"{self.name}:", "views": named}

    def search(self, views: Iterable[str], **more: Any) -> dict[str, Any]:
        """A sink in Elasticsearch."""
        url, named = self.stack.endpoints.elasticsearch_url, [self.view(name) for name in views]
        return {"type": "elasticsearch", "url": url, "views": named, **more}

    def produce(self, table: str, key: bytes, value: bytes) -> None:
        """Write into a table's topic, as nobody should."""
        producer = Producer({"bootstrap.servers": self.stack.endpoints.kafka})
        producer.produce(f"{self.name}.public.{table}", key=key, value=value)
        assert producer.flush(30) == 0


class Writing(Background):
    """Writes rows, ``row`` after ``row``, until it is told to end; ``with`` does.

    Attributes:
        committed: how often it has.
        pause: between two, in seconds.
        least: that it must have written.
    """

    pause, least = 0.01, 1

    def __init__(self, conninfo: str) -> None:
        super().__init__()
        self.conninfo, self.random = conninfo, random.Random(7)
        self.committed = 0

    def row(self, connection: psycopg.Connection[Any]) -> None:
        """Write once."""
        raise NotImplementedError

    def work(self) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            while not self.over.is_set():
                self.row(connection)
                self.committed += 1
                time.sleep(self.pause)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        assert self.committed >= self.least
