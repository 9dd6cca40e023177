"""A joined view's row store is told each second through which batch it is complete, whatever its flow waits for."""

from __future__ import annotations

import threading
from types import TracebackType

from cdc.journal import about
from spark.flow import Flow
from spark.join import health
from spark.join.stage import open_store

# A checkpoint remembers fifty batches, some seconds of a busy table's: with a note that is older than these, a server
# that was restarted could not be given again what it may have lost.
NOTE_SECONDS = 1.0


class Noting:
    """Notes in a thread of its own, over a connection of its own, until the block ends.

    The flow's thread waits for jobs of what fan-outs have deferred, half a minute for a renamed airline, while live
    batches go on.

    Args:
        flow: the view's.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"noting {flow.title}", daemon=True)

    def __enter__(self) -> Noting:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what a note has met.

        Raises:
            SinkUnavailable: as ``health.note`` (transient).
        """
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        with about(**self._flow.about):
            try:
                store = open_store(self._flow.spec)
                try:
                    while not self._over.is_set():
                        health.note(store, self._flow)
                        self._over.wait(NOTE_SECONDS)
                finally:
                    store.close()
            except Exception as error:  # whatever it is, the flow's thread raises it
                self._error = error
