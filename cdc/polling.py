"""Asking again until an answer is good, or time is up; trying again, later and later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_delay, wait_fixed

T = TypeVar("T")


def poll(ask: Callable[[], T], good: Callable[[T], bool], seconds: float, pause: float = 0.5) -> T:
    """Ask until the answer is good.

    Args:
        ask: what is asked; its errors are the caller's.
        good: whether an answer ends the waiting.
        seconds: how long to go on; it is asked once at least.
        pause: seconds between two questions.

    Returns:
        the last answer: good, or what it was when time was up.
    """
    asking = Retrying(
        stop=stop_after_delay(seconds),
        wait=wait_fixed(pause),
        retry=retry_if_result(lambda answer: not good(answer)),
        retry_error_callback=last_answer,
    )
    return asking(ask)


def pause_after(attempt: int, first: float, longest: float) -> float:
    """Seconds before the next attempt: twice as long each time. Pure.

    Args:
        attempt: which one has failed, from 1.
        first: after the first.
        longest: however many have failed.
    """
    return float(min(first * 2 ** min(attempt - 1, 30), longest))


def last_answer(state: RetryCallState) -> Any:
    """For tenacity: when time is up, what the last attempt has returned or raised."""
    assert state.outcome is not None
    return state.outcome.result()
