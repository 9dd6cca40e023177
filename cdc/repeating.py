"""A thread that takes the same step again and again until it is told to end. A step that fails is not the last."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from cdc.errors import HeadwaterError

log = logging.getLogger(__name__)


class Final(Exception):
    """Raised by a step that was the last: whatever there is to say it has said."""


class Repeating:
    """Takes a step, pauses, takes it again. A context manager: at work from its beginning to its end.

    What a step raises is a surprise (a step catches what it expects): it is logged, once as long as it says the same,
    with its traceback if it is a defect, and the next step is taken as ever.

    Args:
        name: of the thread; its log lines begin with it.
        step: what is done.
        seconds: between the end of a step and the next; or what gives them each time.
        at_once: the first step is taken without a pause before it.
        last: called in the thread after the last step, to close what the steps have opened.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        seconds: float | Callable[[], float],
        *,
        at_once: bool = False,
        last: Callable[[], object] = lambda: None,
    ) -> None:
        self._name, self._step, self._seconds, self._last = name, step, seconds, last
        self._over, self._wake = threading.Event(), threading.Event()
        self._said = ""
        if at_once:
            self._wake.set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._starting = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def stopping(self) -> bool:
        """Whether it was told to end; for a step that takes long."""
        return self._over.is_set()

    def start(self) -> None:
        """Begin. Idempotent; what was told to end does not begin again."""
        with self._starting:
            if self._thread.ident is None and not self.stopping:
                self._thread.start()

    def wake(self) -> None:
        """End the pause: the next step is taken now, or right after the one that is being taken."""
        self._wake.set()

    def stop(self) -> None:
        """Take no further step; the one that is being taken is not waited for. Idempotent."""
        self._over.set()
        self._wake.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of the last step, and no longer than this."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while self._paused():
            try:
                self._step()
            except Final:
                break
            except Exception as error:  # one that ended the thread would be noticed by nobody
                self._log(error)
        try:
            self._last()
        except Exception as error:
            self._log(error)

    def _paused(self) -> bool:
        """Wait for the next step; false if there is none."""
        self._wake.wait(self._seconds() if callable(self._seconds) else self._seconds)
        self._wake.clear()
        return not self.stopping

    def _log(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._said:
            self._said = text
            known = isinstance(error, (HeadwaterError, OSError))
            log.log(logging.WARNING if known else logging.ERROR, "%s: %s", self._name, text, exc_info=not known)
