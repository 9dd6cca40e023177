"""Following a view without a server: for the command line, and for whoever else has a thread of his own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from operations.push.events import Told
from operations.push.feed import BLOCK_MS, PAUSE_SECONDS
from operations.push.follows import Sees
from operations.push.source import TROUBLES, Source, told
from operations.push.walk import Walk
from sinks.redis.client import is_passing
from sinks.redis.read import Moving
from sinks.redis.stream.tail import Standing

# So often it is looked whether readers were led to other keys: under the former ones nobody tells anything any more.
FIND_SECONDS = 3.0


def follow(
    source: Source,
    sees: Sees,
    cursor: str | None = None,
    *,
    documents: bool = True,
    stop: Callable[[], bool] = lambda: False,
    on_wait: Callable[[str], None] = lambda _why: None,
) -> Iterator[list[Told]]:
    """Everything there is to be told, as it comes; empty lists between, so that the caller may look at other things.

    Where readers are led to other keys, it goes there, and begins with ``reset``.

    Args:
        source: the view's changes; stays the caller's to close.
        sees: what is to be seen.
        cursor: to go on from; None: from the beginning.
        documents: as ``Walk``.
        stop: whether to end; looked at about every second.
        on_wait: told why, when the server makes it wait.

    Raises:
        HeadwaterError: no changes are kept, or the server refuses (terminal until somebody does something).
    """
    walk = Walk(source.tail(), source.place.view, sees, cursor, documents=documents)
    moved, looked = False, time.monotonic()
    while not stop():
        try:
            if not moved and time.monotonic() - looked > FIND_SECONDS:
                moved, looked = source.moved(), time.monotonic()
            if moved:
                walk.moved(source.tail())
                moved = False
            found = walk.step()
            if not found and walk.live:
                at = walk.cursor
                source.tail().wait(Standing(at.generation, at.mark), at.place, BLOCK_MS)
        except TROUBLES as error:
            if not isinstance(error, Moving) and not is_passing(error):
                raise told(error, source.place) from error
            on_wait(told(error, source.place).what)
            time.sleep(PAUSE_SECONDS)
            continue
        yield found
