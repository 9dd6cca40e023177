"""How long ago a moment was, also one that is still to come."""

from __future__ import annotations

import math

from cdc.ages import AHEAD_SECONDS, ago, at_least


def test_a_moment_that_is_still_to_come_is_long_ago_and_told_as_now() -> None:
    assert (ago(90.0, 100.0), at_least(90.0, 100.0)) == (10.0, 10.0)
    assert (ago(103.0, 100.0), at_least(103.0, 100.0)) == (0.0, 0.0), "of a machine whose clock is ahead by a little"
    assert (ago(100.0 + AHEAD_SECONDS, 100.0), ago(100.1 + AHEAD_SECONDS, 100.0)) == (0.0, math.inf)
    assert at_least(1e9, 100.0) == 0.0
