"""Watches, while sinks run, the WAL that the slot keeps; tells when it is too much, and gives it up if so told."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from cdc.errors import DiskFull, HeadwaterError, SlotLost, SourceError
from cdc.pipeline import Pipeline
from cdc.records.position import format_lsn
from connectors.gaps.lost_offset import READ_AGAIN
from connectors.gaps.source_gaps import FIRST_AGAIN
from connectors.postgres import ANSWER_SECONDS, Connection, connect, within
from connectors.wal.budget import NONE, RANK, Budget
from connectors.wal.look import Look, look
from connectors.wal.release import Released, in_first_snapshot, release
from operations.state.wal import judged, note_release, read_release, read_window, release_words, write_window

# One look over the limit may be a bulk load that the connector is about to have read; as many as these, one after the
# other, are not.
LOOKS_BEFORE_RELEASE = 3


class WalWatch:
    """What the slot keeps, as a runner sees it.

    Attributes:
        budget: the last judgement; None before the first.

    Args:
        pipeline: the loaded file.
        check: raises when the log can't be continued; asked once the slot was given up, for the way out.
    """

    def __init__(self, pipeline: Pipeline, check: Callable[[], None]) -> None:
        self.pipeline, self.check = pipeline, check
        self.budget: Budget | None = None
        self._told, self._over, self._refused = NONE, 0, ""
        self._connection: Connection | None = None

    def look(self) -> list[str]:
        """Look once, remember it, and do what the policy says; lines that are new.

        Raises:
            SlotLost: the slot was given up (terminal).
        """
        seen = self._look()
        if seen is None:
            return []
        if seen.slot is not None:
            note_release(self.pipeline, None)
        window = read_window(self.pipeline)
        before = self.budget.level if self.budget else None
        self.budget = judged(self.pipeline, seen, window, before)
        said = self._say()
        self._over = self._over + 1 if self.budget.level == "over" else 0
        if self._over >= LOOKS_BEFORE_RELEASE and self.pipeline.policy.wal_at_limit == "release":
            said += self._release(seen, self.budget)
        with suppress(OSError, DiskFull):  # for a forecast, and who asks later; what there is to say is not lost for it
            write_window(self.pipeline, window.with_look(seen, time.time()), self.budget)
        return said

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self) -> Look | None:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self.pipeline.source)
            with within(self._connection, ANSWER_SECONDS):
                return look(self._connection, self.pipeline.source.slot)
        except (SourceError, psycopg.Error):  # down: the sinks go on with what the log holds
            self.close()
            return None

    def _say(self) -> list[str]:
        """A line when the level is another one."""
        budget, told = self.budget, self._told
        if budget is None or budget.level is None or budget.level == told:
            return []
        self._told = budget.level
        text = budget.words(self.pipeline.source.slot)
        if RANK[budget.level] < RANK[told]:
            return [f"{text}: less than before" if budget.level != NONE else f"{text}: well again"]
        return ["; ".join([f"{'warning' if budget.level == 'warn' else 'alarm'}: {text}", *budget.held[:1]])]

    def _release(self, seen: Look, budget: Budget) -> list[str]:
        """Give the slot up.

        Raises:
            SlotLost: it is gone (terminal).
        """
        assert seen.slot is not None
        note = Released(
            self.pipeline.source.slot,
            time.time(),
            budget.retained_bytes or 0,
            budget.full_bytes,
            seen.slot.confirmed_lsn,
        )
        # Noted first: killed in between, the reason is known, and a slot that is still there takes the note away.
        with suppress(OSError, DiskFull):  # the database's disk is worth more than the reason
            note_release(self.pipeline, note)
        try:
            gone = release(self.pipeline, budget.full_bytes)
        except HeadwaterError as error:
            note_release(self.pipeline, None)
            new, self._refused = error.what != self._refused, error.what
            return [f"alarm: the slot could not be given up, and is tried again: {error.what}"] if new else []
        if not gone:
            note_release(self.pipeline, None)
            return []
        raise given_up(note, self._way_out())

    def _way_out(self) -> str:
        """The command that mends it: by how far the connector had got, if that can be asked."""
        try:
            self.check()
        except SlotLost as error:
            return error.fix
        except HeadwaterError:
            return READ_AGAIN
        return FIRST_AGAIN if in_first_snapshot(self.pipeline) else READ_AGAIN


def given_up(released: Released, fix: str) -> SlotLost:
    """The error for a slot that the policy had dropped."""
    confirmed = released.confirmed_lsn
    after = "what had not been read" if confirmed is None else f"what was committed after {format_lsn(confirmed)}"
    return SlotLost(
        f"{release_words(released)} (policy.wal_at_limit: release)",
        means=f"{after} can't be read from the log; the sinks stay as they are until every table is read again",
        fix=fix,
    )


def with_reason(pipeline: Pipeline, error: SlotLost) -> SlotLost:
    """The same error; with the reason, if the slot is gone because it was given up."""
    released = read_release(pipeline)
    return error if released is None else given_up(released, error.fix)
