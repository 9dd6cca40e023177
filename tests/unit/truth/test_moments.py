"""Moments as numbers, as verification counts them."""

from __future__ import annotations

import pytest

from truth.moments import moment_number


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000),
        ("1970-01-01T00:00:01.123456Z", 1_123_456),
        ("1970-01-01T00:00:01.123456789Z", 1_123_456),  # as an outbox message may say it
        ("1969-12-31T23:59:59.1234567", -876_544),
    ],
)
def test_a_fraction_of_a_second_counts_in_microseconds(text: str, micros: int) -> None:
    assert moment_number(text) == micros
