"""Who follows without a server of ours, where readers are led to other keys meanwhile. No server is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import ConfigError
from operations.push import following, source
from operations.push.events import Changes
from operations.push.following import follow
from operations.push.lens import Lens
from operations.push.source import Place, Source, place_of
from operations.standing.place import standing_place
from sinks.redis.settings import read_settings
from sinks.redis.stream.tail import Standing
from tests.unit.operations.test_standing_moved import begin, load, next_shown

PLACE = Place(
    "cache",
    "v",
    read_settings({"type": "redis", "name": "cache", "url": "redis://h", "targets": {"v": {"generation": 1}}}),
)
OTHER = replace(PLACE, settings=replace(PLACE.settings, key_prefix="shop:"))


class Quiet:
    """A stream that is begun, and in which nothing comes."""

    def __init__(self, place: Place) -> None:
        self._standing = Standing(2 if place.key == OTHER.key else 1, "mark")

    def standing(self) -> Standing:
        return self._standing

    def newest(self, _: Standing) -> bytes:
        return b"1-0"

    def after(self, *_: Any) -> Sequence[Any]:
        return []

    def wait(self, *_: Any) -> None:
        time.sleep(0.01)

    def pages(self, *_: Any) -> Iterator[Any]:
        return iter(())


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Connections that were given back."""
    made: list[Any] = []
    client = SimpleNamespace(close=lambda: made.append(1))
    monkeypatch.setattr(source, "connect", lambda _: client)
    monkeypatch.setattr(Place, "read", lambda self, _: Quiet(self))
    monkeypatch.setattr(following, "FIND_SECONDS", 0.05)
    return made


def told(place: Place, documents: bool) -> list[str]:
    """What is told within a third of a second: names of events, and the generation of the last one's cursor."""
    until, names, source = time.monotonic() + 0.3, list[str](), Source(place)
    stop = lambda: time.monotonic() > until  # noqa: E731
    for found in follow(source, Changes(Lens.of(None)), documents=documents, stop=stop):
        names += [f"{one.name} {one.value.get('why', '')}".strip() for one in found]
    return names


@pytest.mark.parametrize("documents", [False, True])
def test_who_follows_goes_along_to_other_keys(closed: list[Any], documents: bool) -> None:
    """`tail` and `queries tail` stayed at the former ones for good, silent, where nobody tells anything any more."""
    moving = replace(PLACE, again=lambda: OTHER)
    assert told(moving, documents) == [
        "reset this is the beginning",
        "ready",
        "reset readers see another generation now",
        "ready",
    ]
    assert closed == [1]


def being_made() -> Place:
    raise ConfigError("being made anew")


def being_removed() -> Place:
    raise FileNotFoundError("definition.json")


@pytest.mark.parametrize("again", [None, lambda: PLACE, being_made, being_removed])
def test_it_stays_while_they_are_the_same_or_nobody_knows(closed: list[Any], again: Any) -> None:
    assert told(replace(PLACE, again=again), False) == ["reset this is the beginning", "ready"]
    assert closed == []


def test_places_know_where_they_are_by_now(tmp_path: Path) -> None:
    """Of changes and of matches; by a file that was read before."""
    old = load(tmp_path)
    for sink in ("search", "cache"):
        begin(old, sink)
    places = place_of(old, "v"), standing_place(old, "v")
    assert places == (place_of(old, "v"), standing_place(old, "v"))  # however they were found
    next_shown(load(tmp_path, keys="shop:"), "cache")
    for place in places:
        assert place.settings.key_prefix == "" and place.again is not None
        found = place.again()
        assert type(found) is type(place) and found.settings.key_prefix == "shop:"
