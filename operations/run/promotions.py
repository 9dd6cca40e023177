"""Promotions that were cut, as their process died: ended by whoever runs the pipeline, since writers wait for it."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from cdc.errors import HeadwaterError
from cdc.journal import Line, all_about, telling
from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.child_process import Apart, Start, end_all
from operations.generations.carrying import carry_left
from operations.generations.promote import LEVEL_SECONDS, promote
from operations.state.folder import register_of

# A process that has waited for so long beyond its time is dead.
PAUSE_SECONDS = 15.0
# A promotion takes some twenty seconds for a million keys; one that takes longer than this was killed.
PROMOTION_SECONDS = 120.0
# After an attempt to end one that came to nothing.
AGAIN_SECONDS = 30.0


class Promotions:
    """Ends those that are cut while this process runs, each in a process of its own: the keys of a large cache take
    minutes, and whoever follows the register has to supervise all flows, and to heed a stop, meanwhile.

    Args:
        start: begins work in a process of its own.
    """

    def __init__(self, start: Start = Apart) -> None:
        self._start = start
        self._ending: dict[str, tuple[int, Apart[Any]]] = {}
        self._due: dict[str, float] = {}  # on the monotonic clock

    @property
    def busy(self) -> bool:
        """Whether one is being ended."""
        return bool(self._ending)

    def follow(self, pipeline: Pipeline, sinks: Collection[str]) -> list[str]:
        """Look and act once, and wait for nothing; what was done, a line each.

        Args:
            pipeline: the loaded file.
            sinks: that are not to be left alone.
        """
        said: list[str] = []
        for sink, (number, child) in list(self._ending.items()):
            ended = child.ended()
            said += all_about(child.lines(), sink=sink, generation=number)
            if ended:
                del self._ending[sink]
                said += all_about(self._ended(sink, number, child), sink=sink, generation=number)
        for sink in sinks:
            _give_up(pipeline, sink, PROMOTION_SECONDS, said.append)
            cut = register_of(pipeline, sink).cut_promotion(PROMOTION_SECONDS)
            if cut is not None and sink not in self._ending and time.monotonic() >= self._due.get(sink, 0.0):
                self._ending[sink] = cut, self._start(end_promotion, pipeline, sink, cut)
        return said

    def _ended(self, sink: str, number: int, child: Apart[Any]) -> list[str]:
        try:
            child.result()
        except HeadwaterError as error:
            self._due[sink] = time.monotonic() + AGAIN_SECONDS
            return [_unfinished(sink, number, error)]
        finally:
            child.end()
        return []

    def close(self) -> None:
        """End what is under way: the next start goes on with it. Idempotent."""
        end_all(child for _, child in self._ending.values())
        self._ending.clear()


def end_promotion(say: Say, pipeline: Pipeline, sink: str, number: int) -> None:
    """End one that was cut; doing it while its process is at work after all does no harm.

    Raises:
        HeadwaterError: it can't be ended now.
    """
    promote(pipeline, sink, number, say, behind_too=True)  # some views may be shown already


def finish_promotion(pipeline: Pipeline, sink: str, since: float, say: Say) -> None:
    """End a promotion that was begun more than ``since`` seconds ago, and wait for that.

    What one that was cut behind its last step has left at the former index, of standing queries, is taken along, too.
    A target that does not answer is asked again later.
    """
    try:
        carry_left(pipeline, sink)
    except HeadwaterError as error:
        say(Line(f"sink {sink}: standing queries could not be taken along: {error.what}", sink=sink))
    _give_up(pipeline, sink, since, say)
    cut = register_of(pipeline, sink).cut_promotion(since)
    if cut is not None:
        say = telling(say, sink=sink, generation=cut)
        try:
            end_promotion(say, pipeline, sink, cut)
        except HeadwaterError as error:
            say(_unfinished(sink, cut, error))


def _give_up(pipeline: Pipeline, sink: str, since: float, say: Say) -> None:
    # Whoever moves nobody yet may wait so long for the new generation to come as far as the old one.
    given_up = register_of(pipeline, sink).give_up_unmoved(max(since, LEVEL_SECONDS + PAUSE_SECONDS))
    if given_up is not None:
        words = f"sink {sink}: the promotion of generation {given_up} was cut before it began: promote again"
        say(Line(words, sink=sink, generation=given_up))


def _unfinished(sink: str, number: int, error: HeadwaterError) -> str:
    return f"sink {sink}: the promotion of generation {number} could not be finished: {error.what}"
