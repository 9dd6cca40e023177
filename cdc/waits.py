"""What this process waits for just now, so that a door can say so when it takes long. Nothing here prints."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple


class Wait(NamedTuple):
    """Somebody else is waited for.

    Attributes:
        what: a server, and what it is asked.
        began: when, in seconds of ``time.monotonic``.
        thread: whose wait it is.
    """

    what: str
    began: float
    thread: int


# In the order in which they began; threads wait side by side. A dict's single operations are atomic.
_begun: dict[int, Wait] = {}
_numbers = count()


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say that until the end of the block, or of the function that this decorates, somebody else is waited for.

    Args:
        what: a server, and what it is asked: ``Postgres: reading the foreign keys``.
    """
    number = next(_numbers)
    _begun[number] = Wait(what, time.monotonic(), threading.get_ident())
    try:
        yield
    finally:
        del _begun[number]


def waited_for() -> Wait | None:
    """What has been waited for the longest; None outside of all such blocks.

    Of one thread's blocks the innermost counts, which says more. Of several threads' the one that began first: others
    ask their servers a moment's question again and again meanwhile.
    """
    innermost = {wait.thread: wait for wait in list(_begun.values())}
    return min(innermost.values(), key=lambda wait: wait.began, default=None)
