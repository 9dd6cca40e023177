"""Matchers beside the flows of ``headwater run``: a thread for each view on which queries stand."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from operations.push.source import TROUBLES, told
from operations.standing.matcher import FIRST, Matcher
from operations.standing.note import MatcherNote
from operations.standing.place import Caching, Searching, StandingPlace, standing_place
from operations.standing.registered import ServerSearches
from sinks.redis.read import Moving

log = logging.getLogger(__name__)

# Between two looks at which views there are to be matched, and where.
LOOK_SECONDS = 1.0
# After a failure.
PAUSE_SECONDS = 1.0
NOTE_SECONDS = 2.0
# How long the end of a process waits for them: a request to a server may take longer, and is not waited for.
END_SECONDS = 2.0


class Running(Protocol):
    """What runs: ``operations.run.engine.Engine``."""

    @property
    def pipeline(self) -> Pipeline: ...  # noqa: D102
    @property
    def only(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def paused(self) -> Mapping[str, object]: ...  # noqa: D102


class ViewMatcher:
    """One view's thread.

    Args:
        pipeline: the loaded file.
        view: the view's name.
    """

    def __init__(self, pipeline: Pipeline, view: str) -> None:
        self._pipeline, self._view = pipeline, view
        self._stop = threading.Event()
        self._said, self._noted = "", 0.0
        self._before, self._batch = MatcherNote(), FIRST
        self._thread = threading.Thread(target=self._run, name=f"standing queries of {view}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let it end, soon. Idempotent."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait for its end, but not for longer."""
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._match()
            except HeadwaterError as error:
                # A promotion passes by itself, and is nobody's trouble.
                self._tell(error.what, logging.INFO if isinstance(error.__cause__, Moving) else logging.WARNING)
            except Exception:  # a matcher that has died would be noticed by nobody
                log.exception("standing queries of %s are not judged", self._view)
                self._note(self._before, "a defect: the log has it")
            self._stop.wait(PAUSE_SECONDS)

    def _match(self) -> None:
        """Until it is to end, or readers see another place; each failure is told, and begun anew."""
        place = standing_place(self._pipeline, self._view)
        try:
            self._match_at(place)
        except TROUBLES as error:
            raise told(error, place) from error

    def _match_at(self, place: StandingPlace) -> None:
        looked = time.monotonic()
        cache, search = Caching(place), Searching(place)
        matcher = Matcher(ServerSearches(search), cache.tail, cache.matches, self._batch)

        def note() -> MatcherNote:
            saved = self._pipeline.queries[self._view].saved
            return _note_of(matcher, self._before, 0 if saved is None else len(cache.refusals(saved.view)))

        newest = self._before
        try:
            while not self._stop.is_set():
                matcher.step()
                if self._said:
                    log.info("standing queries of %s are judged again", self._view)
                    self._said = ""
                if time.monotonic() - self._noted > NOTE_SECONDS:
                    newest = note()
                    self._note(newest, None)
                if time.monotonic() - looked > LOOK_SECONDS:
                    # A promotion may lead to another index or other keys: who asks or follows is there by now.
                    looked = time.monotonic()
                    if standing_place(self._pipeline, self._view) != place:
                        break
            self._note(note(), None)
        finally:
            self._before, self._batch = _counted(matcher, self._before, newest), matcher.batch
            search.close()
            cache.close()

    def _tell(self, why: str, level: int) -> None:
        self._note(self._before, why)
        if why != self._said:
            self._said = why
            log.log(level, "standing queries of %s are not judged: %s", self._view, why)

    def _note(self, note: MatcherNote, error: str | None) -> None:
        self._noted = time.monotonic()
        try:
            replace(note, error=error, at=time.time()).write(self._pipeline, self._view)
        except (OSError, HeadwaterError) as problem:
            log.debug("what the matcher of %s does could not be noted: %s", self._view, problem)


def _counted(matcher: Matcher, before: MatcherNote, newest: MatcherNote) -> MatcherNote:
    """All that was counted since the process began, and how many queries stood by the newest note. How late they are
    judged is not known until a matcher goes on."""
    documents, told = before.documents + matcher.documents, before.told + matcher.told
    return replace(newest, documents=documents, told=told, unread=before.unread + matcher.unread, lag_seconds=None)


def _note_of(matcher: Matcher, before: MatcherNote, no_queries: int) -> MatcherNote:
    return replace(
        _counted(matcher, before, before),
        lag_seconds=matcher.lag_seconds,
        queries=matcher.queries,
        pending=matcher.pending,
        refused=matcher.refused + no_queries,
    )


@contextmanager
def matching(running: Running) -> Iterator[None]:
    """While it lasts, standing queries are judged; the flows neither wait for it nor fail with it.

    Args:
        running: what runs; its file may change meanwhile.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_keep, args=(running, ended), name="standing queries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_SECONDS)


def _keep(running: Running, ended: threading.Event) -> None:
    """A thread for each view that is to be matched here, made anew when the file says something else of it."""
    at_work: dict[str, tuple[Pipeline, ViewMatcher]] = {}
    while not ended.is_set():
        pipeline = running.pipeline
        wanted = _mine(running)
        for view, (made_of, matcher) in list(at_work.items()):
            if view not in wanted or made_of is not pipeline:
                matcher.stop()
                del at_work[view]
        for view in wanted - at_work.keys():
            at_work[view] = pipeline, ViewMatcher(pipeline, view)
        ended.wait(LOOK_SECONDS)
    until = time.monotonic() + END_SECONDS / 2
    for _, matcher in at_work.values():
        matcher.stop()
    for _, matcher in at_work.values():
        matcher.join(until - time.monotonic())


def _mine(running: Running) -> set[str]:
    """Views whose changes are made here."""
    parts = running.pipeline.queries.items()
    return {
        view
        for view, part in parts
        if part.changes not in running.paused and (not running.only or part.changes in running.only)
    }
