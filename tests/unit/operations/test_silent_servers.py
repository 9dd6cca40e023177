"""Who asks how fresh a sink is, and who ends, while a server says nothing: nobody else stands still."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.pipeline import Pipeline, loads
from cdc.polling import poll
from cdc.token import History
from connectors.database.write_tokens import Standing
from connectors.ledger import LedgerEntry
from console.http.freshness import freshness
from console.http.served import Served
from operations import deferred
from operations.freshness import refresh
from operations.freshness import waits as of_waits
from operations.freshness.log import Look
from operations.freshness.place import Place, look_at
from operations.freshness.refresh import Refresher
from operations.freshness.waits import Waits
from operations.state.folder import register_of
from tests.support.metric_cases import pipeline as at_work

HERE = History(0x69A5, 1, "3f2a91bc", "0badcafe", 57)


class Store:
    """A row store's server that says nothing for as long as a test likes."""

    silent: threading.Event
    asked: list[str]

    def __init__(self, _settings: Any) -> None: ...

    def waiting(self) -> int:
        self.asked.append(threading.current_thread().name)
        assert self.silent.wait(20.0)
        return 3

    def server(self) -> str:
        return "A1"

    def noted(self) -> Any:
        return SimpleNamespace(identity="x")

    def close(self) -> None:
        self.asked.append("closed")


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """Of a joined view that has read all of the log, whose row store is silent."""
    made = at_work(tmp_path, verified=False)
    flow = register_of(made, "cache").generation().flow_folder("main")
    (flow / "phase.json").write_text(json.dumps({"phase": "live"}))
    (flow / "rowstore.json").write_text(json.dumps({"server": "A1"}))
    (flow / "applied.json").write_text(json.dumps({"batch": 1, "offsets": {"t": {"0": 5}}}))
    monkeypatch.setattr(Store, "silent", threading.Event(), raising=False)
    monkeypatch.setattr(Store, "asked", [], raising=False)
    monkeypatch.setattr(deferred, "RedisRowStore", Store)
    monkeypatch.setattr(
        deferred, "row_store_settings", lambda *_: {"url": "redis://r:1/0", "prefix": "n:", "name": "t"}
    )
    monkeypatch.setattr(deferred, "StoreSettings", lambda **_: None)
    with closing(Waits(made, cast(Any, None))) as asked:
        monkeypatch.setattr(asked, "_awake", lambda: None)  # its thread would ask Postgres
        asked.marks.seen(Look(HERE, Standing({}, 100, 100), time.time() - 1))
        asked.marks.confirm(LedgerEntry(100, {"t": {0: 5}}))
        yield asked
        Store.silent.set()


def test_a_server_goes_on_while_who_asked_how_old_a_sink_is_waits_for_its_row_store(waits: Waits) -> None:
    """All other answers of a server stood still for as long, `/healthz` too, and who watched it killed it."""
    served = cast(Served, SimpleNamespace(pipeline=waits.pipeline, waits=waits))
    held: list[float] = []

    async def beside(until: float) -> None:
        while time.monotonic() < until:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            held.append(time.monotonic() - before)

    async def both() -> list[dict[str, Any]]:
        clock = asyncio.create_task(beside(time.monotonic() + 3.0))
        asked = await asyncio.gather(*(freshness("cache", served) for _ in range(5)))
        Store.silent.set()
        await asyncio.sleep(0.3)
        told = await freshness("cache", served)
        await clock
        return [*asked, told]

    *asked, told = asyncio.run(both())
    assert max(held) < 1.0
    assert {one["reason"] for one in asked} == {None} and {one["behind"] for one in asked} == {None}
    assert told["reason"] == "3 documents of view main that a change has touched are still to be written"
    assert Store.asked == ["row stores cache"], "once for all of them, and by nobody who asked"


def test_the_thread_of_those_who_wait_asks_over_a_connection_of_its_own(waits: Waits) -> None:
    """Two threads on one connection were told each other's answers."""
    waits._seen, waits._seen_at = look_at({"cache": Place(waits.pipeline, "cache")}), time.monotonic()
    assert waits._seen["cache"].open()
    assert waits.as_of("cache")[1] is None
    Store.silent.set()
    found = poll(lambda: waits.as_of("cache")[1], lambda reach: reach is not None, 5.0, 0.02)
    assert found is not None and not found.there and found.generations == (1,)
    assert waits._seen["cache"].open(), "nobody but its thread asks for it"


def test_what_a_row_store_said_is_not_told_of_another_generation(waits: Waits) -> None:
    """After `rollback` readers see one that may be far behind."""
    Store.silent.set()
    assert poll(lambda: waits.as_of("cache")[1], lambda reach: reach is not None, 5.0, 0.02)
    waits._sights._told["cache"].seen.__dict__["generations"] = (2,)
    assert waits.as_of("cache")[1] is None


def test_who_asks_at_the_end_leaves_no_connection_open(waits: Waits) -> None:
    waits.as_of("cache")
    assert poll(lambda: list(Store.asked), bool, 5.0, 0.01)
    began = time.monotonic()
    waits.close()
    assert time.monotonic() - began < 1.0
    Store.silent.set()
    assert poll(lambda: list(Store.asked), lambda told: "closed" in told, 5.0, 0.01)
    waits.as_of("cache")
    assert Store.asked == ["row stores cache", "closed"]


# -- the end ----------------------------------------------------------------------------------------------------------

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [shop.*]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
sinks:
  SINKS
engine: {state_dir: STATE}
"""


def pipeline_of(folder: Path, *sinks: str) -> Pipeline:
    named = "\n  ".join(f'{name}: {{type: redis, url: "redis://127.0.0.1:1", tables: all}}' for name in sinks)
    return loads(TEXT.replace("STATE", str(folder)).replace("SINKS", named), "shop.yaml", {})


class Target:
    """A search server that owes an answer."""

    def __init__(self) -> None:
        self.answers, self.asked, self.closed = threading.Event(), list[str](), list[str]()

    def open(self, config: Any) -> Any:
        name = config["name"]

        def there(_target: str) -> bool:
            self.asked.append(name)
            return self.answers.wait(20.0)

        return SimpleNamespace(there=there, close=lambda: self.closed.append(name))


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    made = Target()
    monkeypatch.setattr(refresh, "open_target", made.open)
    yield made
    made.answers.set()


def test_the_end_waits_for_no_refresh_that_a_silent_server_owes(tmp_path: Path, target: Target) -> None:
    """`serve` ended after a minute, or was killed by what had stopped it."""
    pipeline = pipeline_of(tmp_path, "cache")
    register_of(pipeline, "cache").generation(1).note_views(["t"])
    refresher = Refresher(pipeline)
    refresher.ask("cache", 1, search=False)
    refresher.step()
    assert poll(lambda: list(target.asked), bool, 5.0, 0.01)
    began = time.monotonic()
    refresher.close()
    assert time.monotonic() - began < 1.0 and not target.closed, "it is in use"
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "refresh")
    target.answers.set()
    assert poll(lambda: list(target.closed), bool, 5.0, 0.01) == ["cache"]


def test_refreshes_at_once_are_bounded_and_slow_ones_leave_room_for_others(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{n}" for n in range(6)]
    pipeline = pipeline_of(tmp_path, *names)
    refresher = Refresher(pipeline)
    for name in names:
        register_of(pipeline, name).generation(1).note_views(["t"])
        refresher.ask(name, 1, search=False)
    refresher.step()
    refresher.step()
    assert poll(lambda: sorted(target.asked), lambda told: len(told) == refresh.WORKERS, 5.0, 0.01) == names[:4]
    for name in names[:4]:
        refresher.ask(name, 1, search=False)  # wanted again
    monkeypatch.setattr(refresh, "LOOK_SECONDS", 0.0)
    target.answers.set()
    assert poll(lambda: [one.running.done() for one in refresher._targets.values() if one.running], all, 5.0, 0.01)
    refresher.step()
    assert poll(lambda: set(target.asked), lambda told: told == set(names), 5.0, 0.01) == set(names)
    refresher.close()


def test_the_end_waits_for_no_look_that_a_silent_server_owes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent, asked = threading.Event(), threading.Event()

    def look(*_: Any) -> None:
        asked.set()
        silent.wait(20.0)

    monkeypatch.setattr(Waits, "_step", look)
    monkeypatch.setattr(of_waits, "END_SECONDS", 0.2)
    monkeypatch.setattr(of_waits, "_Servers", lambda *_: SimpleNamespace(close=lambda: None))
    waits = Waits(pipeline_of(tmp_path, "cache"), cast(Any, None))
    waits._awake()
    assert asked.wait(5.0)
    began = time.monotonic()
    waits.close()
    assert time.monotonic() - began < 2.0
    silent.set()


def test_an_end_that_comes_as_the_thread_falls_asleep_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told between its last look at whether to end and its sleep, it slept on, and the end waited for it for ever."""
    waits = Waits(pipeline_of(tmp_path, "cache"), cast(Any, None))
    clear = waits._news.clear

    def late() -> None:
        with suppress(RuntimeError):  # who ends us from here can't wait for us
            waits.close()
        clear()

    monkeypatch.setattr(of_waits, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(waits._news, "clear", late)
    waits._awake()
    assert waits._thread is not None
    waits._thread.join(2.0)
    assert not waits._thread.is_alive()
