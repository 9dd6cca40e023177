"""A connector that has failed is started again, at once and then more and more seldom, and never over a gap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from threading import Thread

import pytest

from cdc.errors import LogGap, SlotLost, SourceError
from cdc.pipeline import Pipeline, loads
from connectors import revival
from connectors.captured.captured import Captured
from connectors.revival import LONGEST_PAUSE, Revival

TEXT = """
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "localhost:1"}
connect: {url: "http://127.0.0.1:PORT"}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", tables: all}
"""


class Worker:
    """What a worker answers: the state of one task, which fails again as often as it is told."""

    def __init__(self) -> None:
        self.state, self.restarts, self.fails = "RUNNING", 0, 0
        self.offset: dict[str, int] | None = {"lsn": 1}
        self.connector, self.done = "RUNNING", list[str]()
        worker = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                task = {
                    "id": 0,
                    "state": worker.state,
                    "trace": "java.lang.IndexOutOfBoundsException: 12\n\tat x",
                }
                tasks = [task] if worker.connector == "RUNNING" else []
                body: dict[str, object] = {"name": "c", "connector": {"state": worker.connector}, "tasks": tasks}
                if self.path.endswith("/offsets"):
                    body = {"offsets": [{"partition": {"server": "shop"}, "offset": worker.offset}]}
                self._answer(json.dumps(body).encode())

            def do_POST(self) -> None:
                worker.restarts += 1
                worker.state = "RUNNING"
                self._answer(b"{}")

            def do_PUT(self) -> None:
                did = self.path.rsplit("/", 1)[-1]
                worker.done.append(did)
                worker.connector = "STOPPED" if did == "stop" else "RUNNING"
                worker.state = "RUNNING"
                self._answer(b"{}")

            def do_DELETE(self) -> None:
                assert worker.connector == "STOPPED", "Connect refuses it of one that is not"
                worker.done.append("forget")
                worker.offset = None
                self._answer(b"{}")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def pipeline(self) -> Pipeline:
        return loads(TEXT.replace("PORT", str(self.server.server_address[1])), "shop.yaml", {})


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_what_runs_is_left_alone(worker: Worker) -> None:
    assert Revival(worker.pipeline, lambda: None).look(0.0) is None
    assert worker.restarts == 0


def test_it_is_tried_at_once_and_then_more_and_more_seldom(worker: Worker) -> None:
    revival, at = Revival(worker.pipeline, lambda: None), list[float]()
    for second in range(0, 4000, 5):
        worker.state = "FAILED"
        if said := revival.look(float(second)):
            at.append(second)
            assert "IndexOutOfBounds" in said
    pauses = [later - sooner for sooner, later in pairwise(at)]
    assert at[0] == 0 and pauses[:3] == [5, 10, 20]
    assert max(pauses) == LONGEST_PAUSE and worker.restarts == len(at)


def test_what_runs_up_to_its_cause_each_time_is_not_well(worker: Worker) -> None:
    revival, at = Revival(worker.pipeline, lambda: None), list[float]()
    failed = 0.0
    for second in range(0, 2000, 5):
        worker.state = "FAILED" if second >= failed else "RUNNING"
        if revival.look(float(second)):
            at.append(second)
            failed = second + 40.0  # it reads the log for so long, and fails at the same row
    pauses = [later - sooner for sooner, later in pairwise(at)]
    assert pauses[:4] == [40, 40, 40, 40] and pauses[5] > 150


def test_after_a_good_while_it_is_tried_at_once_again(worker: Worker) -> None:
    revival = Revival(worker.pipeline, lambda: None)
    for second in (0.0, 5.0, 15.0):
        worker.state = "FAILED"
        assert revival.look(second)
    assert revival.look(1000.0) is None
    worker.state = "FAILED"
    assert revival.look(1001.0) and revival._pause == 10.0


def test_never_over_a_gap(worker: Worker) -> None:
    def lost() -> None:
        raise SlotLost("slot s is gone")

    worker.state = "FAILED"
    with pytest.raises(SlotLost):
        Revival(worker.pipeline, lost).look(0.0)
    assert worker.restarts == 0


def test_a_connector_that_writes_avro_waits_for_apply(worker: Worker) -> None:
    text = TEXT.replace("user: u,", "user: u, format: avro, registry: {url: 'http://127.0.0.1:1'},")
    worker.state = "FAILED"
    assert Revival(loads(text.replace("PORT", str(worker.server.server_address[1])), "f", {}), print).look(0.0) is None
    assert worker.restarts == 0


def test_a_worker_that_is_away_is_looked_at_again(worker: Worker) -> None:
    pipeline = worker.pipeline
    worker.server.shutdown()
    worker.server.server_close()
    assert Revival(pipeline, lambda: None).look(0.0) is None


def test_what_failed_before_its_first_record_begins_anew(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    # Debezium would take the empty offset for the end of its snapshot, and read no row.
    worker.state, worker.offset = "FAILED", {}
    assert Revival(worker.pipeline, lambda: None).look(0.0) is None and worker.done == [], "the database is not asked"
    monkeypatch.setattr(revival, "connect", lambda _: nullcontext(None))
    monkeypatch.setattr(revival, "within", lambda *_: nullcontext())
    entry = Captured("public.orders", "initial", None, datetime.now(UTC))
    monkeypatch.setattr(revival, "read_captured", lambda *_: {"public.orders": entry})
    assert "started again" in (Revival(worker.pipeline, lambda: None).look(0.0) or "")
    assert worker.done == ["stop", "forget", "resume"] and worker.restarts == 0
    worker.state, worker.offset, entry = "FAILED", {}, replace(entry, state="done")
    with pytest.raises(LogGap, match="has lost how far the connector had read"):
        Revival(worker.pipeline, lambda: None).look(0.0)
    assert worker.done == ["stop", "forget", "resume"], "it would have read all tables in a second first snapshot"


def test_a_login_that_is_refused_for_a_moment_ends_no_watch(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password was changed in Postgres before it was in the file: nobody looked at the source any more."""

    def refused(_source: object) -> None:
        raise SourceError("password authentication failed")

    monkeypatch.setattr(revival, "connect", refused)
    worker.state, worker.offset = "FAILED", {}
    looking = Revival(worker.pipeline, lambda: None)
    assert looking.look(0.0) is None and worker.done == []
    monkeypatch.setattr(revival, "connect", lambda _: nullcontext(None))
    monkeypatch.setattr(revival, "within", lambda *_: nullcontext())
    monkeypatch.setattr(revival, "read_captured", lambda *_: {})
    assert "started again" in (looking.look(1.0) or ""), "it was no attempt"
