"""Changes of large documents: what is read of them at once has a bound in bytes, wherever they are followed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.paging import BYTES, MOST_BYTES
from operations.push.cursor import Cursor
from operations.push.events import Changes
from operations.push.feed import Feed
from operations.push.lens import Lens
from operations.push.walk import PAGE, Walk
from operations.standing import backfill
from operations.standing.matcher import BATCH_BYTES
from sinks.contract import Held
from sinks.redis.stream.tail import Entry, Standing
from tests.support.standing_model import Model

MARK = "0123456789abcdef"
MB = 1 << 20


class Stream:
    """A stream of changes that notes how much was read of it at once."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries, self.pages = entries, list[list[Entry]]()
        self.on_end: Any = lambda: None

    def standing(self) -> Standing:
        return Standing(1, MARK)

    def newest(self, _standing: Standing) -> bytes:
        return b"0-0"

    def wait(self, *_: Any) -> bool:
        return True

    def after(self, _standing: Standing, place: bytes, count: int) -> list[Entry]:
        at = int(place.partition(b"-")[0])
        found = self.entries[at : at + count]
        self.pages.append(found)
        if not found:
            self.on_end()
        return found

    @property
    def largest(self) -> int:
        return max(sum(entry.size for entry in page) for page in self.pages)

    def read(self) -> list[Entry]:
        return [entry for page in self.pages for entry in page]


def stream(*sizes: int) -> Stream:
    document = bytes(max(sizes))
    return Stream([Entry(b"%d-0" % at, "k", at, None, document[:size]) for at, size in enumerate(sizes, start=1)])


def walked(tail: Stream) -> None:
    walk = Walk(cast(Any, tail), "v", Changes(Lens.of("x == 'y'")), Cursor(1, MARK, b"0-0").text())
    for _ in range(10_000):
        walk.step()
        if walk.live:
            return
    raise AssertionError("it never comes to an end")


def fed(tail: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.push.feed.Source", lambda _: SimpleNamespace(tail=lambda: tail))
    feed = Feed(cast(Any, SimpleNamespace(sink="s", view="v")), lambda: None)
    tail.on_end = feed.close
    feed._follow(cast(Any, tail))


@pytest.mark.parametrize("sizes", [[2 * MB] * 120, [*([100] * 40), *([2 * MB] * 120)]])
def test_a_page_of_large_changes_is_bounded(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Five hundred were read in one go, a gigabyte, into a ring that keeps 32 MiB of them."""
    for following in (walked, lambda one: fed(one, monkeypatch)):
        tail = stream(*sizes)
        following(tail)
        assert tail.largest <= 2 * MOST_BYTES and tail.read() == tail.entries
        assert max(len(page) for page in tail.pages[60:]) * 2 * MB <= BYTES


def test_small_ones_come_by_hundreds_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for following in (walked, lambda one: fed(one, monkeypatch)):
        tail = stream(*([100] * 5_000))
        following(tail)
        assert tail.read() == tail.entries and len(tail.pages) <= 20 and len(tail.pages[12]) == PAGE


def test_a_matcher_begins_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 250 of them all were read, and then cut to what one request may hold."""
    model, tail = Model(), stream(*([2 * MB] * 50))
    monkeypatch.setattr("operations.standing.matcher.Matcher._apply", lambda *_: None)
    matcher = model.matcher()
    matcher._tail = cast(Any, tail)
    for at in range(50):
        matcher._follow(Cursor(1, MARK, b"%d-0" % at))
    assert len(tail.pages[0]) == 1 and tail.largest <= BATCH_BYTES + 2 * MB


@pytest.mark.parametrize("walk", ["_gone", "_matching"])
def test_documents_that_have_matched_are_looked_at_a_few_at_a_time(walk: str) -> None:
    """A thousand of them at once."""
    sizes = list[int]()

    def look(_standing: Standing, keys: list[str]) -> tuple[bytes, dict[str, Held]]:
        there = {key: Held(key, 1, bytes(2 * MB)) for key in keys if key != "k7"}
        sizes.append(len(there) * 2 * MB)
        return b"%d-0" % len(sizes), there

    kept = {f"k{at}": SimpleNamespace(version=3, names={"q"}) for at in range(50)}
    matches = SimpleNamespace(pages=lambda: iter([{}, kept]))
    pages = list(getattr(backfill, walk)(SimpleNamespace(look=look), matches, Standing(1, MARK)))
    told = [one for page in pages for one in page.documents]
    assert max(sizes) <= BYTES and [one for one in told if one.key == "k7"] == [backfill.Document("k7", 3, None)]
    assert len(told) == (1 if walk == "_gone" else 50) and [page.at for page in pages][:2] == [b"1-0", b"2-0"]


def test_who_are_all_gone_do_not_take_a_request_each() -> None:
    asked = list[int]()

    def look(_standing: Standing, keys: list[str]) -> tuple[bytes, dict[str, Held]]:
        asked.append(len(keys))
        return b"1-0", {}

    matches = SimpleNamespace(pages=lambda: iter([{f"k{at}": SimpleNamespace(version=3) for at in range(1_000)}]))
    tail = cast(Any, SimpleNamespace(look=look))
    list(backfill._gone(tail, cast(Any, matches), Standing(1, MARK)))
    assert len(asked) == 10
