"""Keeps the histories of an engine's sinks: takes those that are wanted, lets go those that are not."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from typing import Protocol

from cdc.catalogue import Catalogue
from cdc.errors import Fenced, HeadwaterError
from cdc.journal import Line
from cdc.pipeline import Pipeline
from operations.run.history import OpenedHistory, history_flow, open_history
from operations.run.refusals import opening
from operations.state.history import history_sinks, root_tables
from spark.runner import Runner

# Between two attempts to take one that could not be taken.
AGAIN_SECONDS = 10.0


class Engine(Protocol):
    """An engine, as far as histories need it."""

    pipeline: Pipeline
    catalogue: Catalogue
    runner: Runner
    snapshot_lsn: int


class Histories:
    """The histories that run here, by their sinks."""

    def __init__(self) -> None:
        self.opened: dict[str, OpenedHistory] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        self._leaving: set[str] = set()  # sinks whose history is let go, and not given back yet

    def follow(self, engine: Engine, sinks: Collection[str]) -> list[str]:
        """Take those of these sinks that keep history; what was done, a line each.

        Args:
            engine: whose runner supervises them.
            sinks: that are not to be left alone.
        """
        said: list[str] = []
        wanted = [name for name in history_sinks(engine.pipeline) if name in sinks]
        for name in [name for name in self.opened if name not in wanted]:
            self._let_go(engine, name)
        for name in [name for name in wanted if name not in self.opened and self._due(name)]:
            said += self._take(engine, name)
        for one in self.opened.values():
            try:
                one.lease.check()
            except Fenced as error:
                engine.runner.fail(one.folder, str(error), taken=True)
        return said

    def open_anew(self, engine: Engine, topics: Collection[str] | None = None) -> None:
        """Let go of those that read one of these topics (all, if left out); the next ``follow`` takes them again."""
        for run in list(engine.runner.running):
            sink = run.flow.spec.sink
            mine = sink in self.opened and run.flow.folder.parent == self.opened[sink].folder
            if mine and (topics is None or set(topics) & run.flow.spec.topics.keys()):
                self._let_go(engine, sink, anew=True)

    def adopt(self, engine: Engine, pipeline: Pipeline, catalogue: Catalogue) -> None:
        """Another file: a history whose tables or place it changes is opened anew by the next ``follow``."""
        for name, one in list(self.opened.items()):
            part = pipeline.sinks.get(name)
            before = engine.pipeline
            same = part == before.sinks.get(name) and set(root_tables(pipeline, catalogue, name)) == set(
                root_tables(before, catalogue, name)
            )
            if not same:
                self._let_go(engine, one.sink, anew=name in history_sinks(pipeline))

    def _due(self, sink: str) -> bool:
        asked, _ = self._refused.get(sink, (float("-inf"), ""))
        return sink not in self._leaving and time.monotonic() - asked > AGAIN_SECONDS

    def _take(self, engine: Engine, sink: str) -> list[str]:
        try:
            with opening(f"the history of sink {sink}"):
                opened = open_history(engine.pipeline, engine.catalogue, sink)
                try:
                    engine.runner.add([history_flow(opened, lambda: engine.snapshot_lsn)])
                except BaseException:
                    opened.lease.release()
                    raise
        except HeadwaterError as error:
            told = self._refused.get(sink, (0.0, ""))[1] == str(error)
            self._refused[sink] = time.monotonic(), str(error)
            return [] if told else [Line(f"warning: no history of sink {sink} is written: {error}", sink=sink)]
        self._refused.pop(sink, None)
        self.opened[sink] = opened
        return [Line(line, sink=sink) for line in opened.said]

    def _let_go(self, engine: Engine, sink: str, *, anew: bool = False) -> None:
        opened = self.opened.pop(sink)
        engine.runner.remove(opened.folder, anew=anew)
        self._leaving.add(sink)
        engine.runner.once_over(opened.folder, partial(self._left, opened))

    def _left(self, opened: OpenedHistory) -> None:
        try:
            opened.lease.release()
        finally:
            self._leaving.discard(opened.sink)

    def fail(self, engine: Engine, reason: str) -> None:
        """Stop all of them for good."""
        for one in self.opened.values():
            engine.runner.fail(one.folder, reason)

    def close(self, engine: Engine) -> None:
        """Give them back, once their queries have ended."""
        for one in self.opened.values():
            engine.runner.once_over(one.folder, one.lease.release)
