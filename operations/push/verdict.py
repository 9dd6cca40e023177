"""What becomes of a batch, given how a webhook has answered: pure."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

FIRST_SECONDS, MOST_SECONDS = 0.5, 60.0
# A receiver may ask for a longer pause; who asks for days is mistaken, and would seem dead.
MOST_ASKED_SECONDS = 3_600.0
# Of 4xx: what the receiver says of the moment, not of the batch.
_PASSING = (408, 425, 429)


@dataclass(frozen=True)
class Verdict:
    """What is to be done.

    Attributes:
        done: ``delivered``, ``refused`` (it is put aside, and the next batch is sent) or ``again``.
        why: in words; empty when it was delivered. Never what the receiver said: it may quote documents.
        seconds: until it is sent again.
    """

    done: Literal["delivered", "refused", "again"]
    why: str = ""
    seconds: float = 0.0


def verdict(
    status: int | None,
    error: str = "",
    retry_after: str | None = None,
    attempt: int = 0,
    chance: Callable[[], float] = random.random,
) -> Verdict:
    """Judge an answer.

    Args:
        status: of HTTP; None without an answer.
        error: why there was none.
        retry_after: the header of this name.
        attempt: how often it has failed before.
        chance: a number from 0 to 1, for the jitter.
    """
    if status is not None and 200 <= status < 300:
        return Verdict("delivered")
    if status is not None and 400 <= status < 500 and status not in _PASSING:
        return Verdict("refused", f"it answers {status}")
    why = error or f"it answers {status}"
    if status is not None and 300 <= status < 400:
        why += ", and redirects are not followed: give `url` the address that it leads to"
    pause = min(FIRST_SECONDS * 2.0 ** min(attempt, 30), MOST_SECONDS) * (0.5 + chance() / 2)
    return Verdict("again", why, max(pause, min(asked(retry_after), MOST_ASKED_SECONDS)))


def asked(retry_after: str | None, now: Callable[[], float] = time.time) -> float:
    """For how many seconds a receiver wants to be left alone: a number or a date; 0 for anything else."""
    if retry_after is None:
        return 0.0
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - now(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return 0.0
