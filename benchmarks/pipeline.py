"""The pipeline that is measured: the flights database, one view, three sinks, everything under names of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.piped import Piped
from benchmarks.stack import ready
from examples.flights import load as flights

NAME = "bench"

TEXT = """
version: 1
name: bench
source:
  host: ${HEADWATER_POSTGRES_HOST}
  port: ${HEADWATER_POSTGRES_PORT}
  database: flights
  user: headwater
  password: ${HEADWATER_SOURCE_PASSWORD}
  setup_user: flights_owner
  setup_password: ${HEADWATER_SETUP_PASSWORD}
  tables: [public.flights]
kafka: {bootstrap: "${HEADWATER_KAFKA}"}
connect: {url: "${HEADWATER_CONNECT}"}
views:
  bench_flight: {root: flights}
sinks:
  search: {type: elasticsearch, url: "${HEADWATER_ELASTICSEARCH}", view: bench_flight}
  cache: {type: redis, url: "${HEADWATER_REDIS_STORE}", view: bench_flight, key_prefix: "bench:"}
  warehouse:
    type: iceberg
    view: bench_flight
    catalog_uri: FOLDER/warehouse/catalog.db
    warehouse: FOLDER/warehouse
    namespace: bench
    trigger_seconds: 1
engine: {state_dir: FOLDER/state}
"""


class Bench(Piped):
    """The measured pipeline on the local stack.

    Args:
        folder: for its file, state and warehouse.
        text: of its file.
        more: servers that it needs besides the usual ones.
    """

    def __init__(self, folder: Path, text: str = TEXT, more: Sequence[str] = ()) -> None:
        super().__init__(ready(more), folder, text)
        os.environ.update(self.env)  # the engine is measured in this process too
        flights.load(self.stack.endpoints, "flights", None, print)

    @contextmanager
    def following(self, *sinks: str) -> Iterator[None]:
        """``headwater run`` on some sinks, caught up."""
        with self.running(*(part for sink in sinks for part in ("--sink", sink))) as runner:
            self.await_caught_up(runner, *sinks)
            yield
