"""The page in a browser when its server hangs, refuses or is not looked at: no server is there, the test answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browsing import CHROMIUM, SOON_MS, Answers, ask, chromium, hide
from tests.support.page_cases import TABLES
from tests.support.watched import ORIGIN, World, nowhere, status, world

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, told={"status": status(search={}, cache={}), "generations": {}, "tables": TABLES[1:]}) as made:
        made.served.watching._fresh = lambda sink: {"as_of": 1.0, "age": 0.4, "reason": None}  # type: ignore[method-assign]
        yield made


@pytest.fixture
def answered(browser: Browser, made: World) -> Iterator[tuple[Page, Answers]]:
    page = browser.new_page(viewport={"width": 360, "height": 800})
    made.look()
    yield page, Answers(page, made)
    page.close()


def test_a_server_that_hangs_is_said_to_and_what_stands_there_grows_old(answered: tuple[Page, Answers]) -> None:
    page, answers = answered
    page.add_init_script("addEventListener('DOMContentLoaded', () => { htmx.config.timeout = 1500; })")
    page.goto(ORIGIN)
    assert '"timeout": 3000' in str(page.locator("meta[name=htmx-config]").get_attribute("content"))
    expect(page.locator(".state.good")).to_be_visible()
    page.evaluate("document.querySelector('#live .age').dataset.age = '59.6'")
    expect(page.locator(".age")).to_have_text("61 s", timeout=SOON_MS)
    answers.hangs = True
    ask(page)
    expect(page.locator(".state.lost")).to_contain_text("does not answer", timeout=SOON_MS)
    expect(page).to_have_title("No answer · flights: bad · Headwater")
    expect(page.locator("#announcer")).to_contain_text("does not answer")
    answers.hangs = False
    expect(page.locator(".state.good")).to_be_visible(timeout=10_000)
    expect(page).to_have_title("flights: good · Headwater")
    expect(page.locator("#announcer")).to_have_text("All is well.")


def test_a_page_that_nobody_looks_at_holds_no_connection(answered: tuple[Page, Answers]) -> None:
    page, answers = answered
    page.add_init_script(
        "window.sources = []; const Real = EventSource;"
        "window.EventSource = class extends Real { constructor(...of) { super(...of); sources.push(this); } }"
    )
    page.goto(ORIGIN)
    open_ones = "sources.filter(one => one.readyState !== EventSource.CLOSED).length"
    expect(page.locator(".state.good")).to_be_visible()
    page.wait_for_function(f"{open_ones} === 1")
    hide(page, True)
    assert page.evaluate(open_ones) == 0
    answers.events["/v1/events"] = "retry: 600000\n\nevent: seen\ndata: 7\n\n"
    parts = answers.count("/")
    hide(page, False)
    assert page.evaluate(open_ones) == 1 and page.evaluate("sources.length") == 2
    page.wait_for_function("document.querySelectorAll('#live .state').length > 0")
    until = page.evaluate("Date.now()") + 3_000
    while answers.count("/") == parts:  # it is heard what the new one says
        assert page.evaluate("Date.now()") < until
        page.wait_for_timeout(50)


def test_a_page_that_nobody_looks_at_asks_though_its_clocks_are_slowed(answered: tuple[Page, Answers]) -> None:
    page, answers = answered
    page.add_init_script(
        "const real = setTimeout; window.setTimeout = (what, ms, ...more) => ms < 5000 ? real(what, ms, ...more) : 0"
    )
    page.goto(ORIGIN)
    expect(page.locator(".state.good")).to_be_visible()
    hide(page, True)
    answers.status["/"] = 500
    expect(page).to_have_title("HTTP 500 · flights: bad · Headwater", timeout=10_000)


def test_a_page_that_nobody_looks_at_asks_by_one_clock_of_two(answered: tuple[Page, Answers]) -> None:
    page, answers = answered
    page.add_init_script(
        "window.told = []; window.Worker = class { addEventListener(_, heard) { window.beat = heard; }"
        " postMessage(what) { told.push(what); } };"
        "const real = setInterval; window.setInterval = (what, ms) => ms === 5000 ? 0 : real(what, ms);"
        "const now = performance.now.bind(performance); window.later = 0; performance.now = () => now() + later;"
        "const wait = setTimeout; window.setTimeout = (what, ms, ...more) => ms === 5000 ? 0 : wait(what, ms, ...more);"
    )
    page.goto(ORIGIN)
    expect(page.locator(".state.good")).to_be_visible()
    before = answers.count("/")

    def asks(script: str) -> int:
        """How often it has asked for its part since, when something has been done."""
        page.evaluate(script)
        page.wait_for_timeout(300)
        return answers.count("/") - before

    own = "htmx.trigger('#live', 'sse:seen')"
    assert [asks("beat()"), asks(own), asks(own)] == [0, 1, 2]  # who looks at it sees each look of the server
    hide(page, True)
    assert [asks("beat()"), asks(own)] == [2, 2]
    assert [asks("later += 4100; beat()"), asks(own), asks("beat()")] == [3, 3, 3]
    assert [asks(f"later += 4100; {own}"), asks("beat()")] == [4, 4]
    hide(page, False)
    assert page.evaluate("told") == [False, True, False]


def test_what_a_server_answers_is_no_silence(answered: tuple[Page, Answers]) -> None:
    """Of a sink that was taken out of the file it was said that the server does not answer."""
    page, answers = answered
    page.add_init_script("addEventListener('DOMContentLoaded', () => { htmx.config.timeout = 1500; })")
    page.goto(f"{ORIGIN}/sinks/search")
    expect(page.locator("#live .state")).to_be_visible()
    file = answers.made.served.file
    file.write_text(file.read_text().replace("  search:\n", "  another:\n", 1))
    ask(page)
    words = "This page's server answers HTTP 404: no sink search in flights; what stands below is old."
    expect(page.locator(".state.lost .words")).to_have_text(words, timeout=SOON_MS)
    expect(page.locator("#announcer")).to_have_text(words)
    expect(page).to_have_title(re.compile("^HTTP 404 · search of flights"))
    answers.status["/sinks/search"] = 502  # a proxy's words
    ask(page)
    expect(page.locator(".state.lost .words")).to_contain_text("answers HTTP 502; what", timeout=SOON_MS)
    del answers.status["/sinks/search"]
    answers.hangs = True
    ask(page)
    expect(page.locator(".state.lost .words")).to_contain_text("does not answer", timeout=10_000)
    expect(page).to_have_title(re.compile("^No answer · search"))


def test_an_answer_that_comes_late_once_is_no_alarm(answered: tuple[Page, Answers]) -> None:
    page, answers = answered
    page.add_init_script("addEventListener('DOMContentLoaded', () => { htmx.config.timeout = 1500; })")
    page.goto(ORIGIN)
    expect(page.locator(".state.good")).to_be_visible()
    page.evaluate(
        "window.reds = 0; new MutationObserver(() => { reds += document.querySelectorAll('.lost').length; })"
        ".observe(document.body, { subtree: true, childList: true, attributes: true })"
    )
    for _ in range(2):  # an answer between them: the second is a first again
        before = answers.count("/")
        page.evaluate("document.querySelector('#live .state').id = 'before'")
        answers.hangs = True
        ask(page)
        page.wait_for_timeout(200)
        assert answers.count("/") == before + 1
        answers.hangs = False
        expect(page.locator("#before")).to_have_count(0, timeout=2_500)
        assert answers.count("/") == before + 2 and page.evaluate("reds") == 0


def test_who_reads_a_page_keeps_his_place(answered: tuple[Page, Answers]) -> None:
    page, _ = answered
    page.goto(ORIGIN)
    page.locator("#flows").focus()
    page.evaluate("document.getElementById('flows').scrollLeft = 90")
    page.evaluate("document.querySelector('#live .state').id = 'before'")
    ask(page)
    expect(page.locator("#before")).to_have_count(0, timeout=SOON_MS)
    assert page.evaluate("[document.getElementById('flows').scrollLeft, document.activeElement.id]") == [90, "flows"]
    # A selection holds the page for a while.
    page.evaluate("document.querySelector('#live .state').id = 'before'")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#live h2'))")
    words = page.evaluate("String(getSelection())")
    ask(page)
    expect(page.locator("#held")).to_have_text("held while you select", timeout=SOON_MS)
    assert page.locator("#before").count() == 1 and page.evaluate("String(getSelection())") == words != ""
    page.evaluate("const now = Date.now; Date.now = () => now() + 31000")
    ask(page)
    expect(page.locator("#before")).to_have_count(0, timeout=SOON_MS)
    expect(page.locator("#held")).to_be_empty()
    # The button holds it for good.
    page.get_by_role("button", name="Hold still").press("Enter")
    expect(page.locator("#held")).to_have_text("held still")
    page.evaluate("document.querySelector('#live .state').id = 'before'")
    with page.expect_response("**/*part=live*"):
        ask(page)
    page.wait_for_timeout(300)
    assert page.locator("#before").count() == 1
    page.get_by_role("button", name="Hold still").press("Enter")
    expect(page.locator("#before")).to_have_count(0, timeout=SOON_MS)
    expect(page.locator("#held")).to_be_empty()


@pytest.mark.parametrize("by_button", [True, False])
def test_who_holds_a_page_is_told_of_trouble(answered: tuple[Page, Answers], by_button: bool) -> None:
    page, answers = answered
    watching = answers.made.served.watching
    page.add_init_script("addEventListener('DOMContentLoaded', () => { htmx.config.timeout = 1500; })")
    page.goto(ORIGIN)
    expect(page.locator(".state.good")).to_be_visible()
    if by_button:
        page.get_by_role("button", name="Hold still").press("Enter")
    else:
        page.evaluate("getSelection().selectAllChildren(document.querySelector('#live h2'))")
    page.evaluate("document.getElementById('flows').dataset.held = '1'")
    away = status(search={"judgement": "retrying", "cause": "search is away"}, cache={})
    watching._questions = {**watching._questions, "status": lambda _: away}
    answers.made.look()
    ask(page)
    expect(page.locator("#live .state.bad .words")).to_contain_text("search is away", timeout=SOON_MS)
    expect(page).to_have_title("flights: bad · Headwater")
    expect(page.locator("#announcer")).to_contain_text("search is away")
    answers.hangs = True
    ask(page)
    expect(page.locator(".state.lost")).to_contain_text("does not answer", timeout=SOON_MS)
    answers.hangs = False
    ask(page)
    expect(page.locator("#live .state.bad .words")).to_contain_text("search is away", timeout=10_000)
    expect(page).to_have_title("flights: bad · Headwater")
    assert page.locator("#flows[data-held]").count() == 1  # the tables are those that he reads


def test_an_alarm_is_said_aloud_once_and_not_with_each_second_of_its_age(answered: tuple[Page, Answers]) -> None:
    page, answers = answered
    watching = answers.made.served.watching

    def become(words: str, judgement: str = "behind") -> None:
        told = status(search={"judgement": judgement, "cause": words}, cache={})
        watching._questions = {**watching._questions, "status": lambda _: told}
        answers.made.look()
        ask(page)
        expect(page.locator("#live .words")).to_contain_text(words, timeout=SOON_MS)

    page.goto(ORIGIN)
    expect(page.locator(".state.good")).to_be_visible()
    become("what readers see is 58 s old")
    expect(page.locator("#announcer")).to_contain_text("58 s old")
    become("what readers see is 63 s old")
    expect(page.locator("#announcer")).to_contain_text("58 s old")
    become("it hangs", "stalled")
    expect(page.locator("#announcer")).to_contain_text("it hangs")


@pytest.mark.parametrize(("code", "words"), [(500, "HTTP 500"), (None, "no answer")])
def test_a_part_that_cannot_be_had_says_so(answered: tuple[Page, Answers], code: int | None, words: str) -> None:
    page, _ = answered
    page.add_init_script(
        "addEventListener('htmx:configRequest', event => {"
        " event.detail.timeout = event.detail.timeout === 120000 ? 700 : 1; })"
    )
    page.route("**/*part=found*", lambda route: route.fulfill(status=code, body="") if code else None)
    for path in ("/trace?table=flights&key=1", "/letters"):
        page.goto(f"{ORIGIN}{path}")
        expect(page.locator("#found")).to_have_text(f"It could not be had: {words}.", timeout=SOON_MS)
        expect(page.locator("#found")).to_have_attribute("aria-busy", "false")


@pytest.mark.parametrize("held", [False, True])
def test_a_page_whose_session_has_ended_leads_to_the_form(browser: Browser, tmp_path: Path, held: bool) -> None:
    token = "operate-token-of-this-test"
    with world(tmp_path, tokens={token: "operate"}, told={"status": status(search={}), "tables": []}) as made:
        made.look()
        page = browser.new_page()
        Answers(page, made)
        made.send("/login", token=token)
        page.goto(f"{ORIGIN}/sinks/search")
        expect(page.locator("#live .state")).to_be_visible()
        if held:
            page.get_by_role("button", name="Hold still").press("Enter")
        made.browser.cookies.clear()
        ask(page)
        expect(page.locator("h1")).to_have_text("Sign in", timeout=SOON_MS)
        assert page.locator("header nav").count() == 0
        expect(page.locator("[name=next]")).to_have_value("/sinks/search")
        page.close()
