"""Asking Headwater's server: is this write visible, and how old is what a sink shows?

A client never raises because the server is slow or away: it answers ``unknown``, and who asked decides whether to read
all the same.
"""

from __future__ import annotations

import asyncio
import contextvars
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from headwater_client.asking import ASKED, Question, opened

# A server that is told to wait so long needs a little longer to say so.
_GRACE_SECONDS = 1.0
# Longer than this the server does not let anybody wait.
_LONGEST_SECONDS = 60.0
# The worst last: an answer for several writes is the worst of theirs.
_STATES = ("visible", "timeout", "rejected", "aborted", "unknown")
# Whatever a server, or what stands in its place, can do to a request.
_TROUBLE = (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException)
# The codes of an outage, and of a process that asks for too much at once, beside those of errors.
NO_ANSWER, IN_LINE = "no-answer", "in-line"
# The codes of a server that does not know of several writes in one question, or can't read one of them: each is asked
# for by itself then, as what is wrong with one says nothing of the others.
_ONE_BY_ONE = ("config", "bad-token")
# Coroutines' waits at once.
_AT_ONCE = 64
DEFAULT_URL = "http://127.0.0.1:8470"


@dataclass(frozen=True)
class Answer:
    """Whether readers can see a write.

    Attributes:
        state: ``visible``; ``timeout``: not yet; ``rejected``: a sink will never take it; ``aborted``: it was rolled
            back; ``unknown``: nobody can know (another history of the database, a server that does not answer).
        reason: in words, where there is one.
        sinks: sink -> what the server says of it.
        seconds: how long it took.
        settled: tokens that no read need wait for any more, whatever it reads: what was rolled back, what nobody can
            know of, and what all sinks have shown, or never will. Only who waits for all of them (no ``sinks``, no
            ``views``, not ``found_by`` id) is told of the last: what a search shows may still be missing in a cache.
        code: of an ``unknown`` that the server has refused to answer, its error's (docs/errors.md: ``bad-token``,
            ``unknown-name``); ``no-answer`` where there was none; ``in-line`` where too many waits of this process
            stood before it, and nobody was asked. A mistake of ours is told from an outage by it.
    """

    state: str
    reason: str | None = None
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0
    settled: Sequence[str] = ()
    code: str | None = None

    def __bool__(self) -> bool:
        """Whether it is visible."""
        return self.state == "visible"


@dataclass(frozen=True)
class Age:
    """How old what a sink's readers see is.

    Attributes:
        seconds: everything that was committed so long ago is there; None if not known.
        as_of: the same as epoch seconds.
        reason: what keeps it, if something does.
        code: as of an ``Answer``.
    """

    seconds: float | None
    as_of: float | None
    reason: str | None = None
    code: str | None = None


class Headwater:
    """A server of ``headwater serve``. May be shared by threads.

    Args:
        url: where it listens.
        pipeline: which of its pipelines; may be left out if it has one.
        token: the secret of HEADWATER_READ_TOKEN, if it wants one.
        timeout: seconds to wait for a write, where nothing else is said.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, pipeline: str | None = None, token: str | None = None, timeout: float = 2.0
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no address of a server: http://host:port")
        self.url, self.pipeline, self.timeout = url.rstrip("/"), pipeline, timeout
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def wait(
        self,
        token: str | Sequence[str] | None,
        sinks: Sequence[str] = (),
        *,
        views: Sequence[str] = (),
        found_by: str = "search",
        timeout: float | None = None,
    ) -> Answer:
        """Wait until readers can see a write.

        Args:
            token: of the write, or of several; without any there is nothing to wait for, which is ``visible``.
            sinks: these; if empty all but those that were saved and not applied, and never had anything.
            views: only these of their views; all if empty.
            found_by: ``search``, or ``id``: a look-up by id finds a document earlier.
            timeout: seconds, at most a minute; 0 asks whether it is visible now. A server that is silent is waited for
                a second longer.
        """
        began = time.monotonic()
        asked = {"sinks": [*sinks], "views": [*views], "found_by": found_by}
        whole = not sinks and not views and found_by == "search"
        tokens = _tokens(token)
        told = self._wait_all(tokens, asked, began + self._seconds(timeout))
        settled = [
            one for one, (answer, ours) in zip(tokens, told, strict=False) if ours and _ended(answer, whole=whole)
        ]
        answers = [answer for answer, _ in told]
        # What was rolled back is nothing to wait for, unless it is all there is.
        counted = [answer for answer in answers if answer.state != "aborted"] or answers or [Answer("visible")]
        worst = max(
            counted, key=lambda answer: _STATES.index(answer.state) if answer.state in _STATES else len(_STATES)
        )
        return replace(worst, seconds=time.monotonic() - began, settled=tuple(settled))

    def wait_for_age(
        self,
        seconds: float,
        sinks: Sequence[str] = (),
        *,
        views: Sequence[str] = (),
        found_by: str = "search",
        timeout: float | None = None,
    ) -> Answer:
        """Wait until what readers see is at most so old; arguments as ``wait``."""
        until = time.monotonic() + self._seconds(timeout)
        age = {"max_staleness_ms": int(seconds * 1000)}
        return self._wait({**age, "sinks": [*sinks], "views": [*views], "found_by": found_by}, until)[0][0]

    async def wait_async(
        self, token: str | Sequence[str] | None, sinks: Sequence[str] = (), *, timeout: float | None = None, **more: Any
    ) -> Answer:
        """As ``wait``, for coroutines: another thread waits. Answered in time also where none is free.

        Who is cancelled, or whose time is used up, gives the thread back: the question is ended, and no end of the
        process waits for it.
        """
        if not _tokens(token):
            return self.wait(token, sinks, **more)
        began, seconds, asked = time.monotonic(), self._seconds(timeout), False

        def wait() -> Answer:
            nonlocal asked
            left = began + seconds - time.monotonic()
            if left + _GRACE_SECONDS <= 0:  # whoever stood before has just been given up, too
                return _in_line()
            asked = True
            return self.wait(token, sinks, timeout=left, **more)

        question = Question()
        context = contextvars.copy_context()  # as `asyncio.to_thread` does: whoever traces requests looks there
        context.run(ASKED.set, question)
        waiting = asyncio.wrap_future(_threads(os.getpid()).submit(context.run, wait))
        try:
            await asyncio.wait({waiting}, timeout=seconds + _GRACE_SECONDS)
            answer = waiting.result() if waiting.done() else _silent() if asked else _in_line()
        finally:  # nobody waits any more: it was answered or cancelled, or the time is used up
            question.end()
            waiting.cancel()  # one that has not begun need not any more
        return replace(answer, seconds=time.monotonic() - began)

    def age(self, sink: str) -> Age:
        """How old what a sink's readers see is."""
        try:
            found = self._ask(f"/v1/sinks/{quote(sink, safe='')}/freshness", None, self.timeout + _GRACE_SECONDS)
            return Age(found["staleness_seconds"], found["as_of"], found["reason"])
        except _TROUBLE as error:
            return Age(None, None, *_words(error))

    def _seconds(self, timeout: float | None) -> float:
        return min(max(self.timeout if timeout is None else timeout, 0.0), _LONGEST_SECONDS)

    def _wait_all(self, tokens: Sequence[str], asked: Mapping[str, Any], until: float) -> Sequence[tuple[Answer, bool]]:
        """For each write the answer, and whether it is the server's: of all in one question, so that they wait at once.

        Args:
            tokens: of the writes.
            asked: what else is asked.
            until: when the time is used up, of ``time.monotonic``.
        """
        told: Sequence[tuple[Answer, bool]] = ()
        if len(tokens) > 1:
            told = self._wait({"token": tokens[0], "tokens": [*tokens[1:]], **asked}, until)
            answer, ours = told[0]
            if answer.code in _ONE_BY_ONE:
                told = ()
            elif not ours:
                return [(answer, ours)] * len(tokens)
        # One answer for several is of an old server, which heeds `token` alone.
        return [*told, *(self._wait({"token": one, **asked}, until)[0] for one in tokens[len(told) :])]

    def _wait(self, asked: Mapping[str, Any], until: float) -> Sequence[tuple[Answer, bool]]:
        """The answers, one for each write that was asked for, and whether they are the server's."""
        left = until - time.monotonic()
        if left + _GRACE_SECONDS <= 0:
            return [(_silent(), False)]
        body = {**asked, "timeout_ms": int(max(left, 0.0) * 1000)}
        try:
            found = self._ask("/v1/wait", json.dumps(body).encode(), left + _GRACE_SECONDS)
            each = found.get("writes") or [found]
            return [(Answer(one["state"], one["reason"], one["sinks"], one["waited_ms"] / 1000), True) for one in each]
        except _TROUBLE as error:
            reason, code = _words(error)
            return [(Answer("unknown", reason, code=code), False)]

    def _ask(self, path: str, body: bytes | None, seconds: float) -> Any:
        query = f"?{urlencode({'pipeline': self.pipeline})}" if self.pipeline else ""
        request = urllib.request.Request(self.url + path + query, body, self._headers)  # noqa: S310 - checked above
        with opened(request, seconds) as response:
            return json.loads(response.read())


def _tokens(token: str | Sequence[str] | None) -> Sequence[str]:
    if token is None:
        return ()
    return (token,) if isinstance(token, str) else token


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    """Where coroutines' waits wait: what else an application has threads do is not held up. Those of a process are not
    there in one that was forked from it."""
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headwater-wait")


def _silent() -> Answer:
    return Answer("unknown", "no answer: the time is used up", code=NO_ANSWER)


def _in_line() -> Answer:
    """No outage of the server: it was never asked."""
    return Answer("unknown", f"not asked: {_AT_ONCE} waits of this process stand before it", code=IN_LINE)


def _ended(answer: Answer, *, whole: bool) -> bool:
    """Whether there is nothing more to wait for in any sink.

    Args:
        answer: the server's, of one write.
        whole: whether all was waited for that can be.
    """
    fate = answer.state in ("aborted", "unknown") and not answer.sinks  # of the write itself, wherever it is looked for
    states = {answer.state, *(one.get("state") for one in answer.sinks.values())}
    return fate or (whole and "timeout" not in states)


def _words(error: Exception) -> tuple[str, str]:
    """What a server said, or why it said nothing; and the code of that."""
    if isinstance(error, urllib.error.HTTPError):
        try:
            said = json.loads(error.read())["error"]
            return str(said["what"]), str(said["code"])
        except _TROUBLE:  # no words of ours, or they broke off
            return f"the server answered {error.code}", NO_ANSWER
    return f"no answer: {error}", NO_ANSWER
