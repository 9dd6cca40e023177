"""What processes of `operations.child_process.Apart` do in tests. Imports next to nothing: each of them imports this
anew."""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc.errors import HeadwaterError

Say = Callable[[str], None]


def work(say: Say, line: str) -> None:
    """Say so, and be done."""
    say(line)


def fail(_say: Say) -> None:
    """As a flow that has failed."""
    raise HeadwaterError("flow failed: because")


def begin_and_fail(say: Say) -> None:
    """As one that has failed in the middle of it."""
    say("cache@2/main: 43% of the log")
    raise HeadwaterError("flow failed: because")


def compare(_say: Say, equal: bool | None) -> bool:
    """What came of it; None if that could not be seen."""
    if equal is None:
        raise HeadwaterError("no Postgres")
    return equal


def wait(_say: Say) -> None:
    """Go on until it is ended."""
    time.sleep(60)
