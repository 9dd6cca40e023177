"""How a stream's events go out: what an EventSource comes again with, and who counts as slow. Without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from console.http import stream
from console.http.stream import Events
from operations.push import events as told
from operations.push.cursor import Cursor
from operations.push.events import Changes, Told
from operations.push.lens import Lens
from operations.push.walk import UNKNOWN, UNTOLD, Walk
from sinks.redis.stream.tail import Entry, Standing

SUBSCRIBER = cast(Any, SimpleNamespace(leave=lambda: None, close=lambda: None))
BEGUN, LATER = (Cursor(1, "1" * 16, place) for place in (b"1-0", b"2-0"))
LARGE = Told("snapshot", b'{"documents":["' + b"x" * (256 << 10) + b'"]}')
SOME = Told("snapshot", b'{"documents":[{"key":"a","version":"1","document":{}}]}')


class Line:
    """Between both, in a time of its own, and an EventSource at its end.

    Attributes:
        rate: bytes that it takes in a second.
        pause: seconds before it takes something.
        events: that came, with their data.
        last: the id that it comes again with.
    """

    def __init__(self) -> None:
        self.rate, self.pause, self.now = 100e6, 0.0, 0.0
        self.body, self.last = b"", ""

    async def __call__(self, message: Any) -> None:
        body = message.get("body", b"")
        self.now += self.pause + len(body) / self.rate
        self.body += body

    @property
    def events(self) -> list[tuple[str, Any]]:
        found, name = list[tuple[str, Any]](), ""
        for line in self.body.decode().splitlines():
            kind, _, text = line.partition(": ")
            if kind == "id":
                self.last = text
            elif kind == "event":
                name = text
            elif kind == "data":
                found.append((name, orjson.loads(text)))
        return found


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    made = Line()
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def sent(line: Line, *pages: Sequence[Told], pause: float = 0.0) -> list[str]:
    """All events of a stream of these pages, by name; before the last of them it takes nothing for so long."""

    async def some() -> AsyncIterator[Sequence[Told] | str]:
        for number, page in enumerate(pages, 1):
            line.pause = pause if number == len(pages) else 0.0
            yield page

    async def receive() -> Any:
        await asyncio.sleep(100)

    asyncio.run(Events(SUBSCRIBER, None, some())({}, receive, line))
    return [name for name, _ in line.events]


def change(cursor: Cursor) -> Told:
    return Told("change", b'{"key":"a"}', cursor.text())


class Generations:
    """A view whose readers see the first generation again."""

    def standing(self) -> Standing:
        return Standing(1, "1" * 16)

    def newest(self, _: Standing) -> bytes:
        return b"2-0"

    def after(self, _standing: Standing, place: bytes, _count: int) -> list[Entry]:
        return [Entry(b"2-0", "a", 2, None, b"{}")] if place == b"1-0" else []

    def pages(self, _: Standing) -> Any:
        return iter([])


@pytest.mark.parametrize(
    "pages",
    [([told.reset("x")],), ([told.reset("x"), SOME],), ([told.reset("x")], [SOME], [SOME])],
    ids=["reset", "both", "pages"],
)
def test_a_stream_that_breaks_off_behind_a_reset_begins_anew(line: Line, pages: tuple[Sequence[Told], ...]) -> None:
    """A promotion, a connection that was lost in the middle of its documents, and a rollback: the id of before was good
    again, and what changed behind it came onto a table that was half filled."""
    sent(line, [told.ready(BEGUN, "v")], *pages)
    of_its_address = BEGUN.text()  # `?cursor=`, which an EventSource brings each time
    walk = Walk(cast(Any, Generations()), "v", Changes(Lens()), line.last or of_its_address)
    [reset] = walk.step()
    assert (reset.name, reset.value) == ("reset", {"why": UNTOLD}), "it was told that this cursor is none"
    [reset] = Walk(cast(Any, Generations()), "v", Changes(Lens()), "anything").step()
    assert reset.value == {"why": UNKNOWN}


def test_behind_its_ready_a_stream_goes_on_where_it_was(line: Line) -> None:
    sent(line, [told.reset("x")], [SOME], [told.ready(BEGUN, "v")])
    walk = Walk(cast(Any, Generations()), "v", Changes(Lens()), line.last)
    assert [one.name for _ in range(2) for one in walk.step()] == ["change", "ready"]


# -- slow --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pages", "cursor"),
    [
        (([change(BEGUN)], [change(LATER)]), LATER.text()),
        (([change(BEGUN)], [told.reset("x")]), None),
        (([change(BEGUN)], [told.reset("x"), SOME]), None),
        (([told.reset("x"), told.ready(LATER, "v")],), LATER.text()),
    ],
    ids=["changes", "reset", "documents", "ready"],
)
def test_who_is_let_go_is_told_a_place_that_is_good(
    line: Line, pages: tuple[Sequence[Told], ...], cursor: str | None
) -> None:
    assert sent(line, *pages, pause=30.0)[-1] == "slow"
    assert line.events[-1][1]["cursor"] == cursor


def test_who_takes_all_the_time_gets_through_a_page_of_documents(line: Line) -> None:
    """The time was that of a whole page, so on a slow line nobody ever came to the end of one."""
    line.rate = 10_000.0
    assert sent(line, [LARGE] * 16, [told.ready(BEGUN, "v")]) == ["snapshot"] * 16 + ["ready"]
    assert line.now > 400


def test_within_an_event_nobody_is_told_that_he_is_slow(line: Line) -> None:
    line.rate = 1_000.0
    assert sent(line, [LARGE], [SOME]) == ["snapshot", "slow"]
    assert line.events[0][1] == orjson.loads(LARGE.data), "nothing is lost of it"
