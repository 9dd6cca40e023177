"""How the client waits: all of a user's writes at once, in the time that was given, whoever else waits."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest
from headwater_client import Headwater, at_least_as_fresh, max_staleness
from headwater_client import waiting as of_waiting

# The server that answers: a question in, a status and an answer out.
Answers = Callable[[dict[str, Any]], tuple[int, Any]]


@contextmanager
def silent() -> Iterator[str]:
    """Takes connections, and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(200)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def answering(answers: Answers) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server of these answers, and what it was asked."""
    asked = list[dict[str, Any]]()

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, body = answers(asked[-1])
            with suppress(OSError):  # who asked has gone
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def of(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "reason": None, "lsn": None, "waited_ms": 1.0, "sinks": {}, **more}


def refused(code: str) -> tuple[int, Any]:
    return 400, {"error": {"code": code, "what": "no", "means": "", "fix": "", "transient": False}}


STATES = {"a": "visible", "b": "aborted", "c": "timeout"}
WRITES = list(STATES)


def tokens_of(asked: dict[str, Any]) -> list[str]:
    return [asked["token"], *asked.get("tokens", [])]


def today(asked: dict[str, Any]) -> tuple[int, Any]:
    writes = [of(STATES[token]) for token in tokens_of(asked)]
    return 200, of("timeout", writes=writes) if "tokens" in asked else writes[0]


def test_several_writes_are_one_question() -> None:
    """Each was a question of its own, and cost a refresh of its own: what had been visible for minutes took 0.6 s."""
    with answering(today) as (url, asked):
        answer = Headwater(url).wait(WRITES, timeout=5)
    assert (answer.state, answer.settled) == ("timeout", ("a", "b"))
    [one] = asked
    assert tokens_of(one) == WRITES and 4_000 < one["timeout_ms"] <= 5_000


def ignores(asked: dict[str, Any]) -> tuple[int, Any]:
    return 200, of(STATES[asked["token"]])


def refuses(asked: dict[str, Any]) -> tuple[int, Any]:
    return refused("config") if "tokens" in asked else ignores(asked)


@pytest.mark.parametrize(("server", "questions"), [(ignores, 3), (refuses, 4)], ids=["0.2.0", "strict"])
def test_an_older_server_is_asked_for_one_after_the_other(server: Answers, questions: int) -> None:
    with answering(server) as (url, asked):
        answer = Headwater(url).wait(WRITES, timeout=5)
    assert (answer.state, answer.settled) == ("timeout", ("a", "b"))
    assert len(asked) == questions and [one["token"] for one in asked[-2:]] == ["b", "c"]


def test_a_token_that_is_none_says_nothing_of_the_others() -> None:
    def answers(asked: dict[str, Any]) -> tuple[int, Any]:
        return refused("bad-token") if "bad" in tokens_of(asked) else today(asked)

    with answering(answers) as (url, _):
        answer = Headwater(url).wait(["a", "bad"])
    assert (answer.state, answer.code, answer.settled) == ("unknown", "bad-token", ("a",))


@pytest.mark.parametrize("body", [[], 7, {}, {"writes": []}, {"writes": [7]}, {"writes": 7}, None])
def test_whatever_answers_in_a_servers_place_is_no_error_of_the_application(body: Any) -> None:
    with answering(lambda _: (200, body)) as (url, _):
        answer = Headwater(url).wait(WRITES)
    assert (answer.state, answer.code) == ("unknown", "no-answer")


@pytest.mark.parametrize("count", [1, 4])
def test_a_silent_server_costs_the_time_and_one_grace_however_many_the_writes_are(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each further one it was asked for a second more."""
    monkeypatch.setattr(of_waiting, "_GRACE_SECONDS", 0.5)
    with silent() as url:
        began = time.monotonic()
        answer = at_least_as_fresh([f"x{n}" for n in range(count)]).wait(Headwater(url), timeout=0.2)
        took = time.monotonic() - began
    assert (answer.state, answer.code) == ("unknown", "no-answer") and 0.6 < took < 1.5


def test_an_older_server_that_falls_silent_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_waiting, "_GRACE_SECONDS", 0.5)

    def answers(asked: dict[str, Any]) -> tuple[int, Any]:
        if "tokens" not in asked:
            time.sleep(2)
        return refused("config")

    with answering(answers) as (url, _):
        began = time.monotonic()
        answer = Headwater(url).wait(WRITES, timeout=0.2)
        took = time.monotonic() - began
    assert (answer.state, answer.code) == ("unknown", "no-answer") and took < 1.4


@pytest.mark.parametrize("token", ["a", ["a", "a"]])
def test_who_gives_no_time_is_told_whether_it_is_visible_now(token: Any) -> None:
    with answering(today) as (url, asked):
        answer = at_least_as_fresh(token).wait(Headwater(url), timeout=0)
    assert (answer.state, answer.code) == ("visible", None)
    [one] = asked
    assert one["timeout_ms"] == 0


# -- coroutines --------------------------------------------------------------------------------------------------------


def test_a_coroutine_is_answered_in_time_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stood in line for the loop's few threads, and each one's time began at the head of it."""
    monkeypatch.setattr(of_waiting, "_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(of_waiting, "_AT_ONCE", 4)
    of_waiting._threads.cache_clear()

    async def one(headwater: Headwater) -> tuple[float, float, str, str | None]:
        began = time.monotonic()
        answer = await headwater.wait_async("x", ["search"], timeout=0.7)
        return time.monotonic() - began, answer.seconds, answer.state, answer.code

    async def application(url: str) -> tuple[list[Any], float, Any]:
        headwater = Headwater(url)
        waits = asyncio.gather(*(one(headwater) for _ in range(24)))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await asyncio.to_thread(lambda: None)  # the application's own work
        other = time.monotonic() - began
        nothing = await headwater.wait_async(None, timeout=0)
        return await waits, other, nothing

    try:
        with silent() as url:
            waits, other, nothing = asyncio.run(application(url))
    finally:
        of_waiting._threads.cache_clear()
    assert {state for _, _, state, _ in waits} == {"unknown"}
    codes = Counter(code for *_, code in waits)
    assert codes.keys() == {"no-answer", "in-line"} and codes["in-line"] > codes["no-answer"], (
        "who was not asked is known"
    )
    assert max(took for took, *_ in waits) < 1.8
    assert max(abs(took - said) for took, said, *_ in waits) < 0.1, "it says how long it took"
    assert other < 0.5
    assert nothing.state == "visible", "there is nothing to wait for, nor in line for"


def test_a_coroutine_that_had_to_stand_in_line_waits_as_long_as_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_waiting, "_AT_ONCE", 1)
    of_waiting._threads.cache_clear()

    def answers(asked: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.5)
        return today(asked)

    async def application(url: str) -> Any:
        headwater = Headwater(url, timeout=5)
        return await asyncio.gather(*(headwater.wait_async("a") for _ in range(2)))

    try:
        with answering(answers) as (url, asked):
            answered = asyncio.run(application(url))
    finally:
        of_waiting._threads.cache_clear()
    assert all(answered) and max(answer.seconds for answer in answered) > 0.9
    assert min(one["timeout_ms"] for one in asked) < 4_600 < max(one["timeout_ms"] for one in asked)


@pytest.mark.parametrize(
    ("writes", "own"), [("x", False), (WRITES, False), ("x", True)], ids=["one", "several", "an opener of its own"]
)
def test_who_is_cancelled_gives_the_thread_back_and_the_process_may_end(
    writes: Any, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aborted page loads kept their threads for the whole time: others stood in line, and no process ended before."""
    monkeypatch.setattr(of_waiting, "_AT_ONCE", 1)
    of_waiting._threads.cache_clear()
    over = threading.Event()
    if own:
        installed(monkeypatch)

    def answers(asked: dict[str, Any]) -> tuple[int, Any]:
        if asked["timeout_ms"] > 10_000:
            over.wait(20)
        return today(asked)

    async def application(url: str, asked: list[Any]) -> Any:
        headwater = Headwater(url)
        aborted = asyncio.create_task(headwater.wait_async(writes, timeout=20))
        while not asked:
            await asyncio.sleep(0.01)
        aborted.cancel()
        with suppress(asyncio.CancelledError):
            await aborted
        return await headwater.wait_async("a", timeout=2)

    try:
        with answering(answers) as (url, asked):
            answer = asyncio.run(application(url, asked))
            began = time.monotonic()
            of_waiting._threads(os.getpid()).shutdown()  # as the interpreter does at its end
            took = time.monotonic() - began
            over.set()
    finally:
        of_waiting._threads.cache_clear()
    assert (answer.state, answer.code) == ("visible", None)
    assert took < 1 and len(asked) == 2, "of what nobody waits for nothing more is asked"


@contextmanager
def dribbling() -> Iterator[str]:
    """Sends lines of a head, and no end of it."""
    over = threading.Event()

    def serve() -> None:
        with listening.accept()[0] as connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not over.wait(0.05):
                connection.sendall(b"X-A: 1\r\n")

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        thread.join()


def test_whose_time_is_used_up_gives_the_thread_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line that came gave the server all of its time again: the thread was held until a hundredth one."""
    monkeypatch.setattr(of_waiting, "_GRACE_SECONDS", 0.3)
    of_waiting._threads.cache_clear()
    try:
        with dribbling() as url:
            answer = asyncio.run(Headwater(url).wait_async("x", timeout=0.2))
            began = time.monotonic()
            of_waiting._threads(os.getpid()).shutdown()
            took = time.monotonic() - began
    finally:
        of_waiting._threads.cache_clear()
    assert (answer.state, answer.code) == ("unknown", "no-answer") and took < 0.5


class Gateway(urllib.request.HTTPHandler):
    """An application's own way to a server."""

    def __init__(self) -> None:
        super().__init__()
        self.went: list[str | None] = []

    def http_open(self, request: urllib.request.Request) -> Any:
        self.went.append(request.get_header("X-tenant"))
        return super().http_open(request)


def installed(monkeypatch: pytest.MonkeyPatch, *, whole: bool = True) -> list[str | None]:
    """The ways that were gone through what an application has installed; ``whole``: an opener of the library."""
    gateway = Gateway()
    opener = urllib.request.build_opener(gateway)
    opener.addheaders = [("X-Tenant", "acme")]
    opener = opener if whole else cast(Any, SimpleNamespace(open=opener.open))
    monkeypatch.setattr(urllib.request, "_opener", None)  # which takes it out again
    urllib.request.install_opener(opener)
    return gateway.went


@pytest.mark.parametrize("whole", [True, False])
def test_a_coroutine_goes_the_way_that_the_application_has_installed(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies, certificates and headers of `install_opener` were heeded by `wait`, and not by `wait_async`."""
    went = installed(monkeypatch, whole=whole)
    with answering(today) as (url, _):
        assert Headwater(url).wait("a") and asyncio.run(Headwater(url).wait_async("a"))
        assert Headwater(url).wait("a") and asyncio.run(Headwater(url).wait_async("a"))
    assert went == ["acme"] * 4


class Kept(urllib.request.HTTPHandler):
    """Opens requests in a way of its own, as those do that keep connections."""

    def do_open(self, request: urllib.request.Request) -> Any:  # type: ignore[override]
        return super().do_open(http.client.HTTPConnection, request)

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(request)


def test_an_opener_that_makes_connections_in_its_own_way_is_asked_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait_async` answered `no-answer` for ever, and `wait` did not."""
    monkeypatch.setattr(urllib.request, "_opener", None)
    urllib.request.install_opener(urllib.request.build_opener(Kept()))
    with answering(today) as (url, _):
        assert Headwater(url).wait("a") and asyncio.run(Headwater(url).wait_async("a"))


# -- ages --------------------------------------------------------------------------------------------------------------


def test_who_reads_what_is_of_an_age_may_say_by_which_reading() -> None:
    """It was a TypeError."""
    with answering(lambda _: (200, of("visible"))) as (url, asked):
        assert max_staleness(5).wait(Headwater(url), ["search"], found_by="id", timeout=1)
    [one] = asked
    assert (one["max_staleness_ms"], one["found_by"], one["sinks"]) == (5_000, "id", ["search"])


def test_an_age_of_nothing_is_an_age() -> None:
    """What was committed before it was asked for is waited for: that is more than any age."""
    with answering(lambda _: (200, of("visible"))) as (url, asked):
        assert max_staleness(0).wait(Headwater(url))
    [one] = asked
    assert one["max_staleness_ms"] == 0 and "token" not in one
