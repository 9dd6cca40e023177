"""A thread that takes the same step again and again: what ends it, and what does not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from cdc.errors import StateError
from cdc.repeating import Final, Repeating

LONG = 30.0


class Steps:
    """Counts steps; each does what is next in a list, and nothing when that is at its end."""

    def __init__(self, *does: Callable[[], object]) -> None:
        self._does: Iterator[Callable[[], object]] = iter(does)
        self._taken = threading.Semaphore(0)

    def __call__(self) -> None:
        try:
            next(self._does, lambda: None)()
        finally:
            self._taken.release()

    def wait(self, count: int, seconds: float = LONG) -> bool:
        """Whether so many more were taken."""
        return all(self._taken.acquire(timeout=seconds) for _ in range(count))


def raising(error: Exception) -> Callable[[], object]:
    def raises() -> None:
        raise error

    return raises


def test_the_step_is_taken_until_it_is_told_to_end_and_then_what_it_opened_is_closed() -> None:
    steps, ended = Steps(), threading.Event()
    with Repeating("steps", steps, 0.001, last=ended.set) as repeating:
        assert steps.wait(3) and not ended.is_set() and not repeating.stopping
    assert ended.wait(LONG) and repeating.stopping
    repeating.join(LONG)
    assert not repeating._thread.is_alive()


def test_a_surprise_is_logged_once_as_long_as_it_says_the_same_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, other = raising(ValueError("one")), raising(KeyError("other"))
    steps = Steps(one, one, other, one)
    with caplog.at_level(logging.WARNING), Repeating("steps", steps, 0.001):
        assert steps.wait(6)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["steps: ValueError: one", "steps: KeyError: 'other'", "steps: ValueError: one"]
    assert all(record.exc_info for record in caplog.records)


def test_an_error_that_somebody_can_mend_is_logged_without_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(raising(StateError("it is so", fix="do this")), raising(PermissionError(13, "Permission denied")))
    with Repeating("steps", steps, 0.001):
        assert steps.wait(3)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert not any(record.exc_info for record in caplog.records)


def test_what_can_not_be_closed_in_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with Repeating("steps", Steps(), LONG, last=raising(ValueError("stuck"))) as repeating:
        pass
    repeating.join(LONG)
    assert [record.getMessage() for record in caplog.records] == ["steps: ValueError: stuck"]


def test_a_step_that_says_it_was_the_last_was_the_last(caplog: pytest.LogCaptureFixture) -> None:
    steps, ended = Steps(raising(Final())), threading.Event()
    repeating = Repeating("steps", steps, 0.001, last=ended.set)
    repeating.start()
    assert ended.wait(LONG) and steps.wait(1) and not steps.wait(1, 0.05)
    assert not caplog.records


def test_the_first_step_comes_after_a_pause_unless_it_is_to_come_at_once() -> None:
    late, soon = Steps(), Steps()
    with Repeating("late", late, LONG), Repeating("soon", soon, LONG, at_once=True):
        assert soon.wait(1) and not late.wait(1, 0.05) and not soon.wait(1, 0.0)


def test_a_pause_can_be_ended_and_what_was_asked_while_a_step_was_taken_is_not_lost() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go_on.wait(LONG)

    steps = Steps(slow)
    with Repeating("steps", steps, LONG, at_once=True) as repeating:
        assert begun.wait(LONG)
        repeating.wake()
        go_on.set()
        assert steps.wait(2)
        repeating.wake()
        assert steps.wait(1)


def test_an_end_does_not_wait_for_the_pause() -> None:
    repeating = Repeating("steps", Steps(), lambda: LONG)
    repeating.start()
    repeating.stop()
    repeating.join(LONG / 2)
    assert not repeating._thread.is_alive()


def test_it_begins_once_and_not_after_its_end() -> None:
    never = Repeating("never", Steps(), 0.001)
    never.stop()
    never.start()
    never.join()
    assert never._thread.ident is None
    steps = Steps()
    with Repeating("steps", steps, 0.001) as repeating:
        repeating.start()
        assert steps.wait(1)
