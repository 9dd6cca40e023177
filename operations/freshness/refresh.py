"""Makes what was written findable by search: one refresh of an index for all who wait, and no more than five a second.

Elasticsearch's own ways are no help here: ``refresh=wait_for`` on a write waits for the index's interval, and
``refresh=true`` makes a small segment for each write. Nobody waits, nothing is refreshed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from cdc.errors import HeadwaterError, SinkRefused
from cdc.pipeline import Pipeline, SearchSink
from operations.state.folder import register_of
from sinks.configure import plain_config
from sinks.contract import Target
from sinks.factory import open_target
from sinks.redis import RedisSink
from spark.disk.made_of import Kept, as_defined, kept_now
from spark.disk.state import Generation

# Between the beginnings of two refreshes of one index.
REFRESH_SECONDS = 0.2
# The same where nothing is refreshed, but looked whether what was written is still there.
LOOK_SECONDS = 0.02
# Indices that are refreshed at once.
WORKERS = 4
_log = logging.getLogger(__name__)

# Sink, generation, whether a search must find it.
_Key = tuple[str, int, bool]


@dataclass
class _Refreshed:
    """One generation's indices: how many refreshes have begun, and the newest that has ended well."""

    begun: int = 0
    ended: int = 0
    at: float = float("-inf")
    running: Future[None] | None = None
    error: str | None = None
    wanted: int = field(default=0)


class Refresher:
    """Refreshes on request; used by one thread, works in others.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._targets: dict[_Key, _Refreshed] = {}
        self._opened: dict[_Key, tuple[Kept, tuple[str, ...], Target]] = {}
        self._closed = threading.Event()

    def close(self) -> None:
        """Let go. What is under way is not waited for, a server may be silent for minutes: it lets go as it ends."""
        self._closed.set()
        for key, target in self._targets.items():
            if target.running is None or target.running.done():
                self._let_go(key)

    def ask(self, sink: str, generation: int, *, search: bool) -> int:
        """Want everything found that is written now: by a search, or by a look-up. Returns a number for ``done``."""
        target = self._targets.setdefault((sink, generation, search), _Refreshed())
        target.wanted = target.begun + 1  # one that has begun may have missed the newest writes
        return target.wanted

    def done(self, sink: str, generation: int, ticket: int, *, search: bool) -> bool:
        """Whether one that began after ``ask`` gave this number has ended well."""
        target = self._targets.get((sink, generation, search))
        return target is not None and target.ended >= ticket

    def error(self, sink: str, generation: int, *, search: bool) -> str | None:
        """Why the last one failed."""
        target = self._targets.get((sink, generation, search))
        return None if target is None else target.error

    def step(self) -> None:
        """Begin what is wanted and due, take in what has ended."""
        running = 0
        for target in self._targets.values():
            if target.running is not None and target.running.done():
                _take_in(target)
            running += target.running is not None
        # Who began longest ago comes first: slow ones that are wanted again at once would leave no room for others.
        for key, target in sorted(self._targets.items(), key=lambda one: one[1].at):
            refreshes = key[2] and isinstance(self.pipeline.sinks[key[0]], SearchSink)
            due = time.monotonic() - target.at >= (REFRESH_SECONDS if refreshes else LOOK_SECONDS)
            if target.running is None and target.wanted > target.ended and due and running < WORKERS:
                target.begun, target.at = target.begun + 1, time.monotonic()
                future = Future[None]()
                # Not of a pool: the end of the process would wait for those.
                threading.Thread(target=self._run, args=(key, future), name="refresh", daemon=True).start()
                target.running, running = future, running + 1

    def _run(self, key: _Key, running: Future[None]) -> None:
        try:
            self._refresh(key)
        except BaseException as error:  # also a defect: what is wanted there would wait for ever
            running.set_exception(error)
        else:
            running.set_result(None)
        if self._closed.is_set():
            self._let_go(key)

    def _refresh(self, key: _Key) -> None:
        # One at a time of a key: so it is one thread at a time that uses what was opened for it.
        sink, number, search = key
        generation = register_of(self.pipeline, sink).generation(number)
        views, opened = self._open(key, generation)
        for view in views:
            if search:
                opened.refresh(view)
            elif not opened.there(view):
                raise SinkRefused(f"what was written to {view} is gone")
        if isinstance(opened, RedisSink):
            # `run` may have left a number with a table that it has taken up since: the next refresh is of that, too.
            _refuse_older(opened, {view: number for view, number in generation.beats().items() if view in views})

    def _open(self, key: _Key, generation: Generation) -> tuple[tuple[str, ...], Target]:
        """The views that a generation keeps by now, and who asks for them."""
        sink, number, _ = key
        kept = kept_now(generation)
        if key in self._opened and self._opened[key][0] != kept:
            self._let_go(key)
        if key not in self._opened:
            defined = as_defined(self.pipeline, generation)
            views = tuple(defined.sinks[sink].view_names or generation.views())
            self._opened[key] = kept, views, open_target(plain_config(defined, sink, number, views))
        return self._opened[key][1:]

    def _let_go(self, key: _Key) -> None:
        opened = self._opened.pop(key, None)  # by whoever comes first
        if opened is not None:
            opened[2].close()


def _refuse_older(sink: RedisSink, beats: Mapping[str, int]) -> None:
    """A server that was put back to an older state lacks the numbers that were left with it last."""
    for view, number in beats.items():
        held = sink.beat(view, 0)
        if held is None or held < number:
            raise SinkRefused(f"the server has lost what was written to {view} last: it is of an older state")


def _take_in(target: _Refreshed) -> None:
    assert target.running is not None
    error = target.running.exception()
    target.running = None
    if error is None:
        target.ended, target.error = target.begun, None
    else:
        target.error = error.what if isinstance(error, HeadwaterError) else str(error)
        _log.debug("a refresh failed: %s", error)
