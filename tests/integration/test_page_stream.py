"""A view's changes in a browser: a row is changed in Postgres, and the cell on the page changes by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.pushed import Pushed
from tests.support.servers import servers
from tests.support.sinks import VIEW, subject_on

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]
SOON_MS = 5_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def pushed(tmp_path: Path) -> Iterator[Pushed]:
    with subject_on(servers(), "redis") as subject:
        yield Pushed(subject, tmp_path)


def opened(browser: Browser, url: str) -> tuple[Page, list[str]]:
    """A page, and what it complains of."""
    page, wrong = browser.new_page(), list[str]()
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(url)
    return page, wrong


def row(page: Page, key: str) -> Any:
    return page.locator("#board tbody tr", has=page.locator("th", has_text=key))


def test_a_cell_changes_by_itself_and_is_marked(browser: Browser, pushed: Pushed) -> None:
    pushed.write(1, gate={"n": 1, "to": "<b>LAX</b>"}, other={"n": 1, "to": "SFO"})
    with pushed.served() as url:
        page, wrong = opened(browser, f"{url}/stream?view={VIEW}")
        expect(page.locator("#board-state")).to_contain_text("Live", timeout=SOON_MS)
        expect(row(page, "gate").locator("td")).to_have_text(["1", "<b>LAX</b>"], timeout=SOON_MS)
        pushed.write(2, gate={"n": 2, "to": "<b>LAX</b>"})
        expect(row(page, "gate").locator("td").first).to_have_text("2", timeout=SOON_MS)
        expect(page.locator("td.changed")).to_have_text(["2"])
        expect(page.locator("td.changed")).to_have_attribute("title", "was 1")
        expect(page.locator("#board tbody th").first).to_have_text("gate")
        expect(page.locator("td.changed")).to_have_count(0, timeout=SOON_MS)
        pushed.write(3, other=None)
        expect(page.locator("tr.gone th")).to_have_text("other", timeout=SOON_MS)
        expect(page.locator("#board tbody tr")).to_have_count(1, timeout=2 * SOON_MS)
        assert page.url.endswith(f"/stream?view={VIEW}")
        page.close()
    assert wrong == []


def test_a_pause_a_filter_and_a_lost_connection(browser: Browser, pushed: Pushed) -> None:
    pushed.write(1, a={"n": 1}, b={"n": 10})
    with pushed.served() as url:
        page, _ = opened(browser, url)
        page.get_by_role("link", name="Live").click()
        page.get_by_label("Filter").fill("n > `5`")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("#board tbody th")).to_have_text(["b"], timeout=SOON_MS)
        page.get_by_role("button", name="Pause").press("Enter")
        expect(page.locator("#board-state")).to_contain_text("Paused")
        pushed.write(2, b={"n": 11})
        page.wait_for_timeout(300)
        expect(row(page, "b").locator("td")).to_have_text("10")
        page.get_by_role("button", name="Pause").press("Enter")
        expect(row(page, "b").locator("td")).to_have_text("11", timeout=SOON_MS)
        page.get_by_label("Filter").fill("n >")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("alert")).to_contain_text("no JMESPath")
        page.goto(f"{url}/sinks/tested")
        page.goto(f"{url}/stream?view={VIEW}&sink=tested")
        expect(page.locator("#board-state")).to_contain_text("Live", timeout=SOON_MS)
    expect(page.locator("#board-state")).to_contain_text("lost", timeout=10_000)
    page.close()
