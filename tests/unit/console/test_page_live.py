"""The page of a view's changes in a browser: no server is there, the test tells what the stream says."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from cdc.errors import UnknownName
from console.http.stream import Events
from operations.push import events
from operations.push.cursor import Cursor
from operations.push.source import kept_views
from tests.support.browsing import CHROMIUM, SOON_MS, Answers, chromium, hide
from tests.support.watched import ORIGIN, World, nowhere, world

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    nowhere(monkeypatch, tmp_path)
    with world(tmp_path, told={}) as made:
        yield made


# Stands in for a stream that the test tells what to say.
STREAM = """window.sources = []; window.EventSource = class {
  static CLOSED = 2; readyState = 0; heard = {};
  constructor(url) { this.url = String(url); sources.push(this); }
  addEventListener(name, heard) { this.heard[name] = heard; }
  close() { this.readyState = 2; }
  tell(name, data, id) { this.heard[name]?.({ data, lastEventId: id }); }
  fail() { this.readyState = 2; this.onerror(); }
}; window.last = () => sources[sources.length - 1];
window.live = () => sources.filter(one => one.readyState < 2).length"""

STREAMED = "/v1/stream/flight"


def keeping(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink keeps the changes of a view."""
    monkeypatch.setattr("console.http.pages.stream.kept_views", lambda _: [("cache", "flight")])
    monkeypatch.setattr("console.http.pages.stream.newest_but", lambda *_: None)
    monkeypatch.setattr(made.app.state.streams, "place", lambda *_: SimpleNamespace(sink="cache"))


@pytest.fixture
def board(browser: Browser, made: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Page, Answers]]:
    """The page, in a time that passes when the test says so."""
    page = browser.new_page()
    answers = Answers(page, made)
    keeping(made, monkeypatch)
    page.clock.install()
    page.add_init_script(STREAM)
    page.goto(f"{ORIGIN}/stream?view=flight")
    page.wait_for_function("sources.length === 1")
    yield page, answers
    page.close()


def told(page: Page, *events: tuple[str, dict[str, Any] | str], id: str = "c1") -> None:
    """From the stream; what is said as a text is its very text."""
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        page.evaluate("([name, data, id]) => last().tell(name, data, id)", [name, text, id])


def test_a_row_that_comes_again_after_a_reset_is_one_row(board: tuple[Page, Answers]) -> None:
    page, _ = board
    first, then = ({"key": "1", "op": "changed", "after": {"a": number}} for number in (1, 2))
    told(page, ("change", first), ("change", {"key": "1", "op": "deleted"}), ("reset", {"why": "x"}))
    opens(page, 2)
    told(page, ("change", first))
    page.clock.run_for(5_000)
    told(page, ("change", then))
    assert page.locator("#board tbody tr").all_inner_texts() == ["1\t2"]
    told(page, ("change", {"key": "1", "op": "deleted"}))
    page.clock.run_for(5_000)
    assert page.locator("#board tbody tr").count() == 0


def test_a_stream_that_is_refused_comes_again_unless_it_is_halted(board: tuple[Page, Answers]) -> None:
    page, answers = board
    answers.status[STREAMED] = 200
    with page.expect_response(f"**{STREAMED}?*"):
        page.evaluate("last().fail()")
    page.wait_for_timeout(200)
    page.get_by_role("button", name="Pause").click()
    page.clock.run_for(5_000)
    assert page.evaluate("[sources.length, live()]") == [1, 0]
    expect(page.locator("#board-state")).to_contain_text("Paused")
    page.get_by_role("button", name="Pause").click()
    assert page.evaluate("[sources.length, live()]") == [2, 1]
    with page.expect_response(f"**{STREAMED}?*"):
        page.evaluate("last().fail()")
    page.wait_for_timeout(200)
    for _ in range(2):  # a moment's pause: the attempt that was to come is not made besides
        page.get_by_role("button", name="Pause").click()
    page.clock.run_for(5_000)
    assert page.evaluate("[sources.length, live()]") == [3, 1]
    with page.expect_response(f"**{STREAMED}?*"):
        page.evaluate("last().fail()")
    page.wait_for_timeout(200)
    page.clock.run_for(5_000)
    assert page.evaluate("[sources.length, live()]") == [4, 1]


def test_a_stream_that_nobody_looks_at_holds_no_connection(board: tuple[Page, Answers]) -> None:
    page, _ = board
    told(page, ("ready", {}))
    hide(page, True)
    assert page.evaluate("live()") == 0
    hide(page, False)
    assert page.evaluate("[sources.length, live()]") == [2, 1]
    assert "cursor=c1" in page.evaluate("last().url")  # it goes on from there
    page.get_by_role("button", name="Pause").click()
    for hidden in (True, False):
        hide(page, hidden)
    assert page.evaluate("live()") == 0


def test_a_stream_whose_session_has_ended_leads_to_the_form(board: tuple[Page, Answers]) -> None:
    page, answers = board
    answers.status[STREAMED] = 401
    page.evaluate("last().fail()")
    page.wait_for_url(f"{ORIGIN}/login?next=%2Fstream%3Fview%3Dflight", timeout=SOON_MS)


def test_a_stream_that_is_refused_for_good_says_why_and_is_asked_for_rarely(
    board: tuple[Page, Answers], made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view that is gone, or whose sink keeps no changes any more, was a lost connection every two seconds."""
    page, answers = board
    told(page, ("ready", {}))

    def gone(*_: Any) -> None:
        raise UnknownName("no sink keeps changes of the view flight", fix="one does of plane")

    monkeypatch.setattr(made.app.state.streams, "place", gone)
    state = page.locator("#board-state")
    words = "No changes come: no sink keeps changes of the view flight; one does of plane."
    page.evaluate("last().fail()")
    expect(state).to_contain_text(words)
    page.clock.run_for(25_000)
    assert page.evaluate("[sources.length, live()]") == [1, 0]
    page.clock.run_for(6_000)
    assert page.evaluate("sources.length") == 2
    assert page.evaluate("last().fail(), document.getElementById('board-state').textContent").startswith(words)
    page.wait_for_timeout(200)
    answers.status[STREAMED] = 503
    page.clock.run_for(31_000)
    with page.expect_response(f"**{STREAMED}?*"):
        page.evaluate("last().fail()")
    expect(state).to_contain_text("No changes come: HTTP 503.")
    page.clock.run_for(2_500)
    assert page.evaluate("sources.length") == 4
    answers.status[STREAMED] = 200
    page.evaluate("last().fail()")
    expect(state).to_contain_text("The connection is lost")
    page.clock.run_for(2_500)
    assert page.evaluate("sources.length") == 5
    page.evaluate("last().onopen()")
    expect(state).to_have_text(LIVE)
    page.evaluate("last().readyState = 0; last().onerror()")
    expect(state).to_contain_text("The connection is lost")


def opens(page: Page, count: int) -> None:
    """Until the page has opened so many streams."""
    until = time.monotonic() + SOON_MS / 1000
    while page.evaluate("sources.length") < count:
        assert time.monotonic() < until, page.evaluate("sources.length")
        page.wait_for_timeout(20)
    assert page.evaluate("sources.length") == count


def change(op: str, after: str, key: str = "1") -> tuple[str, str]:
    """As the server puts it: a document in its own text."""
    return "change", f'{{"key":{json.dumps(key)},"version":"8","lsn":null,"op":"{op}","before":null,"after":{after}}}'


def cells(page: Page) -> list[str]:
    return page.locator("#board tbody td").all_text_contents()


def test_numbers_stand_there_with_the_digits_that_they_have(board: tuple[Page, Answers]) -> None:
    """A browser's own have 53 bits: what changed in the last digit stood there unchanged."""
    page, _ = board
    within = '{"n":1.10, "s":"}\\"],{"}'
    first = f'{{"b":9007199254740993,"big":12345678901234567890,"e":1e400,"n": 1.10 , "10":{within},"l":[1.0]}}'
    told(page, change("created", first))
    assert page.locator("#board thead th").all_text_contents() == ["key", "b", "big", "e", "n", "10", "l"]
    assert cells(page) == [
        "9007199254740993",
        "12345678901234567890",
        "1e400",
        "1.10",
        within,
        "[1.0]",
    ]
    told(page, change("changed", first.replace("740993", "740994")))
    assert page.locator("td.changed").all_text_contents() == ["9007199254740994"]
    assert page.locator("td.changed").get_attribute("title") == "was 9007199254740993"


def test_texts_and_what_is_missing_are_shown_as_they_are_meant(board: tuple[Page, Answers]) -> None:
    page, _ = board
    documents = ['{"a \\"b\\"":"x \\\\\\"y\\\\\\", {","n":null,"t":true}', "{}", '{ "n" : "\\u00e9\\ud800" }']
    told(page, *(change("created", one, key) for one, key in zip(documents, ('k"1', "2", "3"), strict=True)))
    assert page.locator("#board thead th").all_text_contents() == ["key", 'a "b"', "n", "t"]
    assert page.locator("#board tbody th").all_text_contents() == ["3", "2", 'k"1']
    assert cells(page) == ["", "é\ud800", "", "", "", "", 'x \\"y\\", {', "–", "true"]


def test_a_document_of_a_thousand_levels_is_shown(board: tuple[Page, Answers]) -> None:
    page, _ = board
    deep = "[" * 20_000 + "1.0" + "]" * 20_000
    told(page, change("created", f'{{"deep":{deep},"n":1}}'))
    assert cells(page) == [deep, "1"]


# -- where it goes on from ---------------------------------------------------------------------------------------------

NEWEST = "console.http.pages.stream.newest_but"
LIVE = "Live: changes are shown as they come."


@pytest.mark.parametrize("looked_at", [True, False])
def test_after_a_reset_the_newest_documents_stand_there_again(
    board: tuple[Page, Answers], monkeypatch: pytest.MonkeyPatch, looked_at: bool
) -> None:
    """A promotion, or more changes than are kept while nobody looked: the table was empty, and "Live" in green."""
    page, _ = board
    told(page, change("created", '{"n":1}'), ("ready", {}))
    if not looked_at:
        hide(page, True)
        hide(page, False)
    monkeypatch.setattr(NEWEST, lambda *_: "fresh")
    before = page.evaluate("sources.length")
    told(page, ("reset", {"why": "readers see another generation now"}))
    opens(page, before + 1)
    assert page.evaluate("live()") == 1 and "cursor=fresh" in page.evaluate("last().url")
    assert page.locator("#board tbody tr").count() == 0
    told(page, change("created", '{"n":2}', "2"), ("ready", {}))
    assert page.locator("#board tbody tr").all_inner_texts() == ["2\t2"]
    expect(page.locator("#board-state")).to_have_text(LIVE)


def test_a_place_that_changes_outrun_is_asked_for_once(board: tuple[Page, Answers]) -> None:
    page, answers = board
    again = ("reset", {"why": "the next changes are gone"})
    told(page, change("created", '{"n":1}'), again)
    opens(page, 2)
    told(page, change("created", '{"n":2}', "2"), again)
    page.wait_for_timeout(300)
    assert page.evaluate("[sources.length, live()]") == [2, 1] and answers.count("/stream") == 2
    assert page.locator("#board tbody tr").count() == 0
    told(page, ("ready", {}), again)
    opens(page, 3)


def test_behind_a_reset_there_is_no_place_to_go_on_from(board: tuple[Page, Answers]) -> None:
    page, _ = board
    again = ("reset", {"why": "x"})
    told(page, change("created", '{"n":1}'), again)
    opens(page, 2)
    told(page, change("created", '{"n":2}'))
    told(page, again, id="reset")
    hide(page, True)
    hide(page, False)
    assert "cursor=reset" in page.evaluate("last().url")


def test_a_place_that_cannot_be_had_is_asked_for_again_unless_it_is_halted(board: tuple[Page, Answers]) -> None:
    page, answers = board
    answers.status |= {STREAMED: 200, "/stream": 503}
    told(page, change("created", '{"n":1}'), ("ready", {}))
    with page.expect_response(f"**{STREAMED}?*"):
        told(page, ("reset", {"why": "x"}))
    page.wait_for_timeout(200)
    expect(page.locator("#board-state")).to_have_text("Begins anew: x.")
    assert page.evaluate("live()") == 0 and page.locator("#board tbody tr").count() == 1
    page.clock.run_for(3_000)
    assert page.evaluate("[sources.length, live()]") == [2, 1]
    told(page, ("reset", {"why": "x"}))
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(300)
    page.clock.run_for(3_000)
    assert page.evaluate("[sources.length, live()]") == [2, 0]
    expect(page.locator("#board-state")).to_contain_text("Paused")


def test_a_sign_of_life_moves_the_place_to_go_on_from(board: tuple[Page, Answers]) -> None:
    page, _ = board
    told(page, ("ready", {}))
    told(page, ("alive", {}), id="c7")
    hide(page, True)
    hide(page, False)
    assert "cursor=c7" in page.evaluate("last().url")


def test_a_browser_tells_a_script_of_a_sign_of_life(
    browser: Browser, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a comment, and of the id beside it, it tells none: behind a filter the place stood still."""
    begun, alive = Cursor(1, "0123456789abcdef", b"5-0"), Cursor(1, "0123456789abcdef", b"9-0")
    sent = Events(SimpleNamespace(), None, SimpleNamespace())  # type: ignore[arg-type]
    body = sent._body((events.ready(begun, "flight"),)) + sent._body(alive.text())
    page = browser.new_page()
    answers = Answers(page, made)
    answers.events["/v1/stream/flight"] = "retry: 600000\n\n" + body.decode()
    keeping(made, monkeypatch)
    page.goto(f"{ORIGIN}/stream?view=flight")
    expect(page.locator("#board-state")).to_contain_text("lost", timeout=SOON_MS)  # all was said, and it has ended
    hide(page, True)
    hide(page, False)
    page.wait_for_timeout(300)
    assert [f"cursor={alive.text()}" in one for one in answers.asked if "/v1/stream" in one] == [False, True]
    page.close()


def test_in_a_browser_too_a_place_that_leads_nowhere_is_asked_for_once(
    browser: Browser, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Events(SimpleNamespace(), None, SimpleNamespace())  # type: ignore[arg-type]
    begun = Cursor(1, "0123456789abcdef", b"5-0")
    body = sent._body((events.reset("x"), events.ready(begun, "flight"))).decode()
    page = browser.new_page()
    answers = Answers(page, made)
    answers.events["/v1/stream/flight"] = "retry: 600000\n\n" + body
    keeping(made, monkeypatch)
    page.goto(f"{ORIGIN}/stream?view=flight")
    expect(page.locator("#board-state")).to_contain_text("lost", timeout=SOON_MS)
    page.wait_for_timeout(500)
    assert [answers.count("/stream"), answers.count("/v1/stream/flight")] == [2, 2]
    page.close()


# -- which sink --------------------------------------------------------------------------------------------------------


def test_the_form_names_the_sink_where_several_keep_a_views_changes(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had no field for it: whoever chose such a view was told to say which, and could not."""
    file = made.served.file
    other = "  other: {type: redis, url: 'redis://127.0.0.1:1/1', view: VIEW, changes: {}}\n  warehouse:"
    [*_, (_, view)] = kept_views(made.served.pipeline)
    file.write_text(file.read_text().replace("  warehouse:", other.replace("VIEW", view), 1))
    monkeypatch.setattr("console.http.pages.stream.newest_but", lambda place, _: f"of-{place.sink}")

    def shown(query: str) -> tuple[list[str], list[str]]:
        """Sinks to choose from, the chosen one with a mark, and whose changes stand there."""
        page = made.browser.get(f"/stream?{query}").text
        field = (re.findall(r'<select id="sink".*?</select>', page, re.DOTALL) or [""])[0]
        options = re.findall(r'<option value="(\w+)"( selected)?>', field)
        stream = re.findall(r"sink=(\w+)&amp;from=now&amp;cursor=of-\1", page)
        return [name + ("*" if chosen else "") for name, chosen in options], stream

    assert shown(f"view={view}") == (["cache*", "other"], ["cache"])
    assert shown(f"view={view}&sink=other") == (["cache", "other*"], ["other"])
    assert shown("view=nono&sink=other") == ([], [])
    assert shown(f"view={view}&sink=search") == (["cache", "other"], [])
    assert "sink search keeps no changes" in made.browser.get(f"/stream?view={view}&sink=search").text
    # The view of the form is another one now, and its sink that of the view before.
    places = [("cache", "a"), ("other", "a"), ("cache", view)]
    monkeypatch.setattr("console.http.pages.stream.kept_views", lambda _: places)
    assert shown(f"view={view}&sink=other") == ([], ["cache"])
