"""The figures of the pages: none that is not known, and none that says something else than what is."""

from __future__ import annotations

import pytest

from console.http.pages.render import ENVIRONMENT, span

DAY = 86_400.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.44, "0.4 s"), (89 * 60, "89 min"), (36.5 * 3600, "36.5 h"), (99.5 * DAY, "99.5 d"), (1234.4 * DAY, "1,234 d")],
)
def test_a_span_of_years_is_told_in_days(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_what_is_ahead_of_this_clock_is_told_as_now() -> None:
    """As a letter of a machine whose clock is ahead."""
    page = ENVIRONMENT.from_string('{% import "macros.html" as m with context %}{{ m.verified(sink, link) }}')
    found = {"at": 135.0, "error": None, "equal": True, "sample": None, "generation": 1}
    said = page.render(now=100.0, link=str, sink={"sink": "search", "verified": found, "generation": 1})
    assert "0.0 s ago: equal" in said
