"""Whether a flow's start is still wanted: who ends a flow does not wait for ever for one that nobody answers."""

from __future__ import annotations

from contextvars import ContextVar
from threading import Event

from cdc.errors import StateError

# Of the start that this thread makes: set once nobody waits for it any more.
_unwanted: ContextVar[Event | None] = ContextVar("unwanted", default=None)


def begin_start(unwanted: Event) -> None:
    """This thread makes a start from now on.

    Args:
        unwanted: set once nobody waits for it any more.
    """
    _unwanted.set(unwanted)


def refuse_unwanted() -> None:
    """Look whether the start that this thread makes is still wanted; called before each thing that it writes.

    Raises:
        StateError: it is not: a server may have answered after minutes, when the flow was told to end (terminal).
    """
    unwanted = _unwanted.get()
    if unwanted is not None and unwanted.is_set():
        raise StateError("the flow was told to end while it was being started", means="this start writes nothing more")
