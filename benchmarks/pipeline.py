"""The pipeline that is measured: the flights database, one view, three sinks, everything under names of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.stack import ready
from cdc.pipeline import Pipeline, load
from examples.common import Passwords
from examples.flights import load as flights

NAME = "bench"
WAIT_SECONDS = 600.0

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


class Bench:
    """The measured pipeline on the local stack.

    Args:
        folder: for its file, state and warehouse.
    """

    def __init__(self, folder: Path) -> None:
        self.stack = ready()
        self.file = folder / "pipeline.yaml"
        self.file.write_text(TEXT.replace("FOLDER", str(folder)))
        endpoints = self.stack.endpoints
        passwords = Passwords.load(home=self.stack.site.home)
        self.env = {**os.environ, **endpoints.environment(), **passwords.as_environment()}
        os.environ.update(self.env)  # the engine is measured in this process too
        flights.load(endpoints, "flights", None, print)

    @property
    def pipeline(self) -> Pipeline:
        """The loaded file."""
        return load(self.file, self.env)

    def headwater(self, verb: str, *options: str) -> str:
        """Run a verb; its standard output."""
        command = [sys.executable, "-m", "console.cli", verb, str(self.file), *options]
        return subprocess.run(command, env=self.env, check=True, stdout=subprocess.PIPE, text=True).stdout

    def status(self) -> dict[str, Any]:
        """``headwater status --json``."""
        report: dict[str, Any] = json.loads(self.headwater("status", "--json"))
        return report

    @contextmanager
    def running(self, *sinks: str) -> Iterator[None]:
        """``headwater run`` on some sinks, caught up."""
        options = [part for sink in sinks for part in ("--sink", sink)]
        command = [sys.executable, "-m", "console.cli", "run", str(self.file), *options]
        with (self.file.parent / "run.log").open("ab") as log:
            runner = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        try:
            until = time.monotonic() + WAIT_SECONDS
            while not all(
                s["state"] == "running" and s["lag_events"] == 0 for s in self.status()["sinks"] if s["sink"] in sinks
            ):
                if runner.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the runner did not catch up; see {log.name}")
                time.sleep(1)
            yield
        finally:
            runner.send_signal(signal.SIGTERM)
            runner.wait(60)
