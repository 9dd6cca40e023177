"""Moments as text: which the codec takes, for outbox messages may give any text, and what it makes of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdc.types import times


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01T00:35:42.262486+00:00Z",
        "2024-01-01T10:00:00+02:00Z",
        "2024-01-01T10:00:00.5+02:00Z",
        "2024-01-01T10:00:00+02:00",
        "2024-02-30T10:00:00Z",
        "1900-02-29T10:00:00Z",
        "2024-13-01T10:00:00Z",
        "2024-00-01T10:00:00Z",
        "2024-01-00T10:00:00Z",
        "2024-01-01T25:00:00Z",
        "2024-01-01T10:60:00Z",
        "+10000-02-30T10:00:00Z",
        "10000-01-01T10:00:00Z",
        "2024-01-01T-9999999999999999:00:00Z",
        "-9999999999999999-01-01T00:00:00Z",
        "2024-W01-1T10:00:00.000000Z",
        "20240101T10:00:00.00000000Z",
        "2024-01-01T10:00Z",
        "2024-01-01 10:00:00Z",
        "2024-01-01T10:00:00,5Z",
        "2024-01-01T10:00:00.Z",
        "2024-01-01T10:00:00ZZ",
        "2024-01-01T10:00:00.5z",
        "٢٠٢٤-01-01T10:00:00Z",
        "yesterday",
        "Z",
        "",
    ],
)
def test_a_text_that_is_no_moment_in_utc_is_refused(text: str) -> None:
    for taken in (times.canonical_timestamptz, times.arrow_timestamptz):
        with pytest.raises(ValueError, match="is not a timestamp in UTC"):
            taken(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2024-02-29T10:00:00.000000Z", "2024-02-29T10:00:00Z"),
        ("2024-02-29T10:00:00.262486Z", "2024-02-29T10:00:00.262486Z"),
        ("2024-02-29T10:00:00.262400Z", "2024-02-29T10:00:00.2624Z"),
        ("2024-02-29T10:00:00.5Z", "2024-02-29T10:00:00.5Z"),
        ("2024-02-29T10:00:00.100000000Z", "2024-02-29T10:00:00.1Z"),
        ("2024-02-29T10:00:00Z", "2024-02-29T10:00:00Z"),
        ("2024-02-29T10:00:00.123456789Z", "2024-02-29T10:00:00.123456Z"),
        ("2024-02-29T10:00:00.0000009Z", "2024-02-29T10:00:00Z"),
        ("+10000-02-29T10:00:00.1234567Z", "+10000-02-29T10:00:00.123456Z"),
        ("-0043-03-15T10:00:00.000Z", "-0043-03-15T10:00:00Z"),
        ("1500-02-29T10:00:00Z", "1500-02-29T10:00:00Z"),  # of Java's old calendar, by which a snapshot reads
    ],
)
def test_a_moment_in_utc_is_taken_with_its_microseconds_and_no_more(text: str, canonical: str) -> None:
    assert times.canonical_timestamptz(text) == canonical
    held = pa.array([times.arrow_timestamptz(one) for one in (text, canonical)], pa.timestamp("us", tz="UTC"))
    first, second = held.cast(pa.int64()).to_pylist()
    assert first == second is not None


def test_moments_that_no_typed_column_holds_are_null_there() -> None:
    far = ["-4714-01-01T00:00:00Z", "+294276-12-31T23:59:59Z", "infinity", "-infinity"]
    assert [times.arrow_timestamptz(text) for text in far] == [None] * len(far)
