"""What this process waits for just now, so that a door can say so when it takes long. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

# In the order in which they began; threads wait side by side. A dict's single operations are atomic.
_begun: dict[int, str] = {}
_numbers = count()


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say that until the end of the block, or of the function that this decorates, somebody else is waited for.

    Args:
        what: a server, and what it is asked: ``Postgres: reading the foreign keys``.
    """
    number = next(_numbers)
    _begun[number] = what
    try:
        yield
    finally:
        del _begun[number]


def waited_for() -> str | None:
    """What the youngest of these blocks waits for; None outside of all."""
    waits = list(_begun.values())
    return waits[-1] if waits else None
