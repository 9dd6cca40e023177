"""Looks, every few seconds, whether what the sinks' generations write to is still there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from cdc.repeating import Repeating
from operations.state.folder import register_of
from sinks import contract
from sinks.configure import plain_config
from sinks.factory import open_target
from sinks.redis import RedisSink
from spark.disk.made_of import as_defined
from spark.flow import has_set_up

log = logging.getLogger(__name__)

# One HGET a view: a reader of a cache that was flushed should not wait for a next change to be told.
CHECK_SECONDS = 3.0

Target = tuple[str, int, str]


class _Spec(Protocol):
    @property
    def sink(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def views(self) -> Iterable[str]: ...


class _Flow(Protocol):
    @property
    def spec(self) -> _Spec: ...
    @property
    def folder(self) -> Path: ...


class _Running(Protocol):
    @property
    def flow(self) -> _Flow: ...
    @property
    def failed(self) -> bool: ...
    @property
    def halted(self) -> bool: ...


class LossWatch:
    """A target is lost when it was seen to be there, or a flow of it has failed, and it is not there now; or when a
    cache that was restored from an older state no longer has the number that was left with it last.

    That nothing was ever there is no loss: a generation's flows make their targets one after the other.

    Args:
        pipeline: the loaded file.
        sinks: whose generations are looked at.
        seconds: between two looks; None for CHECK_SECONDS.
    """

    def __init__(self, pipeline: Pipeline, sinks: Sequence[str], seconds: float | None = None) -> None:
        self.pipeline, self.sinks = pipeline, sinks
        self._ours: frozenset[tuple[str, int]] = frozenset()
        self._seen: dict[Target, int] = {}  # and the number that was left with it last
        self._suspects: set[Target] = set()
        self._looked: set[Target] = set()  # suspects that were looked at
        self._lost: frozenset[Target] = frozenset()
        self._lock = threading.Lock()
        self._said = ""
        self._watching = Repeating("loss watch", self._watch, CHECK_SECONDS if seconds is None else seconds)
        if sinks:
            self._watching.start()

    def follow(self, ours: Iterable[tuple[str, int]], running: Iterable[_Running]) -> None:
        """What is to be looked at from now on.

        Args:
            ours: sinks and generations that this process holds: others' are for others to look at.
            running: flows; targets of those that have failed are looked at although they were never seen.
        """
        self._ours = frozenset(which for which in ours if which[0] in self.sinks)
        # One that stands still because of a table has told why; a table that was taken up meanwhile has no target yet.
        stopped = (run for run in running if run.failed and not run.halted)
        failed = (run.flow for run in stopped if run.flow.spec.sink in self.sinks)
        # One that never came to make its target ready has nothing to lose: it is refused for another reason.
        written = (flow.spec for flow in failed if has_set_up(flow.folder))
        self._suspects = {(spec.sink, spec.generation, view) for spec in written for view in spec.views}

    def adopt(self, pipeline: Pipeline, sinks: Sequence[str]) -> None:
        """Look at other sinks from now on."""
        with self._lock:
            self.pipeline, self.sinks = pipeline, sinks
        if sinks:
            self._watching.start()

    @property
    def pending(self) -> bool:
        """Whether it is still to be seen why a flow has failed."""
        return bool(self._suspects - self._looked)

    def is_lost(self, sink: str, number: int) -> bool:
        """Whether a generation has lost a view."""
        return number in self.lost(sink)

    def lost(self, sink: str) -> list[int]:
        """Generations of a sink that have lost a view, as of the last look."""
        return sorted({number for name, number, _ in self._lost if name == sink})

    def _watch(self) -> None:
        try:
            self.look()
        except OSError as error:  # a full disk, a folder that may not be written to: told once, tried each time
            if str(error) != self._said:
                self._said = str(error)
                log.warning("what the targets were left with is not noted: %s", error)

    def look(self) -> None:
        """Look once, now. A server that does not answer says nothing: all is as it was seen last."""
        with self._lock:
            suspects, ours = self._suspects, self._ours
            try:
                self._lost = frozenset(target for target in self._lost if target[:2] in ours)
                for sink, number in sorted(ours):
                    try:
                        for target, there in self._there(sink, number).items():
                            self._judge(target, there)
                    except HeadwaterError as error:
                        about = {"sink": sink, "generation": number}
                        log.debug("sink %s, generation %d: %s", sink, number, error, extra=about)
            finally:
                self._looked = suspects

    def gone(self, sink: str, number: int) -> bool:
        """Whether a generation that is complete is not all there now, seen before or not; False if nobody answers."""
        try:
            return not all(self._there(sink, number).values())
        except HeadwaterError:
            return False

    def _judge(self, target: Target, there: bool) -> None:
        if not there and (target in self._seen or target in self._suspects):
            self._lost |= {target}

    def _there(self, sink: str, number: int) -> dict[Target, bool]:
        """Each view of a generation, and whether it is there as it was left."""
        generation = register_of(self.pipeline, sink).generation(number)
        views = generation.views()
        if not views:
            return {}
        before = generation.beats()
        opened = open_target(plain_config(as_defined(self.pipeline, generation), sink, number, views))
        try:
            there = {view: self._is_whole(opened, (sink, number, view), before.get(view, 0)) for view in views}
        finally:
            opened.close()
        # What is left with them is known to who comes next: a loss must not be forgotten with the process that saw it.
        left = {view: self._seen.get((sink, number, view), 0) for view in views}
        after = before | {view: beat for view, beat in left.items() if beat > before.get(view, 0)}
        if after != before and generation.folder.exists():
            generation.note_beats(after)
        return {(sink, number, view): whole for view, whole in there.items()}

    def _is_whole(self, opened: contract.Target, target: Target, before: int) -> bool:
        if target in self._lost:
            return False  # what writes to it next makes it no more whole
        if not isinstance(opened, RedisSink):
            there = opened.there(target[2])
            if there:
                self._seen[target] = 0
            return there
        number = time.time_ns() // 1_000_000
        held = opened.beat(target[2], number, before)
        if held is None or held < before:
            if before:
                self._seen.setdefault(target, before)  # by a process before this one
            return False
        self._seen[target] = number
        return True

    def close(self) -> None:
        """End the looking. Idempotent."""
        self._watching.stop()
