"""Whether a write that was applied was refused: a dead letter of its transaction stands.

A letter is sent before its batch ends, so it is there when the batch is applied. One that tells of which transaction it
is answers for its write; one that does not (a joined document has no one transaction, a token that was taken after the
COMMIT names none) leaves open whose it is: while it is fresh, nothing is promised.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline
from cdc.token import WriteToken
from operations.freshness.answers import State
from operations.freshness.log import SourceLog
from operations.freshness.wait import Target, Wait
from operations.letters.waiting import XID, RejectedWrites

# A token is kept for so long (client/headwater_client/session.py): a letter that is older is of an earlier write.
FRESH_SECONDS = 600.0


class WriteLetters:
    """Asks for all whose write has just been applied; used by one thread.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._writes: RejectedWrites | None = None
        self._end = -1

    def judge(self, arrived: Sequence[tuple[Wait, str, Target]], source: SourceLog) -> None:
        """End those whose write was refused, or may have been.

        Raises:
            HeadwaterError: the letters, or what they tell of, can't be read; those concerned are asked for again.
        """
        if not arrived:
            return
        try:
            self._judge(arrived, source)
        except Exception:  # whatever it was: who was not judged is not to be taken for judged
            for _, _, target in arrived:
                target.tickets = {}  # it arrives once more
            raise

    def _judge(self, arrived: Sequence[tuple[Wait, str, Target]], source: SourceLog) -> None:
        end = source.letters_end()
        if end == 0:
            return
        self._writes = self._writes or RejectedWrites(self.pipeline)
        follow = end != self._end
        for sink in sorted({sink for _, sink, _ in arrived}):
            ours = [(wait.token, target) for wait, other, target in arrived if other == sink]
            shown = {number for _, target in ours for number in target.tickets}
            told = self._writes.told(sink, shown, follow=follow)
            follow = False
            for token, target in ours:
                target.verdict = verdict(token, told, time.time())
        self._end = end  # only now: what could not be read is still to be read


def verdict(
    token: WriteToken | None, told: Sequence[tuple[DeadLetter, int | None]], now: float
) -> tuple[State, str] | None:
    """What the letters of a sink say of a write; None if it was not refused. Pure.

    Args:
        token: of the write; None for who asks of no certain one.
        told: letters, each with its transaction or None.
        now: epoch seconds.
    """
    if token is None:
        return None
    fresh = [(letter, of) for letter, of in told if now - letter.at_ms / 1000 < FRESH_SECONDS]
    if token.kind == "lsn":
        return ("unknown", f"this may be of the write: {_words([letter for letter, _ in fresh])}") if fresh else None
    mine = [letter for letter, of in told if of is not None and of & XID == token.value & XID]
    if mine:
        return "rejected", _words(mine)
    untold = [letter for letter, of in fresh if of is None]
    return ("unknown", f"this may be of the write: {_words(untold)}") if untold else None


def _words(letters: Sequence[DeadLetter]) -> str:
    first, more = letters[0], len(letters) - 1
    others = f", and {more:,} more" if more else ""
    return f"{first.view} {first.key}{others} is a dead letter: `headwater letters show` tells why"
