"""Whether a sink's server answers, asked beside the flows.

A flow is the last to know: its writer waits for its server for half a minute before a batch fails (`give_up_seconds`),
and one that has nothing to write never finds out. Readers of that sink know at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from cdc.errors import HeadwaterError, SinkRefused, SinkUnavailable
from cdc.pipeline import IcebergSink, Pipeline, SearchSink
from operations.state.evolution import read_evolution
from operations.state.folder import register_of
from operations.state.pausing import rests
from sinks.configure import plain_config
from sinks.contract import Sink
from sinks.factory import open_sink
from spark.disk.made_of import Kept, as_defined, kept_now

# Between two questions. With what comes after it (the note, a look, a page), somebody who watches knows within 5 s.
LOOK_SECONDS = 1.0
# A connection that was idle may have been dropped by whoever stands between: asked twice before it is news.
AGAIN_SECONDS = 0.2
# A server that is up and busy (a merge, a full garbage collection) takes seconds: only silence for two of these counts,
# which is as long as Postgres may be silent. One that is gone refuses at once.
REQUEST_SECONDS = 5.0
# Between two looks at where the names lead that readers use: a request a view.
READERS_SECONDS = 10.0
_log = logging.getLogger(__name__)


def moving(pipeline: Pipeline, sink: str) -> bool:
    """Whether what readers' names lead to is not to be looked at: they are being moved, a table is being taken up that
    they are shown when its rows are there, or the sink is paused, and whoever has paused it works on it.

    Raises:
        StateError: what is in the state folder can't be read (terminal).
    """
    under_way = register_of(pipeline, sink).promotion() is not None or bool(read_evolution(pipeline, sink).todo)
    return under_way or rests(pipeline, sink)


def open_living(
    pipeline: Pipeline, sink: str, number: int, patience: Mapping[str, float]
) -> tuple[list[str], Sink] | None:
    """The views of a generation that readers see, and who asks for them; None before there are any.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        number: the living generation.
        patience: with its server, in place of the sink's own.
    """
    generation = register_of(pipeline, sink).generation(number)
    defined = as_defined(pipeline, generation)
    views = list(defined.sinks[sink].view_names or generation.views())
    return (views, open_sink({**plain_config(defined, sink, number, views), **patience})) if views else None


def strays(views: Sequence[str], sink: Sink, number: int) -> Iterator[tuple[str, int | None]]:
    """Views whose readers see another generation than this one, and which; None where the alias leads to none of them.

    Args:
        views: to be looked at; one that is not made yet, or lost, is left out: others notice.
        sink: of that generation.
        number: its number.

    Raises:
        SinkUnavailable: no answer (transient). SinkRefused: it may not look.
    """
    for view in views:
        if sink.there(view) and (shown := sink.living(view)) != number:
            yield view, shown


class Answering:
    """Asks one sink's server for a sign of life, in a thread of its own, from ``start`` to ``close``.

    A warehouse's tables are files and a catalogue: there is no server that could be asked each second.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        news: called when the server begins, or ceases, to answer.

    Attributes:
        error: why it does not answer; None while it does, or nobody has asked yet.
        astray: which view's readers see what this sink does not keep; None while all see what it keeps.
    """

    def __init__(self, pipeline: Pipeline, sink: str, news: Callable[[], None] = lambda: None) -> None:
        self.pipeline, self.sink, self._news = pipeline, sink, news
        self.error: str | None = None
        self.astray: str | None = None
        self._opened: tuple[int, Sequence[str], Sink] | None = None
        self._kept: Kept | None = None
        self._led = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"answering {sink}", daemon=True)

    def start(self) -> None:
        """Begin; nothing is asked of a warehouse."""
        if not isinstance(self.pipeline.sinks[self.sink], IcebergSink):
            self._thread.start()

    def close(self, patience: float = 0.0) -> None:
        """End. A question that a server leaves unanswered is waited for no longer than this (seconds)."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def look(self) -> None:
        """Ask now; told twice that the server does not answer, believe it."""
        error = self._ask()
        if error is not None and not self._stop.wait(AGAIN_SECONDS):
            error = self._ask()
        before, self.error = self.error, error
        if (before is None) != (error is None):
            self._news()
        if error is None and time.monotonic() - self._led >= READERS_SECONDS:
            self._led = time.monotonic()
            self.lead()

    def lead(self) -> None:
        """Look where the names lead that readers search by. An alias that somebody has deleted is set again: the index
        behind it is written to as ever, and nobody finds it. One that leads elsewhere is somebody's decision, and told.
        """
        before = self.astray
        try:
            self.astray = self._lead()
        except HeadwaterError as error:
            _log.debug("sink %s was not asked what its readers see: %s", self.sink, error)
        if self.astray is not None and self.astray != before:
            _log.warning("sink %s: %s", self.sink, self.astray, extra={"sink": self.sink})

    def _lead(self) -> str | None:
        if self._opened is None or not isinstance(self.pipeline.sinks[self.sink], SearchSink):
            return None
        number, views, sink = self._opened
        if moving(self.pipeline, self.sink) or register_of(self.pipeline, self.sink).living() != number:
            return None
        for view, shown in strays(views, sink, number):
            if shown is not None:
                return f"readers of view {view} see generation {shown}, and this sink keeps generation {number}"
            try:
                sink.promote(view, number)
            except SinkRefused as error:  # something else has that name
                return error.what
            what = "view %s: the alias that readers use was gone, and leads to generation %d again"
            _log.warning(what, view, number, extra={"sink": self.sink})
        return None

    def _ask(self) -> str | None:
        try:
            found = self._open()
            if found is not None:
                views, sink = found
                sink.there(views[0])
        except SinkUnavailable as error:
            return error.what
        except HeadwaterError as error:  # it answers; what is wrong is the flow's to say
            _log.debug("sink %s was asked whether it is there: %s", self.sink, error)
        return None

    def _open(self) -> tuple[Sequence[str], Sink] | None:
        """The views that readers see, and who asks for them; None before there are any."""
        register = register_of(self.pipeline, self.sink)
        number = register.living()
        kept = kept_now(register.generation(number))
        if self._opened is None or (self._opened[0], self._kept) != (number, kept):
            self._let_go()
            self._kept = kept
            patience = {"request_timeout_seconds": REQUEST_SECONDS, "give_up_seconds": AGAIN_SECONDS}
            opened = open_living(self.pipeline, self.sink, number, patience)
            if opened is None:
                return None
            self._opened = number, *opened
        return self._opened[1:]

    def _let_go(self) -> None:
        if self._opened is not None:
            self._opened[2].close()
            self._opened = None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except Exception as error:  # a defect here must not end what tells of all others
                _log.warning("sink %s was not asked: %s: %s", self.sink, type(error).__name__, error)
            self._stop.wait(LOOK_SECONDS)
        self._let_go()
