"""The page over a pipeline at work, in a browser: a sink dies and comes back, a rebuild is watched and promoted."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from spark.disk.register import Register
from tests.support.local import ready
from tests.support.migrating import Migrating, Rows
from tests.support.proxy import Proxy
from tests.support.serving import serving

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]
# From a server's death to a red page: `run` asks each second, the server looks at what it notes every 1.5 s.
RED_SECONDS = 5.0


@dataclass
class Proxied(Migrating):
    """Its index stands behind a proxy."""

    proxy: Proxy | None = None

    def kinds(self) -> dict[str, dict[str, Any]]:
        found = super().kinds()
        if self.proxy is None:
            self.proxy = Proxy("127.0.0.1", urlsplit(self.stack.endpoints.elasticsearch_url).port or 9200)
        found["search"]["url"] = f"http://127.0.0.1:{self.proxy.port}"
        found["cache"]["changes"] = {"keep": 1000}
        return found


@pytest.fixture(scope="module")
def at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxied, Page, str]]:
    made = Proxied(
        ready(),
        tmp_path_factory.mktemp("clicks"),
        sinks=("search", "cache"),
        views={"named": {"root": "things", "columns": ["id", "a", "price"]}},
    )
    with (
        made.running(),
        Rows(made.conninfo),
        serving(made.file, made.environment()) as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made, browser.new_page(), url
        browser.close()
    assert made.proxy is not None
    made.proxy.close()


def test_a_dead_sink_turns_the_page_red_with_the_cause_and_green_again(at_work: tuple[Proxied, Page, str]) -> None:
    made, page, url = at_work
    assert made.proxy is not None
    page.goto(url)
    expect(page.locator(".state.good")).to_be_visible(timeout=60_000)
    made.proxy.mode = "closed"
    began = time.monotonic()
    expect(page.locator(".state.bad .words")).to_contain_text("search", timeout=90_000)
    took = time.monotonic() - began
    expect(page.locator("article.bad h3")).to_contain_text("search")
    expect(page.locator("article.bad .cause")).to_contain_text("Elasticsearch at")
    expect(page.locator("article.bad")).to_contain_text("start its server")
    made.proxy.mode = "open"
    expect(page.locator(".state.good")).to_be_visible(timeout=60_000)
    print(f"red after {took:.1f} s")
    assert took <= RED_SECONDS, f"{took:.1f} s"


def test_a_rebuild_is_begun_watched_and_promoted_by_clicks(at_work: tuple[Proxied, Page, str]) -> None:
    made, page, url = at_work
    page.goto(f"{url}/sinks/cache")
    page.get_by_role("button", name="Rebuild cache").click()
    expect(page.locator(".jobs")).to_contain_text("rebuild cache", timeout=10_000)
    expect(page.locator("#live")).to_contain_text("filling", timeout=60_000)
    page.get_by_role("link", name="Promote to 2: what would it do?").click(timeout=180_000)
    expect(page.locator("h1")).to_have_text("Promote cache to generation 2?")
    page.get_by_role("button", name="Lead readers to generation 2").click()
    expect(page.locator(".jobs")).to_contain_text("readers see generation 2", timeout=60_000)
    assert Register(made.folder / "state", made.name, "cache").living() == 2
    expect(page.get_by_role("link", name="Roll back to 1: what would it do?")).to_be_visible(timeout=10_000)


def test_a_row_is_changed_in_postgres_and_its_cell_changes_by_itself(at_work: tuple[Proxied, Page, str]) -> None:
    made, page, url = at_work
    page.goto(f"{url}/sinks/cache")
    expect(page.get_by_role("link", name=made.view("named"))).to_have_attribute("href", re.compile("/stream[?]view="))
    page.goto(f"{url}/stream?view={made.view('named')}&sink=cache")
    expect(page.locator("#board-state")).to_contain_text("Live", timeout=10_000)
    cells = page.locator("#board tbody tr", has=page.locator("th", has_text="100000")).locator("td")
    made.execute("UPDATE things SET a = 'before' WHERE id = 100000")
    expect(cells.filter(has_text="before")).to_be_visible(timeout=30_000)
    made.execute("UPDATE things SET a = 'after' WHERE id = 100000")
    marked = cells.filter(has_text="after")
    expect(marked).to_have_class("changed", timeout=30_000)
    expect(marked).to_have_attribute("title", "was before")
