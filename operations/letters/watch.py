"""Clears, while sinks run, the letters of keys that were mended since; and counts those that stand.

Beside the flows, never on their way: one read of what has come into the letters' topic, and one look-up in the sink for
each thousand letters, every few seconds; nothing of the kind where there are no letters. Tables are asked more seldom,
by ``operations.letters.tables``, and nobody waits for them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol

from cdc.errors import HeadwaterError, NewerFormat, StateError
from cdc.letters.book import Book, Logged
from cdc.log.letter_log import LetterLog
from cdc.pipeline import Pipeline
from cdc.repeating import Final, Repeating
from operations.letters.judge import judge
from operations.letters.tables import Given, TableLetters, asks_tables
from operations.opened import Opened
from operations.state.folder import register_of
from operations.state.letters import note_count

log = logging.getLogger(__name__)

# A letter that heals should be gone before somebody has looked twice.
LOOK_SECONDS = 5.0
# Letters that are remembered: some 50 MB. What is more is only counted, and waits until these are cleared.
MOST = 50_000
# Looked at in one turn, so that a sink whose letters are many is not kept busy by them.
TURN = 2_000
DAY_SECONDS = 86_400


class Running(Protocol):
    """What runs: ``operations.run.engine.Engine``."""

    @property
    def pipeline(self) -> Pipeline: ...  # noqa: D102
    @property
    def builds(self) -> Sequence[Opened]: ...  # noqa: D102
    @property
    def paused(self) -> Mapping[str, object]: ...  # noqa: D102


class LetterWatch:
    """A context manager: at work from its beginning to its end.

    Args:
        running: whose letters; it may change meanwhile.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._log: LetterLog | None = None
        self._looked: dict[bytes, float] = {}
        self._tables = TableLetters()
        self._watching = Repeating("letter watch", self._watch, LOOK_SECONDS)

    def __enter__(self) -> LetterWatch:
        self._watching.start()
        self._tables.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.stop()
        self._tables.stop()

    def _watch(self) -> None:
        try:
            self.look()
        except NewerFormat as error:
            log.warning("dead letters are not cleared: %s", error.what)
            raise Final from error
        except (HeadwaterError, OSError) as error:
            log.debug("dead letters could not be looked at: %s", error)

    def look(self) -> int:
        """Look once; how many letters were cleared.

        Raises:
            HeadwaterError: a server does not answer; what was not cleared still stands.
        """
        pipeline, paused = self._running.pipeline, self._running.paused
        builds = {(build.sink, build.number): build for build in list(self._running.builds)}
        builds = {which: build for which, build in builds.items() if which[0] not in paused}
        letters = self._follow(pipeline)
        living = {sink: register_of(pipeline, sink).living() for sink, _ in builds}
        mine = self._mine(pipeline, letters.book, builds, living)
        tabled = self._of_tables(mine, builds, living)
        chosen = self._turn({key: logged for key, logged in mine.items() if key not in tabled})

        def open_build(sink: str, number: int) -> Opened:
            if (sink, number) not in builds:
                raise StateError(f"sink {sink}: generation {number} is not run here")
            return builds[sink, number]

        healed = {key: chosen[key].at for key in judge(pipeline, chosen, open_build).healed}
        healed |= self._tables.give(Given(pipeline, tabled, builds, living))
        letters.clear(healed)
        self._note(pipeline, letters.book, living)
        return len(healed)

    def _note(self, pipeline: Pipeline, book: Book, living: Mapping[str, int]) -> None:
        counted = book.counted()
        for sink, number in living.items():
            standing: Counter[int] = Counter()
            for (of, generation), count in counted.items():
                if of == sink:
                    standing[generation or number] += count
            more = {generation or number for of, generation in book.uncounted if of == sink}
            note_count(pipeline, sink, standing, more=more)

    def _follow(self, pipeline: Pipeline) -> LetterLog:
        """The letters as they are now."""
        if self._log is None or self._log.pipeline is not pipeline:
            self._log = LetterLog(pipeline, MOST)
        book = self._log.follow()
        if book.beyond_from is not None and len(book) < MOST // 2:
            book = self._log.again()
        self._log.write_covered_again()
        kept = (pipeline.policy.dead_letters.keep_days + 1) * DAY_SECONDS
        book.forget_before(int((time.time() - kept) * 1000))
        return self._log

    def _mine(
        self,
        pipeline: Pipeline,
        book: Book,
        builds: Mapping[tuple[str, int], Opened],
        living: Mapping[str, int],
    ) -> dict[bytes, Logged]:
        """Letters of what runs here, and of generations that are gone; those of one that is filled are its filler's."""
        there = {sink: {entry.number for entry in register_of(pipeline, sink).entries()} for sink in living}
        found = {}
        for key, logged in book:
            sink = logged.letter.sink
            if sink in living:
                number = logged.letter.generation or living[sink]
                if (sink, number) in builds or number not in there[sink]:
                    found[key] = logged
        return found

    def _of_tables(
        self, mine: Mapping[bytes, Logged], builds: Mapping[tuple[str, int], Opened], living: Mapping[str, int]
    ) -> dict[bytes, Logged]:
        """Letters that tables are asked about."""
        found = {}
        for key, logged in mine.items():
            build = builds.get((logged.letter.sink, logged.letter.generation or living[logged.letter.sink]))
            if build is not None and asks_tables(build, logged.letter):
                found[key] = logged
        return found

    def _turn(self, mine: Mapping[bytes, Logged]) -> dict[bytes, Logged]:
        """Those that were not looked at for the longest."""
        self._looked = {key: at for key, at in self._looked.items() if key in mine}
        keys = sorted(mine, key=lambda key: self._looked.get(key, 0.0))[:TURN]
        self._looked |= dict.fromkeys(keys, time.monotonic())
        return {key: mine[key] for key in keys}
