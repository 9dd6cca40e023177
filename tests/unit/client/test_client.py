"""The application's client without a server: tokens in a cookie, choices, names."""

from __future__ import annotations

import ast
import asyncio
import http.client
import io
import json
import sys
import threading
import urllib.error
from collections.abc import Callable, Iterable
from email.message import Message
from pathlib import Path
from typing import Any
from wsgiref.util import FileWrapper

import headwater_client
import pytest
from headwater_client import (
    BadPipelineName,
    Headwater,
    at_least_as_fresh,
    current,
    forget,
    remember,
    take_token,
    whatever,
)
from headwater_client.cache import FOLLOW, PIECE, Cache
from headwater_client.cookies import DEFAULT_COOKIE, read_cookies, written_cookies
from headwater_client.session import MOST, SECONDS, Tokens, opened, sealed
from headwater_client.wsgi import ReadYourWrites

SECRET = b"of this test"
ONE, OTHER = "x1.69a5.1.3f2a91bc.0badcafe.39.b6aab", "a1.69a5.1.3f2a91bc.0badcafe.39.b6aac"


def test_what_was_sealed_is_opened_and_what_was_changed_is_not() -> None:
    value = sealed(ONE, 1000, SECRET)
    assert opened(value, SECRET, now=1000 + SECONDS) == (ONE, 1000)
    assert opened(value, SECRET, now=1001 + SECONDS) is None  # visible long ago, or something is broken
    for changed in (value.replace("b6aab", "b6aac"), value[:-1], value.replace("1000", "9000"), "", "~", "é~é"):
        assert opened(changed, SECRET, now=1000) is None, changed
    assert opened(value, b"another", now=1000) is None


def cookie_of(tokens: Tokens, secure: bool = False) -> list[str]:
    return list(written_cookies("hw", tokens, SECRET, secure=secure))


def test_a_cookie_is_for_the_server_alone() -> None:
    tokens = Tokens()
    tokens.add(ONE)
    [value] = cookie_of(tokens, secure=True)
    assert all(word in value for word in ("HttpOnly", "SameSite=Lax", "Secure", "Max-Age=600", "Path=/"))
    ours = value.partition(";")[0]
    for others in ("a=b", 'a={"x":1}', "pref[x]=1", "foo", "=", "hw_=", "hw_zz=zz"):  # none of our business
        assert read_cookies(f"{others}; {ours}", "hw", SECRET).all == (ONE,), others
        assert read_cookies(f"{ours}; {others}", "hw", SECRET).all == (ONE,), others
    assert read_cookies(ours, "another", SECRET).all == ()


def test_the_newest_writes_count_and_the_others_cookies_end() -> None:
    tokens = Tokens({f"t{n}": n for n in range(MOST)})
    tokens.add("newest")
    tokens.add("newest")
    assert tokens.all == ("t1", "t2", "t3", "newest")
    added, gone = tokens.changes()
    assert list(added) == ["newest"] and gone == {"t0"}
    tokens.drop(["t2", "newest", "never"])
    assert tokens.all == ("t0", "t1", "t3") and tokens.changes() == ({}, {"t2"})


def test_two_windows_keep_both_writes() -> None:
    jar = dict[str, str]()
    for token in (ONE, OTHER):  # both requests began with an empty jar
        window = Tokens()
        window.add(token)
        jar |= dict(value.partition(";")[0].split("=", 1) for value in cookie_of(window))
    header = "; ".join(f"{name}={value}" for name, value in jar.items())
    assert set(read_cookies(header, "hw", SECRET).all) == {ONE, OTHER}


def test_the_middleware_keeps_a_users_writes_from_request_to_request() -> None:
    seen: list[tuple[str, ...]] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        seen.append(tuple(current()))
        if environ["PATH_INFO"] == "/save":
            remember(ONE)
        if environ["PATH_INFO"] == "/seen":
            forget(current())
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"ok"]

    wrapped, jar = ReadYourWrites(app, secret=SECRET), ""
    for path in ("/", "/save", "/find", "/seen", "/find"):
        sent: list[tuple[str, str]] = []
        wrapped({"PATH_INFO": path, "HTTP_COOKIE": jar}, lambda status, headers, into=sent: into.extend(headers))
        for name, value in sent:
            if name == "Set-Cookie":
                jar = value.partition(";")[0] if "Max-Age=0" not in value else ""
    assert seen == [(), (), (ONE,), (ONE,), ()]
    assert current() == ()
    remember(ONE)  # outside of a request: nobody to keep it for
    assert current() == ()


def served(app: Callable[..., Any], **environ: Any) -> tuple[list[bytes], list[list[str]]]:
    """What a server sends: pieces, and the cookies of each start of a response."""
    started, pieces = list[list[str]](), list[bytes]()

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], None]:
        started.append([value for name, value in headers if name == "Set-Cookie"])
        return pieces.append

    result = ReadYourWrites(app, secret=SECRET)(environ, start)
    try:
        for piece in result:
            assert current() == (), "between two pieces the server is at work, perhaps for somebody else"
            assert started, "the headers come first"
            pieces.append(piece)
    finally:
        if hasattr(result, "close"):
            result.close()
        assert current() == ()
    return pieces, started


def test_what_a_generator_writes_is_remembered_as_what_a_function_does() -> None:
    """Calling it runs nothing: its tokens were taken when nobody kept them any more."""
    closed = list[tuple[str, ...]]()

    def generator(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            remember(ONE)
            start_response("200 OK", [])
            yield b"a"
            assert tuple(current()) == (ONE,)
            yield b"b"
        finally:
            closed.append(tuple(current()))

    pieces, [cookies] = served(generator)
    assert pieces == [b"a", b"b"] and closed == [(ONE,)]
    header = "; ".join(value.partition(";")[0] for value in cookies)
    assert read_cookies(header, DEFAULT_COOKIE, SECRET).all == (ONE,)

    def middleware(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        yield from generator(environ, start_response)

    assert served(middleware, HTTP_COOKIE=header)[0] == [b"a", b"b"]
    broken = iter(ReadYourWrites(generator, secret=SECRET)({}, lambda *_: None))
    next(broken)
    broken.close()  # type: ignore[attr-defined]
    assert closed[-1] == (ONE,) and len(closed) == 3, "a browser went away in the middle"


def test_an_error_in_the_middle_of_an_answer_is_the_servers() -> None:
    def fails(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        write = start_response("200 OK", [])
        write(b"a")
        remember(ONE)
        yield b"b"
        try:
            raise KeyError("x")
        except KeyError:
            start_response("500 No", [], sys.exc_info())
        yield b"c"
        raise LookupError("no more")

    sent = list[list[tuple[str, str]]]()

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], None]:
        sent.append(headers)
        return lambda piece: None

    result = iter(ReadYourWrites(fails, secret=SECRET)({}, start))
    assert [next(result), next(result)] == [b"b", b"c"] and [len(headers) for headers in sent] == [0, 1]
    with pytest.raises(LookupError, match="no more"):
        next(result)
    assert current() == ()


def test_an_answer_that_is_made_already_is_handed_on_as_it_is() -> None:
    for made in ([b"a"], (b"a",), FileWrapper(io.BytesIO(b"a"))):
        app = lambda environ, start, made=made: made  # noqa: E731
        assert ReadYourWrites(app, secret=SECRET)({"wsgi.file_wrapper": FileWrapper}, lambda *_: None) is made
    plain = ReadYourWrites(lambda *_: iter([b"a"]), secret=SECRET)({"wsgi.file_wrapper": lambda *_: None}, print)
    assert list(plain) == [b"a"]
    plain.close()  # type: ignore[attr-defined]


class _Cursor:
    def __init__(self, row: tuple[Any, ...] | dict[str, Any] | None) -> None:
        self.row, self.asked = row, ""

    def execute(self, query: str) -> None:
        self.asked = query

    def fetchone(self) -> tuple[Any, ...] | dict[str, Any] | None:
        return self.row


def test_a_token_is_taken_by_name_and_nothing_else_gets_into_the_statement() -> None:
    cursor = _Cursor((ONE,))
    assert take_token(cursor, "my-shop", schema="cdc") == ONE
    assert cursor.asked == 'SELECT "cdc"."token_my-shop"(false)'
    take_token(cursor, "shop", after_commit=True, if_written=True)
    assert cursor.asked == 'SELECT "headwater"."token_shop"(true)'
    take_token(cursor, "shop", if_written=True)
    assert "pg_current_xact_id_if_assigned() IS NOT NULL" in cursor.asked
    assert take_token(_Cursor((None,)), "shop") is None
    for bad in ('shop"(); DROP TABLE x; --', "", "x" * 41, "1 2"):
        with pytest.raises(BadPipelineName):
            take_token(cursor, bad)
        with pytest.raises(BadPipelineName):
            take_token(cursor, "shop", schema=bad)


def test_a_token_is_taken_from_rows_that_are_mappings_too() -> None:
    assert take_token(_Cursor({"token_shop": ONE}), "shop") == ONE
    assert take_token(_Cursor({"case": None}), "shop", if_written=True) is None


def test_a_server_that_is_away_is_no_error_of_the_application() -> None:
    away = Headwater("http://127.0.0.1:1", timeout=0.2)
    answer = at_least_as_fresh(ONE).wait(away, ["search"])
    assert not answer and answer.state == "unknown" and "no answer" in (answer.reason or "")
    assert answer.code == "no-answer"
    assert away.age("search").seconds is None
    assert whatever.wait(away) and at_least_as_fresh(None).wait(away)  # nothing to wait for
    with pytest.raises(ValueError, match="no address"):
        Headwater("file:///etc/passwd")


class _BreaksOff(io.BytesIO):
    """The body of an error's answer that does not come to its end."""

    def __init__(self, trouble: Exception) -> None:
        super().__init__()
        self.trouble = trouble

    def read(self, size: int | None = -1, /) -> bytes:
        raise self.trouble


@pytest.mark.parametrize("trouble", [http.client.IncompleteRead(b"{"), TimeoutError(), ConnectionResetError()])
def test_an_error_whose_answer_breaks_off_is_no_error_of_the_application(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    def ask(*_: Any, **__: Any) -> Any:
        raise urllib.error.HTTPError("http://x", 503, "no", Message(), _BreaksOff(trouble))

    monkeypatch.setattr("urllib.request.urlopen", ask)
    answer = Headwater(timeout=0.2).wait(ONE)
    assert (answer.state, answer.reason, answer.code) == ("unknown", "the server answered 503", "no-answer")
    age = Headwater(timeout=0.2).age("search")
    assert (age.seconds, age.reason, age.code) == (None, "the server answered 503", "no-answer")


def test_the_client_needs_nothing_but_the_standard_library() -> None:
    extras = {"sqlalchemy.py", "django.py", "psycopg.py"}
    for path in Path(headwater_client.__file__).parent.glob("*.py"):
        names = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        foreign = names - set(sys.stdlib_module_names) - {"headwater_client"}
        assert foreign == ({path.stem} if path.name in extras else set()), path.name


class _Answers(Headwater):
    """Answers as told, without a server."""

    def __init__(self, **states: str) -> None:
        super().__init__(timeout=1)
        self.states = states

    def _ask(self, path: str, body: bytes | None, seconds: float) -> Any:
        state = self.states[json.loads(body or b"{}")["token"]]
        if state == "away":
            raise http.client.IncompleteRead(b"")
        sinks = {} if state == "aborted" else {"search": {"state": state}}
        if state == "beyond":  # of another history: not any sink's
            state, sinks = "unknown", {}
        if state == "half":
            state, sinks = "rejected", {"search": {"state": "rejected"}, "cache": {"state": "timeout"}}
        return {"state": state, "reason": None, "sinks": sinks, "waited_ms": 1.0}


@pytest.mark.parametrize(
    ("states", "state", "settled"),
    [
        ({"a": "aborted", "b": "visible"}, "visible", ("a", "b")),
        ({"a": "aborted", "b": "timeout"}, "timeout", ("a",)),
        ({"a": "aborted"}, "aborted", ("a",)),
        ({"a": "rejected", "b": "visible"}, "rejected", ("a", "b")),
        ({"a": "visible", "b": "unknown", "c": "timeout"}, "unknown", ("a", "b")),
        ({"a": "visible", "b": "away"}, "unknown", ("a",)),
        ({"a": "beyond", "b": "visible"}, "unknown", ("a", "b")),
        ({"a": "half", "b": "visible"}, "rejected", ("b",)),  # the other sink may still show it
    ],
)
def test_of_several_writes_the_worst_counts_and_what_is_settled_is_not_waited_for_again(
    states: dict[str, str], state: str, settled: tuple[str, ...]
) -> None:
    answer = _Answers(**states).wait(list(states))
    assert (answer.state, answer.settled) == (state, settled)


@pytest.mark.parametrize("part", [{"sinks": ["search"]}, {"views": ["product"]}, {"found_by": "id"}])
def test_what_one_read_was_shown_is_waited_for_by_the_others(part: dict[str, Any]) -> None:
    """The search had it, so its token was forgotten; the link on that page led to a cache that had not: a 404."""
    states = {"a": "visible", "b": "rejected", "c": "unknown", "d": "aborted", "e": "beyond", "f": "timeout"}
    assert _Answers(**states).wait(list(states), **part).settled == ("d", "e")


def test_a_coroutine_waits_as_everybody_does_and_keeps_no_other_waiting() -> None:
    begun, free = threading.Event(), threading.Event()

    class Slow(_Answers):
        def _ask(self, path: str, body: bytes | None, seconds: float) -> Any:
            asked.append(json.loads(body or b"{}"))
            begun.set()
            assert free.wait(10), "nothing else was done meanwhile"
            return super()._ask(path, body, seconds)

    async def application() -> Any:
        waiting = asyncio.create_task(Slow(a="visible").wait_async("a", ["search"], found_by="id", timeout=7))
        while not begun.is_set():
            await asyncio.sleep(0)
        free.set()
        return await waiting

    asked: list[Any] = []
    answer = asyncio.run(application())
    assert answer and answer.state == "visible"
    [body] = asked
    assert (body["token"], body["sinks"], body["found_by"]) == ("a", ["search"], "id") and body["timeout_ms"] > 6_000


# -- the cache ---------------------------------------------------------------------------------------------------------

Live = tuple[bytes | None, ...]


class _Pipe:
    def __init__(self, server: _Keys) -> None:
        self.server, self.asked = server, list[str]()

    def get(self, key: str) -> None:
        self.asked.append(key)

    def hmget(self, key: str, fields: Iterable[str]) -> None:
        assert (key, *fields) == ("p:order@live", "generation", "plain", "moving", "cleared")

    def execute(self) -> list[Any]:
        self.server.trips.append(self.asked)
        return [*map(self.server.held.get, self.asked), list(next(self.server.pointers))]


class _Keys:
    """Keys, and what the pointer says at each round trip."""

    def __init__(self, held: dict[str, bytes], pointers: Iterable[Live]) -> None:
        self.held, self.pointers, self.trips, self.scripts = held, iter(pointers), list[list[str]](), 0

    def pipeline(self, transaction: bool) -> _Pipe:
        assert transaction, "the pointer and the documents are of one moment"
        return _Pipe(self)

    def eval(self, *_: Any) -> Any:
        self.scripts += 1
        raise type("NoPermissionError", (Exception,), {})("this user has no permissions to run the 'eval' command")


class RedisCluster(_Keys):
    """Known by its name."""

    def pipeline(self, transaction: bool) -> _Pipe:
        assert not transaction, "a cluster has none over several nodes"
        return _Pipe(self)


class Traced(RedisCluster):
    """As a library for traces makes of it."""


def live(generation: bytes | None = None, plain: bytes | None = None, *moving: bytes) -> Live:
    return (generation, plain, *moving, *[None] * (2 - len(moving)))


HELD = {"p:order:1": b"old", "p:order:2": b"old", "p:order@2:1": b"new", "p:order@2:%7B": b"braces"}


@pytest.mark.parametrize("kind", [RedisCluster, Traced])
@pytest.mark.parametrize(
    ("pointers", "found", "trips"),
    [
        ([live()], {"1": b"old", 2: b"old"}, 1),
        ([live(b"2"), live(b"2")], {"1": b"new", "{": b"braces"}, 2),
    ],
)
def test_a_clusters_documents_are_all_of_one_generation(
    kind: type[RedisCluster], pointers: list[Live], found: dict[Any, bytes], trips: int
) -> None:
    cluster = kind(HELD, [*pointers, pointers[-1]])
    cache = Cache(cluster, "order", "p:")
    assert cache.get_many(["1", 2, "{", "none"]) == found
    assert len(cluster.trips) == trips
    cache.get("1")
    assert len(cluster.trips) == trips + 1, "it goes by what the pointer has said last"


@pytest.mark.parametrize("kind", [RedisCluster, _Keys])
def test_a_pointer_that_never_stands_still_is_told(kind: type[_Keys]) -> None:
    cache = Cache(kind(HELD, (live(b"%d" % (n % 2 + 1)) for n in range(1, 100))), "order", "p:")
    with pytest.raises(RuntimeError, match="p:order@live never stood still"):
        cache.get("1")


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        (live(), {"1": b"old", "2": b"old"}),
        (live(b"2", b"2"), {"1": b"old", "2": b"old"}),
        (live(b"2", b"1"), {"1": b"new"}),
        (live(b"2", b"1", b"2"), {"1": b"new"}),
        (live(b"2", b"1", b"2", b"1"), {"1": b"new", "2": b"old"}),
    ],
    ids=["the first", "in place", "not begun", "moving", "cleared"],
)
def test_who_may_not_eval_is_answered_as_the_script_would(pointer: Live, found: dict[str, bytes]) -> None:
    server = _Keys(HELD, [pointer] * 3)
    cache = Cache(server, "order", "p:")
    assert cache.get_many(["1", "2", "none"]) == found
    before = len(server.trips)
    assert cache.get("1") == found["1"]
    assert (server.scripts, len(server.trips)) == (1, before + 1), "it asks for what it may"


class _Scripts:
    """Answers scripts, each by the next generation."""

    def __init__(self, *generations: Any) -> None:
        self.generations, self.asked = list(generations), list[tuple[Any, ...]]()

    def eval(self, script: str, *arguments: Any) -> list[Any]:
        assert script == FOLLOW.replace("return found", "return {generation, found}")
        self.asked.append(arguments)
        generation, suffixes = self.generations.pop(0), arguments[3:]
        if isinstance(generation, Exception):
            raise generation
        return [generation, [None if suffix == "7" else f"{suffix} of {generation}" for suffix in suffixes]]


def test_documents_of_one_server_take_one_round_trip() -> None:
    server = _Scripts("1")
    assert Cache(server, "order", "p:").get_many(["%", 7]) == {"%": "%25 of 1"}
    assert server.asked == [(1, "p:order@live", "p:order", "%25", "7")]
    assert Cache(server, "order", "p:").get_many([]) == {}


def test_an_error_of_the_server_is_the_callers() -> None:
    with pytest.raises(TimeoutError):
        Cache(_Scripts(TimeoutError()), "order").get("1")


def test_very_many_documents_are_read_in_pieces_of_one_generation() -> None:
    server = _Scripts("1", "1", "2", "2", "2", "2")  # it is promoted before the third piece
    ids = range(1000, 1000 + 2 * PIECE + 1)
    assert Cache(server, "order").get_many(ids) == {n: f"{n} of 2" for n in ids}
    assert [len(asked) - 3 for asked in server.asked] == [PIECE, PIECE, 1] * 2
    with pytest.raises(RuntimeError, match="order@live never stood still"):
        Cache(_Scripts(*"12" * 20), "order").get_many(ids[: PIECE + 1])
