"""Who may do what at a page: sessions, forms of our own pages, and nobody else's."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from console.http.app import make_app
from console.http.guard import Access
from console.http.pages.asking import confirmed
from console.http.served import Pipelines
from console.http.sessions import LIFE_SECONDS, begun, cookie_name, resumed
from operations.state.folder import register_of
from tests.support.promoted import promoted
from tests.support.watched import ORIGIN, ROOT, World, nowhere, status, world

READ, OPERATE = "read-token-of-this-test", "operate-token-of-this-test"
TOKENS = {READ: "read", OPERATE: "operate"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)


@pytest.fixture
def open_one(tmp_path: Path) -> Iterator[World]:
    """Without tokens, as on one's own machine."""
    with world(tmp_path, told={"status": status(search={})}) as made:
        made.look()
        yield made


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, tokens=TOKENS, told={"status": status(search={})}) as made:
        made.look()
        yield made


def paused(made: World) -> bool:
    from operations.state.pausing import paused as note

    return note(made.served.pipeline, "search") is not None


# -- forms -------------------------------------------------------------------------------------------------------------


def test_a_form_of_our_own_page_does_what_it_says(open_one: World) -> None:
    answer = open_one.send("/sinks/search/pause", csrf=open_one.csrf(), why="new <disks>")
    assert answer.status_code == 303 and answer.headers["location"].startswith("/sinks/search?")
    assert paused(open_one)
    page = open_one.browser.get("/sinks/search").text
    assert "pause search" in page and ">done<" in page
    assert '<button type="submit">Resume search' in page
    assert open_one.send("/sinks/search/resume", csrf=open_one.csrf()).status_code == 303
    assert not paused(open_one)


def test_what_can_not_be_done_to_a_sink_is_not_offered(open_one: World) -> None:
    """A generation that there is not was to be retired."""
    page = open_one.browser.get("/sinks/search").text
    assert '<button type="submit" disabled>Retire the previous generation' in page and 'name="sure"' not in page
    register = register_of(open_one.served.pipeline, "search")
    promoted(register, register.create("a test").number)
    page = open_one.browser.get("/sinks/search").text
    assert '<button type="submit">Retire the previous generation' in page and 'name="sure"' in page
    register.begin_retiring(1)  # a removal that was cut: it is done again
    page = open_one.browser.get("/sinks/search").text
    assert '<button type="submit">Retire the previous generation' in page and 'name="sure"' in page


@pytest.mark.parametrize(
    "origin", [None, "null", "http://127.0.0.1:9000", "http://evil.example", "https://x@127.0.0.1:8470"]
)
def test_a_form_of_another_page_is_refused(open_one: World, origin: str | None) -> None:
    csrf = open_one.csrf()
    headers = {} if origin is None else {"Origin": origin}
    answer = open_one.browser.post("/sinks/search/pause", data={"csrf": csrf}, headers=headers)
    assert answer.status_code == 403 and not paused(open_one)


def test_a_form_without_the_proof_of_its_session_is_refused(open_one: World) -> None:
    csrf = open_one.csrf()
    for wrong in ({"why": "x"}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": csrf[:-1]}, {"csrf": begun("another").csrf}):
        assert open_one.send("/sinks/search/pause", **wrong).status_code == 403
    open_one.browser.cookies.clear()
    answer = open_one.send("/sinks/search/pause", csrf=csrf)
    assert answer.status_code == 403 and "open the page again" in answer.text
    assert not paused(open_one)


def test_other_kinds_of_requests_do_nothing(open_one: World) -> None:
    csrf = open_one.csrf()
    for kind in ("text/plain", "multipart/form-data; boundary=x", ""):
        headers = {"Origin": ORIGIN, "Content-Type": kind}
        answer = open_one.browser.post("/sinks/search/pause", content=f"csrf={csrf}", headers=headers)
        assert answer.status_code == 415
    assert open_one.browser.post("/sinks/search/pause", json={"csrf": csrf}).status_code == 403
    assert open_one.send("/v1/jobs", csrf=csrf).status_code == 415
    assert open_one.browser.get("/sinks/search/pause").status_code == 405
    assert open_one.send("/sinks/search/pause", csrf=csrf, why="x" * 9_000).status_code == 403
    assert not paused(open_one)


def test_what_is_not_there_is_said_so(open_one: World) -> None:
    csrf = open_one.csrf()
    assert open_one.send("/sinks/nono/pause", csrf=csrf).status_code == 404
    assert open_one.send("/sinks/search/explode", csrf=csrf).status_code == 404
    assert open_one.send("/sinks/search/promote", csrf=csrf, generation="-1").status_code == 400
    answer = open_one.send("/sinks/search/promote", csrf=csrf, generation="7")
    assert answer.status_code == 303
    assert "has no generation 7" in open_one.browser.get("/sinks/search").text


def test_a_verification_of_no_rows_is_not_begun(open_one: World) -> None:
    for verb in ("verify", "repair"):
        answer = open_one.send(f"/sinks/search/{verb}", csrf=open_one.csrf(), sample="0")
        assert answer.status_code == 400 and "a sample of 0 rows compares nothing" in answer.text
    assert open_one.served.jobs.newest() == []
    [pattern] = re.findall(r'id="sample"[^>]* pattern="([^"]+)"', open_one.browser.get("/sinks/search").text)
    assert [bool(re.fullmatch(pattern, said)) for said in ("0", "00", "1", "10", "007")] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_every_page_that_does_something_asks_for_the_proof(open_one: World) -> None:
    doing = [
        route
        for router in (open_one.app.router,)
        for route in _routes(router.routes)
        if route.methods and "POST" in route.methods and not route.path.startswith("/v1/") and route.path != "/login"
    ]
    assert len(doing) == 2
    for route in doing:
        assert confirmed in [one.call for one in route.dependant.dependencies], route.path
    assert inspect.iscoroutinefunction(confirmed)


def _routes(routes: object) -> list[APIRoute]:
    found = []
    for route in routes:  # type: ignore[attr-defined]
        inner = getattr(route, "original_router", None)
        found += _routes(inner.routes) if inner is not None else [route] if isinstance(route, APIRoute) else []
    return found


def test_a_link_from_elsewhere_begins_no_filter(open_one: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign page that sends a browser here would have said what is done for each document."""
    monkeypatch.setattr("console.http.pages.stream.kept_views", lambda _: [("cache", "flight")])
    monkeypatch.setattr("console.http.pages.stream.newest_but", lambda *_: None)
    monkeypatch.setattr(open_one.app.state.streams, "place", lambda *_: SimpleNamespace(sink="cache"))
    path = "/stream?view=flight&filter=a+%3D%3D"  # no JMESPath, which is told to who had it read
    for site, said in (("cross-site", "led here"), ("same-site", "led here"), ("none", "at character")):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        shown = open_one.browser.get(path, headers=headers)
        assert shown.status_code == 200 and 'value="a =="' in shown.text
        assert said in shown.text and "data-stream=" not in shown.text, site
        assert "data-stream=" in open_one.browser.get("/stream?view=flight", headers=headers).text


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_page_leads_to_the_form_for_a_token_and_back(closed: World) -> None:
    answer = closed.browser.get("/sinks/search?part=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/sinks/search")
    assert 'value="/sinks/search"' in closed.browser.get(answer.headers["location"]).text
    assert closed.browser.get("/static/page.css").status_code == 200
    assert closed.browser.get("/v1/overview").status_code == 401
    answer = closed.send("/login", token=OPERATE, next="/sinks/search?part=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sinks/search")
    cookie = answer.headers["set-cookie"]
    assert OPERATE not in cookie
    assert cookie.startswith("headwater_8470=") and "HttpOnly; SameSite=Strict" in cookie
    assert closed.browser.get("/sinks/search").status_code == 200
    assert closed.browser.get("/v1/overview").status_code == 200
    assert closed.send("/sinks/search/pause", csrf=closed.csrf()).status_code == 303
    assert paused(closed)


@pytest.mark.parametrize(
    ("part", "page"),
    [
        ("/?part=live", "/"),
        ("/?pipeline=a%26b&part=live&x=1", "/?pipeline=a%26b&x=1"),
        ("/letters?sink=search&cause=%5Bpart%3D&part=found", "/letters?sink=search&cause=%5Bpart%3D"),
        ("/trace?table=t&key=1&%70art=found", "/trace?table=t&key=1"),
        ("/sinks/a%3Fb?part=live", "/sinks/a%3Fb"),
    ],
)
def test_a_part_of_a_page_whose_session_has_ended_leads_the_whole_page_to_the_form(
    closed: World, part: str, page: str
) -> None:
    """A script follows a 303 by itself: the form would stand in the page, and be emptied by the next part."""
    answer = closed.browser.get(part, headers={"HX-Request": "true"})
    assert answer.status_code == 401 and "location" not in answer.headers
    there = answer.headers["hx-redirect"]
    assert there == closed.browser.get(part).headers["location"]
    assert there.startswith("/login?next=")
    [field] = re.findall(r'name="next" value="([^"]*)"', closed.browser.get(there).text)
    assert unescape(field) == page
    assert closed.send("/login", token=READ, next=unescape(field)).headers["location"] == page
    assert closed.send("/login", token=READ, next=part).headers["location"] == page


def test_who_has_yet_to_sign_in_learns_no_names(tmp_path: Path) -> None:
    for name in ("one", "two"):
        text = (ROOT / "examples/flights/pipeline.yaml").read_text()
        (tmp_path / f"{name}.yaml").write_text(re.sub(r"(?m)^name: .*$", f"name: {name}_of_ours", text))
    pipelines = Pipelines([tmp_path / "one.yaml", tmp_path / "two.yaml"])
    browser = TestClient(make_app(pipelines, Access(TOKENS)), base_url=ORIGIN, follow_redirects=False)
    try:
        for path in ("/login", "/login/nowhere"):
            assert "_of_ours" not in browser.get(path).text, path
        assert "_of_ours" not in browser.post("/login", data={"token": "x"}, headers={"Origin": ORIGIN}).text
        browser.post("/login", data={"token": READ}, headers={"Origin": ORIGIN})
        assert "two_of_ours" in browser.get("/login").text
    finally:
        pipelines.close()


def test_a_wrong_token_is_refused_and_begins_nothing(closed: World) -> None:
    for wrong in ("", "nonsense", READ[:-1], closed.access.secret):
        answer = closed.send("/login", token=wrong)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers
    assert closed.browser.post("/login", data={"token": OPERATE}).status_code == 403  # nobody's page
    assert closed.browser.get("/").status_code == 303


def test_who_may_only_subscribe_is_told_so_and_led_to_no_page(tmp_path: Path) -> None:
    """The form took the token, and each page was an error in JSON, with no button to leave."""
    stream = "stream-token-of-this-test"
    with world(tmp_path, tokens={stream: "stream", **TOKENS}, told={"status": status(search={})}) as made:
        answer = made.send("/login", token=stream, next="/stream")
        assert answer.status_code == 403 and "set-cookie" not in answer.headers
        assert "That token may only subscribe, and sees no page." in answer.text and 'value="/stream"' in answer.text
        made.browser.cookies.set("headwater_8470", begun(stream).text)  # of before, or of another server's form
        for path in ("/", "/stream", "/sinks/search"):
            answer = made.browser.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={path}")
        assert made.browser.get("/stream", headers={"Authorization": f"Bearer {stream}"}).status_code == 403
        assert made.send("/login", token=READ, next="/stream").headers["location"] == "/stream"
        assert made.browser.get("/stream").status_code == 200
    only = Access({stream: "stream"})
    assert only.bearers == {} and only.role(f"Bearer {stream}") == "stream"


@pytest.mark.parametrize(
    "there", ["//evil.example", "https://evil.example", "/\\evil.example", "", "javascript:x", "/\r\nX: y"]
)
def test_a_login_leads_nowhere_else(closed: World, there: str) -> None:
    assert closed.send("/login", token=READ, next=there).headers["location"] == "/"


def test_who_may_read_may_do_nothing(closed: World) -> None:
    closed.send("/login", token=READ)
    assert (
        "<form" not in closed.browser.get("/sinks/search").text.replace('action="/logout"', "", 1).split("</header>")[1]
    )
    session = resumed(closed.browser.cookies["headwater_8470"], TOKENS)
    assert session is not None and session.token == READ
    answer = closed.send("/sinks/search/pause", csrf=session.csrf)
    assert answer.status_code == 403 and not paused(closed)
    header = {"Authorization": f"Bearer {READ}"}
    assert closed.browser.post("/v1/jobs", json={"verb": "pause", "sink": "search"}, headers=header).status_code == 403


def test_a_cookie_does_nothing_at_the_api(closed: World) -> None:
    closed.send("/login", token=OPERATE)
    asked = {"verb": "pause", "sink": "search"}
    assert closed.browser.post("/v1/jobs", json=asked).status_code == 401
    header = {"Authorization": f"Bearer {OPERATE}"}
    assert closed.browser.post("/v1/jobs", json=asked, headers=header).status_code == 202


@pytest.mark.parametrize("token", TOKENS)
def test_leaving_ends_a_session_in_the_browser(closed: World, token: str) -> None:
    """Who may only read was refused, and stayed signed in."""
    closed.send("/login", token=token)
    assert closed.send("/logout", csrf="0" * 64).status_code == 403, "another site's form bears no proof"
    assert closed.browser.get("/").status_code == 200
    answer = closed.send("/logout", csrf=closed.csrf("/"))
    assert answer.status_code == 303 and "Max-Age=0" in answer.headers["set-cookie"]
    assert closed.browser.get("/").status_code == 303


def test_a_session_outlives_the_server_and_ends_with_its_token_or_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    session = begun(OPERATE)
    assert resumed(session.text, TOKENS) == session
    assert resumed(session.text, {READ: "read"}) is None
    assert resumed(session.text[:-1] + "0", TOKENS) in (None, session)
    until, rest = session.text.split(".", 1)
    assert resumed(f"{int(until) + 1}.{rest}", TOKENS) is None
    assert resumed("", TOKENS) is resumed("..", TOKENS) is resumed("9" * 400, TOKENS) is None
    later = time.time() + LIFE_SECONDS + 1
    monkeypatch.setattr("console.http.sessions.time.time", lambda: later)
    assert resumed(session.text, TOKENS) is None


def test_two_servers_on_one_machine_have_cookies_of_their_own() -> None:
    assert cookie_name("127.0.0.1:8470") != cookie_name("127.0.0.1:8471")
    assert cookie_name("hw.example.org") == "headwater"
