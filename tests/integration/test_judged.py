"""How a pipeline at work is judged when something stands still that nobody who runs notices by himself.

Every sink says "0 behind" all the while: nothing comes into the log. The age, measured from the commits, does not lie.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import psutil
import psycopg
import pytest
import requests
from ruamel.yaml import YAML

from cdc.pipeline import load
from connectors.debezium import connector_name
from deploy.local.process import Record
from operations.status.facts import sink_limit
from tests.support.local import ready
from tests.support.migrating import Migrating
from tests.support.serving import serving

pytestmark = [pytest.mark.stack, pytest.mark.sampled(turn=1, of=2)]

# What a status may need beyond the limit: `run` notes once a second, and a machine is busy.
BEYOND = 5.0
HEARTBEAT = 1.0


class Hook(BaseHTTPRequestHandler):
    """What `policy.alert` tells."""

    got: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@dataclass
class Judged(Migrating):
    """A pipeline whose heart beats quickly, and who is told when something is bad."""

    hook: str = ""

    def write_pipeline(self) -> None:
        super().write_pipeline()
        document = YAML().load(self.file.read_text())
        document["source"]["heartbeat_seconds"] = HEARTBEAT
        document["policy"]["alert"] = {"webhook": self.hook, "after_seconds": 0}
        with self.file.open("w") as out:
            YAML().dump(document, out)


@dataclass
class World:
    made: Judged
    url: str
    told: list[dict[str, Any]]
    limit: float

    def judged(self) -> dict[str, str]:
        return {sink["sink"]: sink["judgement"] for sink in self.made.status()["sinks"]}

    def ages(self) -> dict[str, float]:
        report = self.made.status()
        return {sink["sink"]: sink["age_seconds"] for sink in report["sinks"]}

    def scraped(self) -> dict[str, float]:
        """Judgements that hold, and ages, as Prometheus sees them."""
        lines = requests.get(f"{self.url}/metrics", timeout=10).text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def until(self, good: Callable[[dict[str, Any]], bool], seconds: float) -> tuple[dict[str, Any], float]:
        """Wait until the status is so; and how long that took."""
        began = time.monotonic()
        while True:
            report = self.made.status()
            took = time.monotonic() - began
            if good(report):
                return report, took
            assert took < seconds, f"not so after {seconds} s: {brief(report)}\n{self.made.log()}"
            time.sleep(0.2)

    def well(self) -> None:
        self.until(lambda report: all(sink["judgement"] == "well" for sink in report["sinks"]), 120)


def brief(report: dict[str, Any]) -> Any:
    return [
        {name: one[name] for name in ("judgement", "cause", "age_seconds")}
        for one in (report["source"], *report["sinks"])
    ]


def all_bad(report: dict[str, Any]) -> bool:
    return all(sink["judgement"] == "behind" for sink in report["sinks"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    told: list[dict[str, Any]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Told", (Hook,), {"got": told}))
    threading.Thread(target=server.serve_forever, args=[0.1], daemon=True).start()
    made = Judged(
        ready(),
        tmp_path_factory.mktemp("judged"),
        sinks=("search", "cache"),
        views={"named": {"root": "things", "columns": ["id", "a", "price"]}},
        hook=f"http://127.0.0.1:{server.server_address[1]}/",
    )
    with made.running(), serving(made.file, made.environment()) as url:
        one = World(made, url, told, sink_limit(load_of(made), "search"))
        one.well()
        yield one
    server.shutdown()
    server.server_close()


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def server_pids(made: Judged, name: str) -> list[int]:
    record = Record.load(made.stack.site.pid_file(name))
    assert record is not None
    return [record.pid, *(child.pid for child in psutil.Process(record.pid).children(recursive=True))]


def wal_sender(made: Judged) -> int:
    with psycopg.connect(made.conninfo) as connection:
        row = connection.execute(
            "SELECT active_pid FROM pg_replication_slots WHERE database = %s AND active", [made.name]
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_database_at_rest_is_well(world: World) -> None:
    """Nobody writes: the heartbeat keeps the log young."""
    until, ages = time.monotonic() + 6, []
    while time.monotonic() < until:
        report = world.made.status()
        assert {sink["judgement"] for sink in report["sinks"]} == {"well"}, brief(report)
        ages += [sink["age_seconds"] for sink in report["sinks"]]
        time.sleep(0.2)
    assert max(ages) < world.limit / 2, ages
    assert {flow["judgement"] for sink in report["sinks"] for flow in sink["flows"]} == {"well"}
    assert report["source"]["judgement"] == "well"


def test_a_scrape_is_quick_and_says_the_same(world: World) -> None:
    found = world.scraped()
    name = world.made.name
    for sink in ("search", "cache"):
        labels = f'generation="1",pipeline="{name}",sink="{sink}"'
        mine = {of: value for of, value in found.items() if f'sink="{sink}"' in of and f'pipeline="{name}"' in of}
        assert [
            value for of, value in mine.items() if of.startswith("headwater_sink_judgement") and '"well"' in of
        ] == [1.0], labels
        assert next(value for of, value in mine.items() if of.startswith("headwater_flow_written_total")) > 0
    seconds = []
    for _ in range(20):
        began = time.monotonic()
        world.scraped()
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 0.05, seconds  # the others had to wait for a busy machine


def test_a_wal_sender_that_hangs_is_told(world: World) -> None:
    """The connector says RUNNING, the slot is active, every sink is 0 behind: nothing is right."""
    world.told.clear()
    with frozen(wal_sender(world.made)):
        world.made.execute("INSERT INTO things (id, a) VALUES (30000, 'unseen')")
        report, took = world.until(all_bad, world.limit + BEYOND)
        assert took > world.limit / 2
        assert [sink["lag_events"] for sink in report["sinks"]] == [0, 0]
        assert {sink["state"] for sink in report["sinks"]} == {"running"}
        assert report["source"]["connector"] == "RUNNING" and report["source"]["slot_active"]
        world.until(lambda one: one["source"]["judgement"] == "stalled", BEYOND)
        age = httpx.get(f"{world.url}/v1/sinks/search/freshness").json()["staleness_seconds"]
        assert age > world.limit
        found = world.scraped()
        told = [of for of, value in found.items() if "sink_judgement" in of and '"behind"' in of and value == 1]
        assert len(told) == 2, told
    world.well()
    until = time.monotonic() + 20
    while len([one for one in world.told if one["event"] == "well"]) < 3 and time.monotonic() < until:
        time.sleep(0.2)
    events = sorted((one["subject"], one["event"]) for one in world.told)
    assert events == [
        (subject, event) for subject in ("sink cache", "sink search", "source") for event in ("alarm", "well")
    ], world.told


def test_a_connector_that_was_paused_is_told(world: World) -> None:
    url = f"{world.made.stack.endpoints.connect_url}/connectors/{connector_name(load_of(world.made))}"
    requests.put(f"{url}/pause", timeout=10).raise_for_status()
    try:
        world.until(lambda one: one["source"]["judgement"] == "paused", 20)
        report, _ = world.until(all_bad, world.limit + BEYOND)
        assert "paused" in report["sinks"][0]["cause"]
        assert [sink["lag_events"] for sink in report["sinks"]] == [0, 0]
    finally:
        requests.put(f"{url}/resume", timeout=10).raise_for_status()
    world.well()


def load_of(made: Judged) -> Any:
    return load(made.file, made.environment())


@pytest.mark.slow
def test_a_runner_that_is_dead_is_told_and_the_age_grows_from_where_it_was(world: World) -> None:
    before = world.ages()
    world.made.kill()
    world.until(lambda one: all(sink["judgement"] == "stopped" for sink in one["sinks"]), BEYOND)
    time.sleep(2)
    assert all(age > before[sink] + 1 for sink, age in world.ages().items())
    world.made.start()
    world.well()


@pytest.mark.slow
@pytest.mark.alone
def test_a_connect_worker_that_is_dead_is_told(world: World) -> None:
    world.made.stack.kill("connect")
    try:
        report, _ = world.until(all_bad, world.limit + BEYOND)
        assert report["source"]["judgement"] == "stalled", brief(report)
        assert [sink["lag_events"] for sink in report["sinks"]] == [0, 0]
    finally:
        world.made.stack.up()
    world.well()


@pytest.mark.slow
@pytest.mark.alone
def test_a_sink_whose_server_hangs_is_told_and_no_other(world: World) -> None:
    with frozen(*server_pids(world.made, "elasticsearch")):
        world.made.execute("INSERT INTO things (id, a) VALUES (30100, 'unseen')")
        world.until(lambda one: judgement(one, "search") in ("behind", "retrying", "stalled"), world.limit + BEYOND)
        assert world.judged()["cache"] == "well"
        world.until(lambda one: judgement(one, "search") in ("retrying", "stalled"), 240)
        assert world.judged()["cache"] == "well"
    world.well()


@pytest.mark.slow
@pytest.mark.alone
def test_a_broker_that_hangs_is_told(world: World) -> None:
    with frozen(*server_pids(world.made, "kafka")):
        world.made.execute("INSERT INTO things (id, a) VALUES (30200, 'unseen')")
        began = time.monotonic()
        while set(scraped_judgements(world).values()) & {"well", "starting"}:
            assert time.monotonic() - began < world.limit + BEYOND, scraped_judgements(world)
            time.sleep(0.3)
    world.well()


def judgement(report: dict[str, Any], sink: str) -> str:
    return str(next(one["judgement"] for one in report["sinks"] if one["sink"] == sink))


def scraped_judgements(world: World) -> dict[str, str]:
    held = [of for of, value in world.scraped().items() if of.startswith("headwater_sink_judgement") and value == 1]
    parts = [dict(part.split("=") for part in of.partition("{")[2].rstrip("}").split(",")) for of in held]
    return {part["sink"].strip('"'): part["judgement"].strip('"') for part in parts}
