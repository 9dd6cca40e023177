"""Waits for writes: one thread looks for all who wait, so that a hundred cost what one does.

A wait goes through stages: its transaction is committed (or was not), the slot has confirmed it, so that the topics'
ends bound it, the flows of the generation that readers see have applied up to there, and for a search index a refresh
has begun after that and ended. Only then is it answered ``visible``. Whatever can't be known is never answered so.

Docs: docs/decisions/write-tokens.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from cdc.errors import HeadwaterError, TooManyWaits
from cdc.pipeline import Pipeline
from operations.freshness.answers import Answer
from operations.freshness.log import Look, SourceLog
from operations.freshness.marks import Marks
from operations.freshness.note import NOTHING, FlowNote, SinkNote, read_sink_note
from operations.freshness.place import Place, Reach, Seen, look_at
from operations.freshness.refresh import Refresher
from operations.freshness.sights import GOOD_SECONDS, Sights
from operations.freshness.wait import Target, Wait, judge

# Between two looks while somebody waits, or as long as a look takes if that is more; and while somebody has asked how
# old a sink is.
TICK_SECONDS, IDLE_SECONDS = 0.01, 1.0
# Between two tries to reach a server that does not answer.
AWAY_SECONDS = 0.5
# Someone who asked how old a sink is within this time would rather not be told that a database at rest is unknown.
ASKED_SECONDS = 10.0
# `run` notes each second how old everything is: as long as it does, that need not be measured here as well for who does
# not urge. In a database at rest its word is as old as the last heartbeat, which somebody who looks would wonder at.
NOTE_SECONDS = 3.0
# What the thread has seen longer ago, because it sleeps or waits for a server, is not what readers see now.
SEEN_SECONDS = 5.0
# When nobody has asked anything for so long, nobody is asked.
QUIET_SECONDS = 60.0
# Whoever waits holds a place here; more than this is a client that does not stop asking.
MOST_WAITS = 10_000
# The thread is waited for so long at the end. One that a server holds longer ends as the process does.
END_SECONDS = 5.0
# Between two looks at the topics' ends for who waits for what an earlier look could not tell of.
AGAIN_SECONDS = 0.25
_log = logging.getLogger(__name__)


class Letters(Protocol):
    """Whoever tells what was refused (operations/letters/writes.py)."""

    def judge(self, arrived: Sequence[tuple[Wait, str, Target]], source: SourceLog) -> None:
        """End those of the waits, whose write has just been applied by a sink, that were refused there."""


class _Servers:
    """What the thread has open."""

    def __init__(self, pipeline: Pipeline, letters: Letters) -> None:
        self.source, self.refresher, self.letters = SourceLog(pipeline), Refresher(pipeline), letters
        self.places = {sink: Place(pipeline, sink) for sink in pipeline.sinks}

    def close(self) -> None:
        self.refresher.close()
        self.source.close()
        for place in self.places.values():
            place.close()


class Waits:
    """Keeps all who wait on one pipeline. Its thread begins with the first of them.

    Args:
        pipeline: the loaded file.
        letters: tells which writes are dead letters.
    """

    def __init__(self, pipeline: Pipeline, letters: Letters) -> None:
        self.pipeline, self._letters = pipeline, letters
        self.marks = Marks()
        self._open: list[Wait] = []
        self._seen: Mapping[str, Seen] = {}
        self._sights = Sights(pipeline)
        self._asked = self._busy = self._again = self._seen_at = float("-inf")
        self._lock = threading.Lock()
        self._news, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """End all waits, and the thread; not what a silent server owes."""
        self._stop.set()
        self._news.set()
        with self._lock:  # under which it is made and started
            thread = self._thread
        if thread is not None:
            thread.join(END_SECONDS)
        self._sights.close()
        for wait in self._open:
            self.give_up(wait)

    def retire(self) -> None:
        """End once all who wait have their answers."""
        while any(not one.ended.done() for one in self._open) and not self._stop.is_set():
            self._stop.wait(IDLE_SECONDS)
        self.close()

    def begin(self, waits: Sequence[Wait]) -> Sequence[Wait]:
        """Somebody waits from now on; for several writes that are looked for together, so that they share refreshes.

        Raises:
            TooManyWaits: too many do (transient).
        """
        with self._lock:
            self._open = [one for one in self._open if not one.ended.done()]
            if len(self._open) + len(waits) > MOST_WAITS:
                raise TooManyWaits(f"{MOST_WAITS:,} waits are open", fix="wait for fewer at once; try again later")
            self._open += waits
        self._awake()
        return waits

    def give_up(self, wait: Wait) -> Answer:
        """Its time is over: the answer as far as it has come."""
        if not wait.ended.done():
            wait.finish(wait.so_far())
        return wait.ended.result()

    def as_of(
        self, sink: str, views: Collection[str] = (), *, urge: bool = True, within: float = GOOD_SECONDS
    ) -> tuple[float | None, Reach | None]:
        """Up to which moment (epoch seconds) a sink's flows have applied all that was committed; None if not known yet.

        The second is what the newest known moment says of the sink, for why it is not there; None if not known yet.
        While `run` notes how old it is, who does not urge reads that: nobody is asked, and the thread sleeps. Waits for
        no server.

        Args:
            sink: its name.
            views: only these; all if empty.
            urge: touch the heartbeat row of a database at rest, which else seems some seconds old. Not for who asks
                for ever.
            within: what row stores have said is good for so many seconds.
        """
        seen = self._sight(sink)
        # What `run` has noted is as true as what is seen here, and known from the first question on.
        note = read_sink_note(self.pipeline, sink) if seen.hold is None else None
        told = NOTHING if note is None else note.of(seen.generations, views)
        told = told.by(time.time() + NOTE_SECONDS)  # another machine's clock may be ahead by a little
        if not urge and note is not None and _is_news(note, told, time.time()) and seen.well(views):
            there = not told.behind and told.reason is None
            return told.as_of, Reach(there, seen.generations, told.behind or 0, told.reason)
        if urge:
            self._asked = time.monotonic()
        self._awake()
        marks = self.marks
        last = marks.last()
        if last is None:
            return told.as_of, None
        if seen.open(views):
            answered = self._sights.answered(sink, within)
            if answered is None or answered.generations != seen.generations:  # of what readers see no more
                return told.as_of, None
            seen = answered
        newest = marks.newest(lambda entry: seen.reach(entry, views).there)
        # What is still to come was noted before the clock was put back.
        by = time.time() + NOTE_SECONDS
        known = [at for at in (told.as_of, newest) if at is not None and at <= by]
        return max(known, default=None), seen.reach(last, views)

    def _sight(self, sink: str) -> Seen:
        """A sink as the thread has just seen it; while it sleeps, or a server holds it up, from the state folder."""
        seen = self._seen.get(sink)
        if seen is not None and time.monotonic() - self._seen_at < SEEN_SECONDS:
            return seen
        return self._sights.now(sink)

    def fresh(self, sinks: Sequence[str], views: Collection[str], seconds: float, *, search: bool) -> Wait:
        """Wait until what readers see is at most so many seconds old; arguments as ``Wait``.

        Raises:
            TooManyWaits: as ``begin``.
        """
        marks, now = self.marks, time.time()
        mark = marks.since(now - seconds)
        wait = Wait(None, sinks, views, search)
        if mark is not None and mark.at <= now:
            wait.lsn, wait.entry, wait.history = mark.lsn, mark.entry, marks.history
        return self.begin([wait])[0]

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _awake(self) -> None:
        self._busy = time.monotonic()
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="waits", daemon=True)
                self._thread.start()
        self._news.set()

    def _run(self) -> None:
        servers: _Servers | None = None
        while True:
            self._news.clear()
            if self._stop.is_set():  # looked at after that: whoever ends us says so first, and wakes us then
                break
            with self._lock:
                self._open = [one for one in self._open if not one.ended.done()]
                waiting = list(self._open)
            if not waiting and time.monotonic() - self._busy > QUIET_SECONDS:
                self._news.wait()
                continue
            began = time.monotonic()
            try:
                servers = servers or _Servers(self.pipeline, self._letters)
                self._step(waiting, servers)
                pause = max(TICK_SECONDS, time.monotonic() - began)
            except Exception as error:  # also a defect: it must not leave all who come later without an answer
                if not isinstance(error, HeadwaterError):
                    _log.exception("a look for those who wait failed", extra={"pipeline": self.pipeline.name})
                pause = AWAY_SECONDS
                for wait in waiting:
                    wait.stop_at(
                        error.what if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {error}"
                    )
            if waiting:
                self._stop.wait(pause)
            else:
                self._news.wait(max(IDLE_SECONDS, pause))
        if servers is not None:
            servers.close()

    def _step(self, waiting: Sequence[Wait], servers: _Servers) -> None:
        fates = {w.token.value for w in waiting if w.token and w.token.kind == "transaction" and w.lsn is None}
        look = servers.source.look(fates)
        self.marks = self.marks.seen(look)
        for wait in waiting:
            judge(wait, look)
        self._seen = look_at(servers.places)
        self._seen_at = time.monotonic()
        self._bound([wait for wait in waiting if not wait.ended.done()], look, servers.source)
        bound = [wait for wait in waiting if wait.entry is not None and not wait.ended.done()]
        arrived = []
        for wait in bound:
            wait.trouble = None
            for sink, target in wait.targets.items():
                reach = self._seen[sink].reach(wait.entry, wait.views) if wait.entry else None
                if reach is not None and target.follow(reach, servers.refresher, sink, search=wait.search):
                    arrived.append((wait, sink, target))
                if reach is not None and reach.stale and time.monotonic() - self._again > AGAIN_SECONDS:
                    wait.renew()
        servers.letters.judge(arrived, servers.source)
        for wait in bound:
            wait.end_if_done()
        servers.refresher.step()

    def _bound(self, waiting: Sequence[Wait], look: Look, source: SourceLog) -> None:
        """Find the topics' ends for those whose write the slot has confirmed; urge it on for the others."""
        confirmed = look.standing.confirmed_lsn
        early = [wait for wait in waiting if wait.lsn is not None and wait.entry is None]
        if confirmed is None or confirmed > look.standing.insert_lsn:
            for wait in early:
                wait.stop_at(f"slot {self.pipeline.source.slot} is gone, or of another history of the database")
            return
        reached = [wait for wait in early if wait.lsn is not None and wait.lsn <= confirmed]
        if reached or self.marks.wanting(confirmed):
            topics = {topic for seen in self._seen.values() for topic in seen.topics}
            entry = source.entry(confirmed, topics)
            self._again = time.monotonic()
            self.marks.confirm(entry)
            for wait in reached:
                wait.entry = entry
        asked = time.monotonic() - self._asked < ASKED_SECONDS
        if len(reached) < len(early) or (asked and not waiting):
            for wait in early:
                wait.trouble = "Debezium has not brought it to the log yet"
            source.beat()


def _is_news(note: SinkNote, told: FlowNote, now: float) -> bool:
    """Whether `run` is at work on it, and knows all that is asked. Pure."""
    return abs(now - note.at) <= NOTE_SECONDS and told.as_of is not None and told.behind is not None
