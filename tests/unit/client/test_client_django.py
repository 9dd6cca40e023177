"""Writes of Django: which database gives the token; and a pipeline that is gone, over SQLite in memory, which knows no
function of a pipeline's."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from headwater_client import django as of_django

from tests.support.gone import GONE, after_django


def connection(name: str) -> Any:
    """Of a database: its cursor is its name."""
    return SimpleNamespace(
        in_atomic_block=False,
        savepoint=lambda: None,
        savepoint_commit=lambda _: None,
        cursor=lambda: nullcontext(name),
    )


@pytest.mark.parametrize(("using", "asked"), [(None, "default"), ("orders", "orders")])
def test_the_database_that_was_written_to_is_asked_for_the_token(
    monkeypatch: pytest.MonkeyPatch, using: str | None, asked: str
) -> None:
    """Another one knows nothing of the write: its token would be visible at once."""
    remembered = list[str]()
    monkeypatch.setattr(of_django, "connections", {name: connection(name) for name in ("default", "orders")})
    monkeypatch.setattr(of_django, "take_token", lambda cursor, _pipeline, **_: f"token of {cursor}")
    monkeypatch.setattr(of_django, "remember", remembered.append)
    of_django.written("shop", using=using)
    assert remembered == [f"token of {asked}"]


def test_a_pipeline_that_is_gone_takes_no_write_with_it() -> None:
    told, warned = after_django({"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"})
    assert told == GONE
    assert warned.count("no token for what was written") == 3
