"""A measurement whose load or looks have failed is no figure: the run ends with what went wrong."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import redis
import requests

from benchmarks import rebuild, run, schema, warehouse
from benchmarks.costs import Costs
from benchmarks.results import Measurement
from cdc.errors import StackError
from tests.support.background import Background
from tests.support.migrating import Readers


class Away(Exception):
    """A server does not answer."""


MADE: Any = SimpleNamespace(
    stack=SimpleNamespace(endpoints=SimpleNamespace(elasticsearch_url="http://x", redis_cache_url="redis://x")),
    view=lambda name: name,
    name="made",
    conninfo="",
)


class Servers:
    """Postgres, a cache and an index that stand: every look finds what was written last.

    Attributes:
        looks: at the index.
        fails: from which look on the index answers no more.
        slow: which look takes how long.
    """

    def __init__(self) -> None:
        self.looks, self.fails, self.slow = 0, 10**9, dict[int, float]()
        self.text = ""

    def connect(self, *_: object, **__: object) -> Servers:
        return self

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...

    def execute(self, _: str, values: list[Any]) -> None:
        self.text = values[0]

    def get(self, url: str, timeout: float | None = None) -> Any:
        if timeout is None:
            return f'{{"spare": "{self.text}"}}'.encode()
        self.looks += 1
        if self.looks >= self.fails:
            raise Away
        time.sleep(self.slow.get(self.looks, 0.0))
        return SimpleNamespace(
            text=f'{{"spare": "{self.text}"}}', status_code=200, json=lambda: {"hits": {"hits": [url]}}
        )


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    there = Servers()
    monkeypatch.setattr(psycopg, "connect", there.connect)
    monkeypatch.setattr(redis.Redis, "from_url", there.connect)
    monkeypatch.setattr(requests, "Session", there.connect)
    waits = time.sleep
    monkeypatch.setattr(schema, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(schema.time, "sleep", lambda seconds: waits(min(seconds, 0.2)))
    return there


def looked(servers: Servers, count: int) -> None:
    until = time.monotonic() + 20
    while servers.looks < count:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("kind", [schema.Beats, lambda made: Readers(made, count=True)], ids=["beats", "readers"])
def test_looks_that_ended_early_are_no_gap(servers: Servers, kind: Any) -> None:
    servers.fails = 3
    with pytest.raises(Away), kind(MADE):
        looked(servers, 3)


def test_an_answer_that_was_long_in_coming_is_in_the_gap(servers: Servers) -> None:
    with schema.Beats(MADE) as beats:
        servers.slow = {servers.looks + 2: 0.15}
        looked(servers, servers.looks + 5)
    assert beats.longest["search"] >= 0.15
    servers.looks, servers.slow = 0, {2: 0.15}
    with Readers(MADE, count=True) as readers:
        looked(servers, 5)
    assert readers.gap >= 0.15


def test_what_is_done_beside_is_told_to_end_and_its_error_raised() -> None:
    ended = list[bool]()
    with Background(lambda over: ended.append(over.wait(20))):
        pass
    assert ended == [True]
    with pytest.raises(Away), Background(lambda over: (_ for _ in ()).throw(Away)):
        pass


class Run:
    """A pipeline whose process is another one for each start."""

    def __init__(self) -> None:
        self.env = {"HEADWATER_REDIS_CACHE": "redis://x"}

    @contextmanager
    def running(self) -> Iterator[Any]:
        yield SimpleNamespace(send_signal=lambda number: None, wait=lambda: 0)

    def await_caught_up(self, runner: object) -> None: ...

    def check(self, runner: object) -> None: ...


class NoProbes(warehouse.Probes):
    """Rows that are never seen again after a kill."""

    def write(self, conninfo: str, stop: threading.Event) -> None:
        stop.wait(20)

    def watch(self, seconds: float) -> None: ...

    def watch_cache(self, url: str, stop: threading.Event) -> None:
        stop.wait(20)

    def ages(self, *_: object) -> list[float]:
        return [1.0]


def test_a_warehouse_that_never_came_back_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warehouse, "PATIENCE_SECONDS", 0.01)
    run: Any = Run()
    probes = NoProbes(run, written={(0, 1): 0.0})
    runner: subprocess.Popen[bytes] = SimpleNamespace()  # type: ignore[assignment]
    with pytest.raises(StackError, match="not back 0 s after the kill") as caught:
        warehouse._back(probes, time.monotonic(), runner, run)
    assert "1 rows from before it do not show" in caught.value.means


def test_a_load_that_died_is_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(conninfo: str, stop: threading.Event) -> None:
        raise Away

    monkeypatch.setattr(warehouse, "Probes", NoProbes)
    monkeypatch.setattr(warehouse, "WARM_UP_SECONDS", 0.01)
    monkeypatch.setattr(warehouse, "_back", lambda *_: 1.0)
    monkeypatch.setattr(warehouse, "_load", lambda conninfo, stop: stop.wait(20))
    run: Any = Run()
    assert {one.name for one in warehouse._measured(run, "")} >= {"warehouse_p50_under_load_s"}
    monkeypatch.setattr(warehouse, "_load", dead)
    with pytest.raises(Away):
        warehouse._measured(run, "")


def test_a_reader_that_died_has_not_read_well(monkeypatch: pytest.MonkeyPatch) -> None:
    document: dict[str, Any] = {"_source": {"flight_id": 1}}  # no airline: neither failed nor wrong, but no document
    client: Any = SimpleNamespace(
        indices=SimpleNamespace(refresh=lambda **_: None),
        get=lambda **_: document,
        count=lambda **_: {"count": 1},
        close=lambda: None,
    )
    monkeypatch.setattr(rebuild, "Elasticsearch", lambda *_, **__: client)
    monkeypatch.setattr(rebuild.time, "sleep", lambda seconds: None)
    stack: Any = MADE.stack
    workload: Any = SimpleNamespace(expected=lambda document: 1)
    with pytest.raises(KeyError), rebuild._Reader(SimpleNamespace(endpoints=stack.endpoints), workload):  # type: ignore[arg-type]
        pass


def test_costs_of_which_a_look_failed_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.costs.LOOK_SECONDS", 0.001)
    looks = itertools.count()

    def processes() -> list[Any]:
        if next(looks) == 1:
            raise Away
        return []

    with pytest.raises(Away), Costs({"one": processes}):
        time.sleep(0.1)


def test_a_part_that_fails_keeps_no_other_from_being_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = list[list[Measurement]]()
    figure = Measurement("figure", 1.0, "s", n=1)

    def broken() -> list[Measurement]:
        raise StackError("it never came back")

    def torn() -> list[Measurement]:
        raise ValueError("no such field")

    monkeypatch.setattr(run, "ALONE", {"a": broken, "b": torn, "c": lambda: [figure]})
    monkeypatch.setattr(run, "PARTS", ("a", "b", "c"))
    monkeypatch.setattr(run, "write", written.append)
    with pytest.raises(SystemExit, match=r"those of before: a, b$"):
        run.main(())
    assert written == [[figure]]
    said = capsys.readouterr().err
    assert "a failed: it never came back" in said and "ValueError: no such field" in said
    run.main(("c",))
    assert written == [[figure], [figure]]
