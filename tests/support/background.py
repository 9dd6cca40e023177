"""Work in a thread beside a block, whose end by an error is the block's too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self


class Background(threading.Thread):
    """``with`` starts it, ends it, and raises what it has died of.

    Of a bare thread that fails Python prints a trace and nothing else: what it should have found out or written from
    then on is missing, and whoever measures meanwhile takes that for a good figure.

    Args:
        given: called with the event that tells it to end; subclasses have their own ``work`` instead.

    Attributes:
        over: set when it shall end.
        error: what it has died of.
    """

    def __init__(self, given: Callable[[threading.Event], object] | None = None) -> None:
        super().__init__()
        self.given, self.over = given, threading.Event()
        self.error: BaseException | None = None

    def work(self) -> None:
        """Until it is over."""
        assert self.given is not None
        self.given(self.over)

    def run(self) -> None:
        """Do it, and keep what goes wrong."""
        try:
            self.work()
        except BaseException as error:  # whatever it is: the block raises it
            self.error = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()
        if self.error is not None:
            raise self.error
