"""Subscribers of a view whose changes or matches are kept under other keys by now. No server is asked."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import ConfigError
from operations.push import streams
from operations.push.streams import Streams

PIPELINE: Any = SimpleNamespace(name="p")


class Reader:
    """A subscriber of whom it counts alone whether he was told to go."""

    def __init__(self, shared: dict[Any, Any]) -> None:
        self.due, self.left, self._shared = float("inf"), False, shared

    def wake(self) -> None:
        pass

    def leave(self) -> None:
        self.left = True
        self._shared.clear()  # as the last one of a server, so that nothing is looked at any more


def followed(made: Streams, find: Any, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """One who follows what there was at first, for some looks."""
    monkeypatch.setattr(streams, "TICK_SECONDS", 0.005)
    monkeypatch.setattr(streams, "PLACE_SECONDS", 0.01)
    shared = cast(dict[Any, Any], made._shared)
    reader = Reader(shared)
    shared[made.place(PIPELINE, "v", None, find).key] = SimpleNamespace(readers={reader})

    async def run() -> None:
        await asyncio.wait([asyncio.create_task(made._tick())], timeout=0.3)

    asyncio.run(run())
    return reader


def test_a_stream_ends_when_readers_are_led_to_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed open at the former keys, under which nobody tells anything, and said that it is alive."""
    places = iter(["old", "old", "new"])
    found = lambda *_: SimpleNamespace(key=next(places, "new"))  # noqa: E731
    assert followed(Streams(), found, monkeypatch).left


@pytest.mark.parametrize("failing", [False, True])
def test_it_goes_on_while_they_are_the_same_or_nobody_knows(monkeypatch: pytest.MonkeyPatch, failing: bool) -> None:
    asked: list[int] = []

    def found(*_: Any) -> Any:
        asked.append(1)
        if failing and len(asked) > 1:
            raise ConfigError("being made anew")
        return SimpleNamespace(key="old")

    assert not followed(Streams(), found, monkeypatch).left
    assert len(asked) > 2


def test_others_who_come_later_do_not_hide_who_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever comes in a thread of his own ends nobody there: waiters belong to the loop."""
    made, asked = Streams(), threading.Thread()
    monkeypatch.setattr(streams, "PLACE_SECONDS", 0.0)
    monkeypatch.setattr(streams, "TICK_SECONDS", 0.005)
    places, left = iter(["old", "new"]), list[threading.Thread]()
    shared = cast(dict[Any, Any], made._shared)
    reader = Reader(shared)
    reader.leave = lambda: (left.append(threading.current_thread()), shared.clear())  # type: ignore[method-assign]
    found: Any = lambda *_: SimpleNamespace(key=next(places, "new"))  # noqa: E731
    shared[made.place(PIPELINE, "v", None, found).key] = SimpleNamespace(readers={reader})

    async def run() -> None:
        asked.run = lambda: made.place(PIPELINE, "v", None, found)  # type: ignore[method-assign]
        asked.start()
        asked.join()
        assert not left
        await asyncio.wait([asyncio.create_task(made._tick())], timeout=0.3)

    asyncio.run(run())
    assert left == [threading.main_thread()]


def test_only_where_somebody_follows_is_looked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, threads = list[str](), list[threading.Thread]()

    def found(_: Any, view: str, __: Any) -> Any:
        asked.append(view)
        threads.append(threading.current_thread())
        return SimpleNamespace(key=view)

    made = Streams()
    made.place(PIPELINE, "other", None, found)
    assert not followed(made, found, monkeypatch).left
    assert asked.count("other") == 1 and asked.count("v") > 2
    assert threading.main_thread() not in threads[2:]  # there it would keep all others waiting


def test_what_nobody_has_foreseen_ends_no_stream(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """A generation was removed while its files were read: signs of life of all streams ceased, for good."""
    asked: list[int] = []

    def found(*_: Any) -> Any:
        asked.append(1)
        if 1 < len(asked) < 5:
            raise FileNotFoundError("definition.json")
        return SimpleNamespace(key="old" if len(asked) < 10 else "new")

    assert followed(Streams(), found, monkeypatch).left
    assert [one.getMessage() for one in caplog.records] == ["where changes of view v are could not be looked up"]
