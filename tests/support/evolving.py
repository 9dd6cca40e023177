"""A pipeline over two small tables, as JSON or as Avro, whose columns change while somebody writes."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import Producer
from ruamel.yaml import YAML

from examples.common import REPLICATION_ROLE, ensure_database
from tests.support.joined import Joined

OWNER = "evolving_owner"
ROWS = 300
TABLES = """
CREATE TABLE things (id int PRIMARY KEY, a varchar(8) DEFAULT 'new', n int, price numeric(6,2), gone text DEFAULT 'x');
CREATE TABLE parts (id int PRIMARY KEY, thing int, weight int);
"""
VIEWS: dict[str, Any] = {
    "thing": {"root": "things", "columns": ["id", "a", "n", "price"]},
    "card": {
        "root": "things",
        "columns": ["id", "n"],
        "children": {"parts": {"table": "parts", "on": {"id": "thing"}, "columns": ["id", "weight"]}},
        "aggregates": {
            "heavy": {"table": "parts", "on": {"id": "thing"}, "value": "sum(weight * 2)", "where": "weight > 10"}
        },
    },
}
TRUTH = """
SELECT 'thing' AS view, id::text AS id, jsonb_build_object(
    'id', id, 'a', a, 'n', n, 'price', price::text) FROM things
UNION ALL
SELECT 'card', t.id::text, jsonb_build_object('id', t.id, 'n', t.n,
    'parts', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', p.id, 'weight', p.weight) ORDER BY p.id), '[]')
              FROM parts p WHERE p.thing = t.id),
    'heavy', (SELECT sum(p.weight * 2) FROM parts p WHERE p.thing = t.id AND p.weight > 10)) FROM things t
"""


@dataclass
class Evolving(Joined):
    """The pipeline.

    Attributes:
        form: ``source.format``.
    """

    form: str = "json"

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(TABLES.encode())
            connection.execute(
                "INSERT INTO things SELECT i, CASE WHEN i %% 3 > 0 THEN 'a' || i END, i, i / 3.0 "
                "FROM generate_series(1, %s) i",
                [ROWS],
            )
            connection.execute(
                "INSERT INTO parts SELECT i, i %% %s + 1, i %% 20 FROM generate_series(1, %s) i", [ROWS, 2 * ROWS]
            )
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        endpoints = self.stack.endpoints
        source: dict[str, Any] = {
            "host": endpoints.postgres_host,
            "port": endpoints.postgres_port,
            "database": self.name,
            "user": REPLICATION_ROLE,
            "password": "${HEADWATER_SOURCE_PASSWORD}",
            "setup_user": OWNER,
            "setup_password": "${HEADWATER_SETUP_PASSWORD}",
            "tables": ["public.things", "public.parts"],
            "format": self.form,
        }
        source["registry"] = {"url": endpoints.registry_url}  # JSON does not ask for it
        document = {
            "version": 1,
            "name": self.name,
            "source": source,
            "kafka": {"bootstrap": endpoints.kafka},
            "connect": {"url": endpoints.connect_url},
            "views": {self.view(name): view for name, view in VIEWS.items()},
            "row_store": {"url": endpoints.redis_store_url},
            "sinks": {
                "cache": {
                    "type": "redis",
                    "url": endpoints.redis_cache_url,
                    "key_prefix": f"{self.name}:",
                    "views": [self.view(name) for name in VIEWS],
                },
                "search": {
                    "type": "elasticsearch",
                    "url": endpoints.elasticsearch_url,
                    "view": self.view("thing"),
                    "mapping": {"n": {"type": "long"}},
                },
            },
            "engine": {"state_dir": str(self.folder / "state")},
        }
        with self.file.open("w") as out:
            YAML().dump(document, out)

    def held(self) -> dict[str, Any]:
        """What both sinks show."""
        return {
            "thing": self.in_redis("thing"),
            "thing by search": self.in_elasticsearch("thing"),
            "card": self.in_redis("card"),
        }

    def wanted(self) -> dict[str, Any]:
        """What they should show."""
        truth = self.truth(TRUTH)
        return truth | {"thing by search": truth["thing"]}

    def assert_settled(self, seconds: float = 90.0) -> None:
        """Both sinks show what the tables hold."""
        wanted = self.wanted()
        found = self.settled(self.held, wanted, seconds)
        for view, documents in wanted.items():
            wrong = {key: (found[view].get(key), one) for key, one in documents.items() if found[view].get(key) != one}
            assert not wrong, f"{view}: {len(wrong)} differ, like {next(iter(wrong.items()))}\n{self.log()}"
            assert found[view].keys() == documents.keys()

    def produce(self, table: str, key: bytes, value: bytes) -> None:
        """Write into a table's topic, as nobody should."""
        producer = Producer({"bootstrap.servers": self.stack.endpoints.kafka})
        producer.produce(f"{self.name}.public.{table}", key=key, value=value)
        assert producer.flush(30) == 0


class Writer(threading.Thread):
    """Writes rows of both tables until it is told to end; ``with`` does."""

    def __init__(self, conninfo: str) -> None:
        super().__init__()
        self.conninfo, self.random, self.ended = conninfo, random.Random(7), threading.Event()
        self.largest = 20_000
        self.committed = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        rng = self.random
        try:
            with psycopg.connect(self.conninfo, autocommit=True) as connection:
                while not self.ended.is_set():
                    key, kind = rng.randrange(1, ROWS + 50), rng.random()
                    if kind < 0.15:
                        connection.execute("DELETE FROM things WHERE id = %s", [key])
                    else:
                        connection.execute(
                            "INSERT INTO things (id, a, n, price) VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE "
                            "SET a = excluded.a, n = excluded.n, price = excluded.price",
                            [key, rng.choice((None, "", "b")), rng.randrange(self.largest), rng.randrange(1000) / 100],
                        )
                    connection.execute(
                        "UPDATE parts SET weight = %s, thing = %s WHERE id = %s",
                        [rng.randrange(40), key, rng.randrange(1, 2 * ROWS)],
                    )
                    self.committed += 1
                    time.sleep(0.01)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()
        assert self.error is None, self.error
        assert self.committed > 100
