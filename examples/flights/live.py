"""The live part of the demo: plain SQL on one side, a stopwatch at each sink on the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
import redis
from elasticsearch import Elasticsearch, NotFoundError

from cdc.errors import HeadwaterError
from cdc.pipeline import ElasticsearchSink, IcebergSink, RedisSink, load
from sinks.iceberg import catalogue as iceberg

# A change that takes longer than this to arrive is a failure, not a slow demo.
PATIENCE_SECONDS = 60.0
TAILNUM, FLIGHT_ID = "N0DEMO", 10_000_001

Visible = dict[str, float]

INSERT = (
    "INSERT INTO planes VALUES"
    " (%(tailnum)s, 2013, 'Fixed wing multi engine', 'HEADWATER', 'HW-1', 2, 200, NULL, 'Turbo-fan')",
    "INSERT INTO flights SELECT %(id)s, year, month, day, dep_time, sched_dep_time, 99, arr_time, sched_arr_time,"
    " arr_delay, carrier, 9999, %(tailnum)s, origin, dest, air_time, distance, hour, minute, time_hour"
    " FROM flights WHERE flight_id = 1",
)
UPDATE = (
    "UPDATE planes SET seats = 201 WHERE tailnum = %(tailnum)s",
    "UPDATE flights SET dep_delay = 7 WHERE flight_id = %(id)s",
)
DELETE = ("DELETE FROM flights WHERE flight_id = %(id)s", "DELETE FROM planes WHERE tailnum = %(tailnum)s")


class Live:
    """Changes the flights database and times how soon each sink shows it.

    Args:
        env: environment with the servers' addresses and the example's passwords.
        pipeline: the pipeline file.
    """

    def __init__(self, env: Mapping[str, str], pipeline: Path) -> None:
        loaded = load(pipeline, env)
        source = loaded.source
        password = source.setup_password or source.password
        self.database = psycopg.connect(
            host=source.host,
            port=source.port,
            dbname=source.database,
            user=source.setup_user or source.user,
            password=password.get_secret_value(),
        )
        sinks = loaded.sinks
        search, cache, warehouse = sinks["search"], sinks["cache"], sinks["warehouse"]
        assert (
            isinstance(search, ElasticsearchSink)
            and isinstance(cache, RedisSink)
            and isinstance(warehouse, IcebergSink)
        )
        self.index, self.warehouse = search.index or "flight", warehouse
        self.elasticsearch = Elasticsearch(search.url, request_timeout=PATIENCE_SECONDS)
        self.redis = redis.Redis.from_url(str(cache.url))

    def __enter__(self) -> Live:
        # Left over from a demo that was cut short.
        self._commit(DELETE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.database.close()
        self.elasticsearch.close()
        self.redis.close()

    def changes(self) -> Iterator[tuple[str, Visible]]:
        """INSERT, UPDATE, DELETE; after each, how many seconds after its commit each sink showed it."""
        for name, statements, delay, seats in (
            ("INSERT", INSERT, 99, 200),
            ("UPDATE", UPDATE, 7, 201),
            ("DELETE", DELETE, None, None),
        ):
            yield name, self._timed(statements, delay, seats)

    def _commit(self, statements: tuple[str, ...]) -> None:
        with self.database.transaction():
            for statement in statements:
                self.database.execute(statement.encode(), {"id": FLIGHT_ID, "tailnum": TAILNUM})

    def _timed(self, statements: tuple[str, ...], delay: int | None, seats: int | None) -> Visible:
        watched: dict[str, Callable[[], bool]] = {
            "elasticsearch (by GET)": lambda: self._document() == delay,
            "elasticsearch (by search)": lambda: self._found() == delay,
            "redis": lambda: self._cached() == seats,
            "iceberg": lambda: self._rows() == ([] if delay is None else [delay]),
        }
        with ThreadPoolExecutor(len(watched)) as pool:
            self._commit(statements)
            committed = time.monotonic()
            waiting = {where: pool.submit(_wait, where, seen, committed) for where, seen in watched.items()}
            return {where: future.result() for where, future in waiting.items()}

    def _document(self) -> int | None:
        try:
            return _delay(self.elasticsearch.get(index=self.index, id=str(FLIGHT_ID)))
        except NotFoundError:
            return None

    def _found(self) -> int | None:
        hits = self.elasticsearch.search(index=self.index, query={"term": {"flight_id": FLIGHT_ID}})["hits"]["hits"]
        return _delay(hits[0]) if hits else None

    def _cached(self) -> int | None:
        value = self.redis.get(f"plane:{TAILNUM}")
        return None if value is None else int(json.loads(value)["seats"])  # type: ignore[arg-type]

    def _rows(self) -> list[int]:
        with iceberg.open_catalog(self.warehouse, "hw_warehouse") as catalog:
            table = iceberg.load_table(catalog, self.warehouse, "flights")
            found = table.scan(row_filter=f"flight_id = {FLIGHT_ID}", selected_fields=("dep_delay",)).to_arrow()
            return [int(value) for value in found.column("dep_delay").to_pylist()]


def _delay(hit: Mapping[str, Any] | Any) -> int | None:
    value = hit["_source"]["dep_delay"]
    return None if value is None else int(value)


def _wait(where: str, seen: Callable[[], bool], committed: float) -> float:
    while not seen():
        if time.monotonic() - committed > PATIENCE_SECONDS:
            raise HeadwaterError(f"a committed change did not appear in {where} within {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.005)
    return time.monotonic() - committed
