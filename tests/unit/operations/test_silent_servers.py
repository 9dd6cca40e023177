"""Who ends while a server says nothing does not stand still."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.pipeline import Pipeline, loads
from cdc.polling import poll
from operations.freshness import refresh
from operations.freshness import waits as of_waits
from operations.freshness.refresh import Refresher
from operations.freshness.waits import Waits
from operations.state.folder import register_of

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
        return SimpleNamespace(
            there=lambda _: self.asked.append(name) or self.answers.wait(20.0), close=lambda: self.closed.append(name)
        )


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
