"""The page in a browser: it moves by itself, nothing of it breaks its own rules, and the keyboard is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from tests.support.browsing import CHROMIUM, SOON_MS, chromium
from tests.support.page_cases import TABLES, ready
from tests.support.serving import running_app
from tests.support.watched import World, documented, nowhere, status, world

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
# What is wider than the card that it stands in: the page itself need not be wider for that.
STICKS_OUT = """[...document.querySelectorAll(".node")].flatMap(card => {
  const edge = card.getBoundingClientRect().right - 1, out = one => one.getBoundingClientRect().right > edge;
  return [...card.querySelectorAll("*")].filter(out).map(one => one.outerHTML);
})"""
# A table may be moved under the screen's edge; what it is about is read whole.
CUT_CAPTIONS = """[...document.querySelectorAll("caption")]
  .filter(one => one.getBoundingClientRect().right > innerWidth).map(one => one.innerText)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, str]]:
    nowhere(monkeypatch, tmp_path)
    with world(tmp_path, told={"status": status(search={}, cache={}), "generations": {}, "tables": TABLES[1:]}) as made:
        made.served.watching._fresh = lambda sink: {"as_of": 1.0, "age": 0.4, "reason": None}  # type: ignore[method-assign]
        with running_app(made.app) as url:
            yield made, url


def opened(browser: Browser, url: str, **more: Any) -> tuple[Page, list[str]]:
    """A page, and what it complains of: a policy that is broken, a script that fails, an address that is not there."""
    page = browser.new_page(**more)
    wrong: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def failed(request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # who leaves a page ends what it still asks
            wrong.append(f"{request.url}: {request.failure}")

    page.on("console", heard)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", failed)
    page.goto(url)
    return page, wrong


def become(made: World, told: dict[str, Any]) -> None:
    """From now on this is what a look sees."""
    made.served.watching._questions = {**made.served.watching._questions, "status": lambda _: told}


def test_a_sink_that_fails_turns_the_page_red_and_green_again_by_itself(
    browser: Browser, shown: tuple[World, str]
) -> None:
    made, url = shown
    page, wrong = opened(browser, url)
    expect(page.locator(".state.good")).to_contain_text("All is well", timeout=SOON_MS)
    expect(page).to_have_title("flights: good · Headwater", timeout=SOON_MS)
    page.locator("#to-search").focus()
    become(made, status(search={"judgement": "retrying", "cause": "search is away <b>"}, cache={}))
    expect(page.locator(".state.bad")).to_contain_text("search: retrying, search is away <b>", timeout=SOON_MS)
    expect(page.locator("article.bad h3")).to_contain_text("search")
    expect(page).to_have_title("flights: bad · Headwater")
    expect(page.locator("#announcer")).to_contain_text("search is away <b>")
    assert page.evaluate("document.activeElement.id") == "to-search"  # who was there is still there
    become(made, status(search={}, cache={}))
    expect(page.locator(".state.good")).to_be_visible(timeout=SOON_MS)
    expect(page.locator("#announcer")).to_have_text("All is well.")
    page.close()
    assert not wrong


def test_a_server_that_is_gone_is_said_to_be(browser: Browser, shown: tuple[World, str]) -> None:
    _, url = shown
    page, _ = opened(browser, url)
    expect(page.locator(".state.good")).to_be_visible(timeout=SOON_MS)
    page.context.set_offline(True)
    expect(page.locator(".state.lost")).to_contain_text("does not answer", timeout=10_000)
    page.close()


def test_a_promotion_is_looked_at_and_a_sink_paused_by_the_keyboard(browser: Browser, shown: tuple[World, str]) -> None:
    made, url = shown
    [two] = documented("status")["sinks"][0]["generations"]
    ready(made)
    become(made, status(search={"generations": [two, {**two, "generation": 2, "stage": "ready"}]}))
    page, wrong = opened(browser, f"{url}/sinks/search")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#promote-search-2").focus(timeout=SOON_MS)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Promote search to generation 2?")
    page.get_by_role("link", name="Leave it").press("Enter")
    page.get_by_label("Why").fill("new disks")
    page.keyboard.press("Enter")
    expect(page.locator(".jobs")).to_contain_text("pause search", timeout=SOON_MS)
    expect(page.locator(".jobs .badge")).to_have_text("done", timeout=SOON_MS)
    expect(page.locator("#plot canvas")).to_be_visible(timeout=10_000)
    page.close()
    assert not wrong


# What the chart's right axis needs for its figures beside a tick (10 px) and a gap (5 px); and has.
NEEDED = """(() => { const pen = document.createElement("canvas").getContext("2d");
  pen.font = "12px system-ui"; return pen.measureText("400,000").width + 15 })()"""
ROOM = "[...document.querySelectorAll('#plot .u-axis')].at(-1).offsetWidth"
LINES = "new Set([...document.querySelectorAll('nav[aria-label=Pages] li')].map(one => one.offsetTop)).size"


def test_the_pages_names_stand_in_one_line_on_a_telephone(browser: Browser, shown: tuple[World, str]) -> None:
    """The last one, Live, stood alone on another."""
    page, _ = opened(browser, f"{shown[1]}/trace", viewport={"width": 390, "height": 800})
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate(LINES) == 1
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_chart_tells_its_newest_figures_and_has_room_for_them(
    browser: Browser, shown: tuple[World, str], width: int
) -> None:
    """The axis's title lay on its figures, and below it stood `--` where there is no mouse."""
    made, url = shown
    become(made, status(search={"lag_events": 423_111}))
    made.look()
    page, wrong = opened(browser, f"{url}/sinks/search", viewport={"width": width, "height": 800})
    expect(page.locator("#plot .u-legend")).to_contain_text("423,111", timeout=10_000)
    assert "--" not in page.locator("#plot .u-legend").inner_text()
    assert page.evaluate(ROOM) >= page.evaluate(NEEDED)
    page.close()
    assert not wrong


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_a_page_fits_and_can_be_read(browser: Browser, shown: tuple[World, str], scheme: Any, width: int) -> None:
    _, url = shown
    for path in ("/", "/sinks/search", "/trace", "/letters"):
        page, wrong = opened(browser, url + path, color_scheme=scheme, viewport={"width": width, "height": 800})
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(STICKS_OUT) == []
        assert page.evaluate(CUT_CAPTIONS) == []
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
        assert dark == (scheme == "dark")
        page.close()
        assert not wrong


@pytest.mark.parametrize("width", [1280, 1024, 390])
def test_the_longest_names_fit(browser: Browser, shown: tuple[World, str], width: int) -> None:
    made, url = shown
    name = "customer_communication_" + "x" * 40
    file = made.served.file
    file.write_text(file.read_text().replace("search:", f"{name}:"))
    become(made, status(**{name: {"judgement": "failed", "cause": f"{name} is away"}, "cache": {}}))
    made.look()
    for path in ("/", f"/sinks/{name}"):
        page, wrong = opened(browser, url + path, viewport={"width": width, "height": 800})
        expect(page.locator("h1")).to_be_visible()
        if path == "/":
            expect(page.locator(f"#to-{name}")).to_be_visible(timeout=SOON_MS)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(STICKS_OUT) == []
        page.close()
        assert not wrong
