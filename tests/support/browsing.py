"""A page in Debian's Chromium, and whoever answers it: playwright only drives the browser, and brings none here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.support.watched import ORIGIN, World

CHROMIUM = shutil.which("chromium")
# What breaks is to be seen within this time.
SOON_MS = 5_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for the time of a block."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Answers:
    """Stands in for a server: a page's requests are answered by the application, until the test says otherwise.

    Args:
        page: whose.
        made: the application.
    """

    def __init__(self, page: Page, made: World) -> None:
        self.page, self.made = page, made
        self.hangs = False
        self.status: dict[str, int] = {}  # path -> of its answers, in place of the application's
        self.events: dict[str, str] = {"/v1/events": "retry: 600000\n\n"}
        self.asked: list[str] = []
        page.route("**/*", self._answer)

    def count(self, path: str) -> int:
        """How often something was asked for."""
        return sum(urlsplit(one).path == path for one in self.asked)

    def _answer(self, route: Route) -> None:
        request, where = route.request, urlsplit(route.request.url)
        self.asked.append(request.url.removeprefix(ORIGIN))
        if self.hangs:
            return
        if where.path in self.status:
            route.fulfill(status=self.status[where.path], body="{}")
        elif where.path in self.events:
            route.fulfill(status=200, content_type="text/event-stream", body=self.events[where.path])
        else:
            headers = {name: value for name, value in request.all_headers().items() if not name.startswith(":")}
            body = request.post_data_buffer
            answer = self.made.browser.request(request.method, request.url, headers=headers, content=body)
            route.fulfill(status=answer.status_code, headers=dict(answer.headers), body=answer.content)


def ask(page: Page) -> None:
    """As when the server has looked."""
    page.evaluate("htmx.trigger('#live', 'sse:seen')")


def hide(page: Page, hidden: bool) -> None:
    """The tab is covered by another one, or looked at again."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )
