"""Writes of Django whose pipeline is gone, over SQLite in memory, which knows no function of a pipeline's."""

from __future__ import annotations

from tests.support.gone import GONE, after_django


def test_a_pipeline_that_is_gone_takes_no_write_with_it() -> None:
    told, warned = after_django({"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"})
    assert told == GONE
    assert warned.count("no token for what was written") == 3
