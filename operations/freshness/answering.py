"""Whether a sink's server answers, asked beside the flows.

A flow is the last to know: its writer waits for its server for half a minute before a batch fails (`give_up_seconds`),
and one that has nothing to write never finds out. Readers of that sink know at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from cdc.errors import HeadwaterError, SinkUnavailable
from cdc.pipeline import IcebergSink, Pipeline
from operations.state_folder import register_of
from sinks.configure import plain_config
from sinks.contract import Sink
from sinks.factory import open_sink
from spark.made_of import as_defined

# Between two questions. With what comes after it (the note, a look, a page), somebody who watches knows within 5 s.
LOOK_SECONDS = 1.0
# A connection that was idle may have been dropped by whoever stands between: asked twice before it is news.
AGAIN_SECONDS = 0.2
# A server that is up and busy (a merge, a full garbage collection) takes seconds: only silence for two of these counts,
# which is as long as Postgres may be silent. One that is gone refuses at once.
REQUEST_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Answering:
    """Asks one sink's server for a sign of life, in a thread of its own, from ``start`` to ``close``.

    A warehouse's tables are files and a catalogue: there is no server that could be asked each second.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        news: called when the server begins, or ceases, to answer.

    Attributes:
        error: why it does not answer; None while it does, or nobody has asked yet.
    """

    def __init__(self, pipeline: Pipeline, sink: str, news: Callable[[], None] = lambda: None) -> None:
        self.pipeline, self.sink, self._news = pipeline, sink, news
        self.error: str | None = None
        self._opened: tuple[int, str, Sink] | None = None
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

    def _ask(self) -> str | None:
        try:
            found = self._open()
            if found is not None:
                view, sink = found
                sink.there(view)
        except SinkUnavailable as error:
            return error.what
        except HeadwaterError as error:  # it answers; what is wrong is the flow's to say
            _log.debug("sink %s was asked whether it is there: %s", self.sink, error)
        return None

    def _open(self) -> tuple[str, Sink] | None:
        """A view of what readers see, and who asks for it; None before there is one."""
        number = register_of(self.pipeline, self.sink).living()
        if self._opened is None or self._opened[0] != number:
            self._let_go()
            generation = register_of(self.pipeline, self.sink).generation(number)
            defined = as_defined(self.pipeline, generation)
            views = tuple(defined.sinks[self.sink].view_names or generation.views())
            if not views:
                return None
            config = plain_config(defined, self.sink, number, views[:1])
            patience = {"request_timeout_seconds": REQUEST_SECONDS, "give_up_seconds": AGAIN_SECONDS}
            self._opened = number, views[0], open_sink({**config, **patience})
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
