"""How long is waited between attempts."""

from __future__ import annotations

from itertools import pairwise

from cdc.polling import pause_after


def test_pauses_grow_twice_as_long_each_time_and_are_bounded() -> None:
    pauses = [pause_after(attempt, 2.0, 300.0) for attempt in range(1, 2000)]
    assert pauses[:4] == [2, 4, 8, 16] and pauses[-1] == 300
    assert all(later == min(2 * sooner, 300) for sooner, later in pairwise(pauses))


def test_a_first_pause_of_none_stays_none() -> None:
    assert pause_after(7, 0.0, 120.0) == 0.0
