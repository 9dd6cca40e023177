"""Subscribers of a view whose changes or matches are kept under other keys by now. No server is asked."""

from __future__ import annotations

import asyncio
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
    monkeypatch.setattr(streams, "PLACE_SECONDS", 0.0)
    made, places = Streams(), iter(["old", "new"])
    shared = cast(dict[Any, Any], made._shared)
    reader = Reader(shared)
    found: Any = lambda *_: SimpleNamespace(key=next(places))  # noqa: E731
    shared[made.place(PIPELINE, "v", None, found).key] = SimpleNamespace(readers={reader})
    assert made.place(PIPELINE, "v", None, found).key == "new" and reader.left
