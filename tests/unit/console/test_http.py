"""The HTTP door without a server behind it: who may ask, and how errors are told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from cdc.errors import ConfigError, UnknownName
from cdc.pipeline import loads
from console.http.app import make_app
from console.http.guard import MOST_BYTES, Access, Guard, access, is_loopback
from console.http.served import Pipelines, known_views
from operations.state.folder import register_of
from tests.support.standing_file import FILE as STANDING
from tests.support.standing_file import STANDING as ONE

READ, OPERATE = "r" * 20, "o" * 20
FILE = """
version: 1
name: {name}
source: {{host: 127.0.0.1, port: 1, database: x, user: y, password: z, tables: [public.t]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{v: {{root: t}}}}
sinks: {{search: {{type: elasticsearch, url: "http://127.0.0.1:1", view: v}}}}
engine: {{state_dir: {folder}/state}}
"""


def client(folder: Path, allowed: Access | None = None, names: tuple[str, ...] = ("shop",), **more: str) -> TestClient:
    files = []
    for name in names:
        files.append(folder / f"{name}.yaml")
        files[-1].write_text(FILE.format(name=name, folder=folder))
    app = make_app(Pipelines(files), allowed or Access({}))
    return TestClient(app, base_url=more.pop("base_url", "http://127.0.0.1:8470"), headers=more)


def test_without_tokens_this_machine_may_ask(tmp_path: Path) -> None:
    for host in ("127.0.0.1:8470", "localhost:8470", "[::1]:8470"):
        assert client(tmp_path, base_url=f"http://{host}").get("/v1/pipelines").json() == {"pipelines": ["shop"]}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "evil.example.org"}, 421),  # DNS rebinding
        ("GET", {"Host": ""}, 400),
        ("GET", {"Host": "[::1"}, 400),
        ("GET", {"Host": "127.0.0.1:8470/static/?"}, 400),  # what is put together with it has another path
        ("GET", {"Host": "localhost/login?"}, 400),
        ("GET", {"Host": "localhost:80:80"}, 400),
        ("GET", {"Host": "x@localhost"}, 400),
        ("GET", {"Host": "local host"}, 400),
        ("GET", {"Origin": "http://evil.example.org"}, 403),
        ("GET", {"Origin": "null"}, 403),
        ("POST", {"Content-Type": "text/plain"}, 415),  # what a form of any page may send
        ("POST", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_what_a_foreign_page_could_send_is_refused(
    tmp_path: Path, method: str, headers: dict[str, str], status: int
) -> None:
    path = "/v1/pipelines" if method == "GET" else "/v1/wait"
    answer = client(tmp_path).request(method, path, headers=headers, content=b"{}" if method == "POST" else None)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == "refused"


def fetched(site: str, mode: str = "no-cors", dest: str = "image") -> dict[str, str]:
    """What a browser says of where a request comes from."""
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}


def link(site: str, dest: str = "document") -> dict[str, str]:
    return fetched(site, "navigate", dest)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/preview?view=v&where=pg_sleep(30)%20is%20null", fetched("cross-site")),
        ("/v1/preview?view=v&where=pg_sleep(30)%20is%20null", link("cross-site")),
        ("/v1/explain?sink=search&key=1&expected=1", fetched("same-site", "no-cors", "script")),  # of another port
        ("/v1/explain?sink=search&key=1&expected=1", link("same-site")),
        ("/v1/pipelines", fetched("cross-site", "cors", "empty")),
        ("/v1/pipelines", {"Sec-Fetch-Site": "cross-site"}),
        ("/openapi.json", link("cross-site")),
        ("/metrics", fetched("cross-site")),
        ("/", fetched("cross-site")),
        ("/trace", link("cross-site", "iframe")),
        ("/letters?part=whole&cause=x", link("cross-site")),  # the part that is work
        ("/trace?table=t&key=1&p%61rt=found", link("same-site")),
    ],
)
def test_what_a_foreign_page_makes_a_browser_ask_without_an_origin_is_refused(
    tmp_path: Path, path: str, headers: dict[str, str]
) -> None:
    for method in ("GET", "HEAD"):
        answer = client(tmp_path).request(method, path, headers=headers)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers, method
    assert client(tmp_path).post("/v1/wait", json={}, headers=link("cross-site")).status_code == 403


def test_a_link_from_elsewhere_opens_a_page(tmp_path: Path) -> None:
    for site in ("cross-site", "same-site"):
        for path in ("/", "/sinks/search", "/trace?table=t&key=1", "/login"):
            assert client(tmp_path).get(path, headers=link(site)).status_code == 200, (site, path)
    closed = client(tmp_path, Access({READ: "read"}))
    asked = closed.get("/sinks/search", headers=link("cross-site"), follow_redirects=False)
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=/sinks/search")


def test_our_own_page_a_hand_and_a_program_may_ask(tmp_path: Path) -> None:
    for headers in ({}, fetched("same-origin", "cors", "empty"), link("none"), link("same-origin")):
        for path in ("/v1/pipelines", "/metrics", "/openapi.json", "/"):
            assert client(tmp_path).get(path, headers=headers).status_code == 200, (headers, path)
    assert client(tmp_path).get("/healthz", headers=fetched("cross-site")).status_code == 200


def test_a_token_says_what_its_bearer_may(tmp_path: Path) -> None:
    allowed = access({"HEADWATER_READ_TOKEN": READ, "HEADWATER_OPERATE_TOKEN": OPERATE}, "0.0.0.0", ("hw.example.org",))
    asking = client(tmp_path, allowed, base_url="http://hw.example.org")
    assert asking.get("/healthz").status_code == 200
    for header in ("", "Bearer", "Bearer wrong", f"Basic {READ}", READ):
        assert asking.get("/v1/pipelines", headers={"Authorization": header}).status_code == 401, header
    for token in (READ, OPERATE):
        assert asking.get("/v1/pipelines", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    doing = {"Content-Type": "application/json"}
    reader = asking.post("/v1/anything", json={}, headers={**doing, "Authorization": f"Bearer {READ}"})
    assert reader.status_code == 403 and "may only read" in reader.text
    operator = asking.post("/v1/anything", json={}, headers={**doing, "Authorization": f"Bearer {OPERATE}"})
    assert operator.status_code == 404
    bad = asking.post("/v1/wait", json={"token": "x"}, headers={**doing, "Authorization": f"Bearer {READ}"})
    assert bad.status_code == 400 and bad.json()["error"]["code"] == "bad-token"


def test_who_may_ask_is_decided_by_the_path_that_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a framework makes of the Host header."""
    monkeypatch.setattr(Request, "url", URL("http://localhost/login"))
    closed = client(tmp_path, Access({READ: "read"}), names=("shop", "wiki"))
    assert closed.get("/v1/pipelines").status_code == 401
    assert closed.get("/", follow_redirects=False).headers["location"] == "/login?next=/"
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://127.0.0.1:8470"}
    assert closed.post("/v1/wait", content=b"", headers=form).status_code == 415


def test_more_than_a_request_may_have_is_not_read(tmp_path: Path) -> None:
    read = 0

    def pieces() -> Iterator[bytes]:
        nonlocal read
        yield b'{"sinks": ["'
        while read < 100 * MOST_BYTES:
            read += 2**16
            yield b"x" * 2**16

    doing = {"Content-Type": "application/json", "Origin": "http://127.0.0.1:8470"}
    asking = client(tmp_path)
    for path in ("/v1/wait", "/v1/jobs"):
        answer = asking.post(path, content=b'"' + b"x" * MOST_BYTES, headers=doing)
        assert answer.status_code == 413 and answer.json()["error"]["code"] == "refused", path
    answer = asking.put("/v1/queries/v/q", content=b" " * (MOST_BYTES + 1), headers=doing)
    assert answer.status_code == 413 and "1,048,576 bytes" in answer.json()["error"]["what"]
    assert asking.post("/v1/wait", content=b" " * (MOST_BYTES - 2) + b"{}", headers=doing).status_code == 200
    assert asking.post("/v1/wait", content=pieces(), headers=doing).status_code == 413
    for names in ("sinks", "views"):
        long = asking.post("/v1/wait", json={names: ["x" * 501]})
        assert long.status_code == 400 and names in long.json()["error"]["what"]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b'{"range": {"total": {"gte": NaN}}}', "is no JSON"),
        (b'{"term": {"id": 18446744073709551616}}', "more than 64 bits"),
        (b'{"term": {"id": "\\ud800"}}', "is no JSON"),
        (b"[]", "is no JSON object"),
        (b"", "is no JSON"),
    ],
)
def test_a_query_is_judged_as_it_was_sent(tmp_path: Path, sent: bytes, why: str) -> None:
    """Read and written again it was another query: without its lower bound, or an error without a word."""
    asking = client(tmp_path)
    (tmp_path / "shop.yaml").write_text(STANDING.format(queries=ONE, folder=tmp_path).replace("standing", "shop"))
    put = asking.put("/v1/queries/order/q", content=sent, headers={"Content-Type": "application/json"})
    assert put.status_code == 400 and put.json()["error"]["code"] == "query-refused", put.text
    assert why in put.json()["error"]["what"]


def test_a_stream_whose_reader_sends_too_much_ends(tmp_path: Path) -> None:
    """It reads on only to learn when its reader has gone, and would not learn it any more."""
    told: list[Any] = []

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        told.append("gone")

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 2**16, "more_body": True}

    async def send(message: Message) -> None:
        told.append(message["type"])

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(stream, Access({}))(scope, receive, send))
    assert told == ["http.response.start", "gone"]


def test_another_address_needs_a_token_that_is_long_enough() -> None:
    with pytest.raises(ConfigError, match="whoever reaches this machine"):
        access({}, "0.0.0.0")
    with pytest.raises(ConfigError, match="are the same"):
        access({"HEADWATER_READ_TOKEN": READ, "HEADWATER_OPERATE_TOKEN": READ}, "127.0.0.1")
    with pytest.raises(ConfigError, match="fewer than 16"):
        access({"HEADWATER_READ_TOKEN": "short"}, "127.0.0.1")
    assert [is_loopback(host) for host in ("127.0.0.5", "::1", "[::1]", "localhost", "10.0.0.1", "x")] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_question_says_which_pipeline_it_means(tmp_path: Path) -> None:
    asking = client(tmp_path, names=("shop", "wiki"))
    several = asking.get("/v1/alive")
    assert several.status_code == 404 and "shop, wiki" in several.json()["error"]["fix"]
    assert asking.get("/v1/alive", params={"pipeline": "wiki"}).json() == {
        "alive": False,
        "ailments": ["search: never run"],
    }
    nobody = asking.post("/v1/wait", params={"pipeline": "shop"}, json={"sinks": ["nowhere"]})
    assert nobody.status_code == 404 and "no sink nowhere" in nobody.json()["error"]["what"]
    assert asking.get("/v1/sinks/nowhere/freshness", params={"pipeline": "shop"}).status_code == 404
    view = asking.post("/v1/wait", params={"pipeline": "shop"}, json={"views": ["ordres"]})
    assert view.status_code == 404 and "no view ordres" in view.json()["error"]["what"]
    long = asking.post("/v1/wait", params={"pipeline": "shop"}, json={"timeout_ms": 10**9})
    assert long.status_code == 400 and "timeout_ms" in long.json()["error"]["what"]
    misspelt = asking.post("/v1/wait", params={"pipeline": "shop"}, json={"sink": ["search"]})
    assert misspelt.status_code == 400 and "sink" in misspelt.json()["error"]["what"], "it would have waited for all"


def test_a_view_that_readers_see_is_known_also_while_the_file_calls_the_next_one_otherwise(tmp_path: Path) -> None:
    pipeline = loads(FILE.format(name="shop", folder=tmp_path), "shop.yaml", {})
    folder = register_of(pipeline, "search").generation().folder
    folder.mkdir(parents=True)
    (folder / "views.json").write_text('["before"]')
    assert known_views(pipeline, ["search"], ["before", "v"]) == ("before", "v")
    with pytest.raises(UnknownName, match="no view other") as error:
        known_views(pipeline, ["search"], ["other"])
    assert error.value.fix == "choose from v, before"


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    client(tmp_path)
    with pytest.raises(ConfigError, match="both called shop"):
        Pipelines([tmp_path / "shop.yaml", tmp_path / "shop.yaml"])


def test_while_the_source_is_away_a_wait_ends_in_time_and_says_why(tmp_path: Path) -> None:
    token = "a1.69a5.1.3f2a91bc.0badcafe.39.b6aab"
    with client(tmp_path) as asking:
        answer = asking.post("/v1/wait", json={"token": token, "timeout_ms": 1500}).json()
    assert answer["state"] == "timeout" and "Postgres does not answer" in answer["reason"]
    assert answer["sinks"]["search"]["stage"] == "transaction"
    assert 1400 < answer["waited_ms"] < 5000


def test_a_file_that_becomes_wrong_goes_on_as_it_was(tmp_path: Path) -> None:
    asking = client(tmp_path)
    file = tmp_path / "shop.yaml"
    file.write_text("version: 1\nname: [")
    assert asking.get("/v1/alive").status_code == 200
    file.write_text(FILE.format(name="shop", folder=tmp_path).replace("search:", "found:"))
    assert asking.get("/v1/alive").json()["ailments"] == ["found: never run"]


@pytest.mark.parametrize("names", [("shop",), ("shop", "wiki")])
def test_a_file_that_is_given_another_name_is_asked_and_acted_on_by_it(tmp_path: Path, names: tuple[str, ...]) -> None:
    """It was known by the former name, and led by its links to the other: a button ended in a 404."""
    asking = client(tmp_path, names=names)
    (tmp_path / "shop.yaml").write_text(FILE.format(name="store", folder=tmp_path))
    assert asking.get("/v1/pipelines").json() == {"pipelines": sorted({*names, "store"} - {"shop"})}
    former = asking.get("/v1/alive", params={"pipeline": "shop"})
    assert former.status_code == 404 and "store" in former.json()["error"]["fix"]
    assert asking.get("/?pipeline=shop").status_code == 404
    page = asking.get("/sinks/search?pipeline=store").text
    [action] = re.findall(r'action="(/sinks/search/pause[^"]*)"', page)
    [csrf, *_] = re.findall(r'name="csrf" value="([0-9a-f]+)"', page)
    done = asking.post(action, data={"csrf": csrf}, headers={"Origin": "http://127.0.0.1:8470"})
    assert done.status_code == 200 and done.url.path == "/sinks/search"
    assert [one["verb"] for one in asking.get("/v1/jobs?pipeline=store").json()["jobs"]] == ["pause"]


def test_two_files_that_come_to_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
    asking = client(tmp_path, names=("shop", "wiki", "third"))
    (tmp_path / "shop.yaml").write_text(FILE.format(name="wiki", folder=tmp_path))
    for path in ("/?pipeline=wiki", "/letters?pipeline=wiki", "/v1/alive?pipeline=wiki"):
        answer = asking.get(path)
        assert answer.status_code == 400 and "are both called wiki" in answer.text, path
    for path in ("/?pipeline=third", "/v1/alive?pipeline=third", "/metrics"):
        assert asking.get(path).status_code == 200, path
