"""Whether letters of a warehouse stand, asked beside who clears the others.

A table answers by being read: for keys in no order of its files (uuid, text) all of it. So it is asked seldom, only
where it is not as it was, and in a thread of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from cdc.errors import HeadwaterError
from cdc.letters.book import Logged
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline
from cdc.repeating import Repeating
from operations.holding import holding
from operations.letters.judge import judge
from operations.opened import Opened
from sinks.iceberg.target import IcebergTarget

log = logging.getLogger(__name__)

# From the end of one look to the next. One letter may stand for its thirty days (a warehouse remembers no deletes): a
# table of 500 million rows that is read for it every few seconds leaves `run` no processor, and a bucket's bill no end.
TABLE_SECONDS = 300.0
# Whether there is something to ask about is looked at so often.
WAKE_SECONDS = 5.0
# Asked about in one look; `judge` reads a table once for each thousand.
TURN = 2_000

Builds = Mapping[tuple[str, int], Opened]
# The states of the tables that a letter's answer is in.
Marks = tuple[int | None, ...]


class Given(NamedTuple):
    """What is to be asked about: letters by record key, each of one of the builds."""

    pipeline: Pipeline
    letters: Mapping[bytes, Logged]
    builds: Builds
    living: Mapping[str, int]


class _Asked(NamedTuple):
    """A letter when it was asked about last."""

    at: int
    marks: Marks
    turn: int


class TableLetters:
    """Asks tables about their letters again and again, once it is started.

    Args:
        seconds: see ``TABLE_SECONDS``.
    """

    def __init__(self, seconds: float = TABLE_SECONDS) -> None:
        self._seconds, self._due, self._turn = seconds, 0.0, 0
        self._given: Given | None = None
        self._asked: dict[bytes, _Asked] = {}
        # Replaced as a whole, by the one thread that looks: who reads it needs no lock. What was found stays until its
        # letter is gone: Kafka may not take the tombstone.
        self._healed: dict[bytes, int] = {}
        self._looking = Repeating("letters of tables", self.look, WAKE_SECONDS)
        self.start, self.stop = self._looking.start, self._looking.stop

    def give(self, given: Given) -> dict[bytes, int]:
        """Say which letters there are now; those of them that were found healed: record key -> the letter's offset."""
        self._given = given
        letters = given.letters
        return {key: at for key, at in self._healed.items() if key in letters and letters[key].at == at}

    def look(self) -> None:
        """Ask about what was given last, if it is time."""
        given = self._given
        if given is None or time.monotonic() < self._due:
            return
        letters = given.letters
        self._asked = {key: asked for key, asked in self._asked.items() if key in letters}
        healed = {key: at for key, at in self._healed.items() if key in letters and letters[key].at == at}
        try:
            marks = self._marks(given)
            chosen = self._chosen({key: letters[key] for key in marks if key not in healed}, marks)
            if not chosen:
                return
            self._turn += 1
            judged = judge(given.pipeline, chosen, lambda sink, number: given.builds[sink, number])
            self._healed = healed | {key: chosen[key].at for key in judged.healed}
            for key, logged in chosen.items():
                if logged.letter.sink not in judged.unasked:
                    self._asked[key] = _Asked(logged.at, marks[key], self._turn)
            for sink, reason in judged.unasked.items():
                log.debug("sink %s could not be asked about its dead letters: %s", sink, reason)
        finally:  # one that fails late has read as much
            self._due = time.monotonic() + self._seconds if letters else 0.0

    def _chosen(self, letters: Mapping[bytes, Logged], marks: Mapping[bytes, Marks]) -> dict[bytes, Logged]:
        """Those that were never asked about as they and their tables are now; the longest ago first."""
        known = self._asked
        due = [key for key, one in letters.items() if key not in known or known[key][:2] != (one.at, marks[key])]
        due.sort(key=lambda key: known[key].turn if key in known else 0)
        return {key: letters[key] for key in due[:TURN]}

    def _marks(self, given: Given) -> dict[bytes, Marks]:
        """The states of each letter's tables; letters whose tables do not tell theirs are left out."""
        found: dict[bytes, Marks] = {}
        states: dict[tuple[str, int], dict[str, int | None]] = {}
        for key, logged in given.letters.items():
            which = (logged.letter.sink, logged.letter.generation or given.living[logged.letter.sink])
            known = states.setdefault(which, {})
            try:
                found[key] = _marks_of(given.builds[which], logged.letter, known)
            except HeadwaterError as error:
                log.debug("the table of dead letter %s could not be looked at: %s", logged.letter.view, error)
        return found


def asks_tables(build: Opened, letter: DeadLetter) -> bool:
    """Whether a letter's answer is in tables; a child's is in the row store."""
    return build.warehouse and (letter.table is None or not letter.view)


def _marks_of(build: Opened, letter: DeadLetter, known: dict[str, int | None]) -> Marks:
    named = [view for view in build.views if view.name == letter.view]
    marks = []
    for view in named if letter.view else build.views_of(str(letter.table)):
        if view.name not in known:
            with holding(build, view) as held:
                assert isinstance(held.target, IcebergTarget), "tables are in warehouses"
                known[view.name] = held.target.snapshot(view.name)
        marks.append(known[view.name])
    return tuple(marks)
