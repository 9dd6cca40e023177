"""A pipeline over Spark on several processes: topics with 8 partitions, a Redis Cluster, indices with 3 shards.

The same two joined views go into two pairs of sinks: one pair is kept by the cluster, the other by a process alone. A
warehouse is kept by the cluster only: its files are written by executors.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from elasticsearch import Elasticsearch
from elasticsearch.helpers import scan
from ruamel.yaml import YAML

from deploy.local.rediscluster import RedisCluster
from deploy.local.sparkcluster import SparkCluster
from examples.common import conninfo
from examples.flights import load as flights
from tests.support.scenario import Scenario

PARTITIONS, SHARDS = 8, 3
FLIGHTS = 6000
SILENCE_SECONDS = 30
CLUSTERED, ALONE = ("search", "totals"), ("search_alone", "totals_alone")
WAREHOUSE = "warehouse"
VIEWS: dict[str, Any] = {
    "flight": {
        "root": "flights",
        "refs": {
            "airline": {"table": "airlines", "on": {"carrier": "carrier"}},
            "plane": {"table": "planes", "on": {"tailnum": "tailnum"}},
            "origin_airport": {"table": "airports", "on": {"origin": "faa"}},
        },
        "fields": {"title": "concat(airline.name, ' ', flight)"},
    },
    "plane": {
        "root": "planes",
        "children": {
            "latest": {"table": "flights", "on": {"tailnum": "tailnum"}, "limit": 3, "columns": ["flight_id"]}
        },
        "aggregates": {
            "flights_total": {"table": "flights", "on": {"tailnum": "tailnum"}, "value": "count(*)"},
            "miles": {"table": "flights", "on": {"tailnum": "tailnum"}, "value": "sum(distance)"},
        },
    },
}


@dataclass
class Clustered(Scenario):
    """The pipeline; ``machines`` and ``store`` must be up before it is prepared."""

    machines: SparkCluster | None = None
    store: RedisCluster | None = None
    conf: dict[str, Any] = field(default_factory=dict)
    archive: str = ""

    def prepare(self, *_: object) -> None:
        """Database, pipeline file, capture."""
        flights.load(self.stack.endpoints, self.name, FLIGHTS)
        self.conninfo = conninfo(self.stack.endpoints, self.name)
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        """Two views, each in a sink of the cluster's and in one of a process's alone."""
        assert self.store is not None
        sinks: dict[str, Any] = {}
        for names in (CLUSTERED, ALONE):
            for sink, view in zip(names, VIEWS, strict=True):
                sinks[sink] = {
                    "type": "elasticsearch",
                    "url": "${HEADWATER_ELASTICSEARCH}",
                    "view": self.view(view),
                    "index": f"{self.name}-{sink}",
                    "settings": {"number_of_shards": SHARDS},
                }
        warehouse = self.folder / "warehouse"
        sinks[WAREHOUSE] = {
            "type": "iceberg",
            "tables": ["public.planes"],
            "catalog_uri": str(warehouse / "catalog.db"),
            "warehouse": str(warehouse),
            "namespace": self.name,
        }
        engine = {"state_dir": str(self.folder / "state"), "python_archive": self.archive, "spark_conf": self.conf}
        document = {
            "version": 1,
            "name": self.name,
            "source": {
                "host": "${HEADWATER_POSTGRES_HOST}",
                "port": "${HEADWATER_POSTGRES_PORT}",
                "database": self.name,
                "user": "headwater",
                "password": "${HEADWATER_SOURCE_PASSWORD}",
                "setup_user": flights.OWNER,
                "setup_password": "${HEADWATER_SETUP_PASSWORD}",
                "tables": ["public.flights", "public.airlines", "public.planes", "public.airports"],
            },
            "kafka": {"bootstrap": "${HEADWATER_KAFKA}", "partitions": PARTITIONS},
            "connect": {"url": "${HEADWATER_CONNECT}"},
            "row_store": {"url": self.store.url, "cluster": True},
            "views": {self.view(name): view for name, view in VIEWS.items()},
            "sinks": sinks,
            "engine": engine,
        }
        with self.file.open("w") as out:
            YAML().dump(document, out)

    # -- running it ---------------------------------------------------------------------------------------------------

    @property
    def on_cluster(self) -> list[str]:
        """Options of ``run`` for the cluster's sinks."""
        assert self.machines is not None
        return ["--master", self.machines.url, *(word for sink in (*CLUSTERED, WAREHOUSE) for word in ("--sink", sink))]

    def run_alone(self) -> None:
        """The other sinks, filled and caught up by one process."""
        self.run("run", "--until-caught-up", *(word for sink in ALONE for word in ("--sink", sink)))

    def documents(self, sink: str) -> dict[str, Any]:
        """Every document of a sink, by id."""
        index = f"{self.name}-{sink}"
        with Elasticsearch(self.stack.endpoints.elasticsearch_url, request_timeout=60) as client:
            client.indices.refresh(index=index)
            return {hit["_id"]: hit["_source"] for hit in scan(client, index=index)}

    def assert_same_as_alone(self) -> int:
        """Each sink of the cluster's equals Postgres, and equals that of the process alone; how many documents."""
        self.assert_equal(*(word for sink in (*CLUSTERED, WAREHOUSE) for word in ("--sink", sink)))
        self.run_alone()
        self.assert_equal(*(word for sink in ALONE for word in ("--sink", sink)))
        count = 0
        for clustered, alone in zip(CLUSTERED, ALONE, strict=True):
            ours, theirs = self.documents(clustered), self.documents(alone)
            assert ours == theirs
            count += len(ours)
        return count

    def traffic(self, seconds: float, seed: int) -> Traffic:
        """Changes in the background."""
        return Traffic(self.conninfo, seconds, seed)


class Traffic:
    """Flights are changed, moved to other planes and airlines, deleted and made; airlines are renamed."""

    def __init__(self, info: str, seconds: float, seed: int) -> None:
        self.commits = 0
        self.error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(info, seed), daemon=True)
        self._timer = threading.Timer(seconds, self._over.set)

    def _work(self, info: str, seed: int) -> None:
        rng = random.Random(seed)
        try:
            with psycopg.connect(info, autocommit=True) as database:
                planes = [row[0] for row in database.execute("SELECT tailnum FROM planes ORDER BY 1").fetchall()]
                while not self._over.is_set():
                    for statement, values in self._changes(rng, planes):
                        # Another airline has a flight of that number on that day now and then.
                        with contextlib.suppress(psycopg.errors.UniqueViolation):
                            database.execute(statement.encode(), values)
                            self.commits += 1
                    self._over.wait(0.02)
        except BaseException as error:
            self.error = error

    @staticmethod
    def _changes(rng: random.Random, planes: list[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        first, of_flight = rng.randrange(1, FLIGHTS), "WHERE flight_id = %s"
        several = "WHERE flight_id BETWEEN %s AND %s"
        yield f"UPDATE flights SET dep_delay = %s {several}", (rng.randrange(99), first, first + 20)
        yield f"UPDATE flights SET tailnum = %s {of_flight}", (rng.choice(planes), first)
        if rng.random() < 0.2:
            other = "(SELECT carrier FROM airlines ORDER BY random() LIMIT 1)"
            yield f"UPDATE flights SET carrier = {other} {of_flight}", (first,)
        if rng.random() < 0.1:
            yield f"DELETE FROM flights {of_flight}", (first + 1,)
        if rng.random() < 0.05:
            yield "UPDATE airlines SET name = name || '.' WHERE carrier = 'HA'", ()
            yield "UPDATE planes SET seats = seats + 1 WHERE tailnum = %s", (rng.choice(planes),)

    def __enter__(self) -> Traffic:
        self._thread.start()
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        assert self.error is None, self.error
        assert self.commits > 50


@contextmanager
def clustered(stack: Any, folder: Any, **settings: Any) -> Iterator[Clustered]:
    """The whole: Spark's master and two workers, three Redis nodes, the pipeline; all of it removed afterwards."""
    with (
        SparkCluster(folder / "spark", workers=2, silence=SILENCE_SECONDS) as machines,
        RedisCluster(folder / "redis") as store,
    ):
        made = Clustered(stack, folder, machines=machines, store=store, **settings)
        try:
            made.prepare()
            yield made
        finally:
            made.close()
