"""Where commits wait for a standby: what can be seen, and what of ours waits for none."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.database import visibility
from connectors.database.visibility import Visible, read_visible
from connectors.database.write_tokens import beat
from connectors.names import Names
from connectors.postgres import Connection


class Postgres:
    """A session: what it was told, in transactions, and which ids are under way at each question."""

    def __init__(self, *under_way: list[int]) -> None:
        self.under_way, self.said = [*under_way], list[str]()

    @contextmanager
    def transaction(self) -> Any:
        self.said.append("BEGIN")
        yield
        self.said.append("COMMIT")

    def execute(self, query: Any, *_: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(None)
        self.said.append(text)
        if "xact_id" in text:
            return SimpleNamespace(fetchone=lambda: (100,))
        return SimpleNamespace(fetchall=lambda: [(one,) for one in self.under_way.pop(0)])


def test_a_touch_of_the_heartbeat_row_waits_for_no_standby() -> None:
    """Nothing ends such a wait: Postgres's limit of a statement does not hold for its COMMIT."""
    postgres = Postgres()
    beat(cast(Connection, postgres), Names("headwater", "p"))
    begin, local, update, commit = postgres.said
    assert (begin, local, commit) == ("BEGIN", "SET LOCAL synchronous_commit = local", "COMMIT")
    assert update.startswith("UPDATE ")


def test_only_what_was_in_the_log_before_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(visibility, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    asked = lambda *under_way, seconds: read_visible(cast(Connection, Postgres(*under_way)), seconds)  # noqa: E731
    assert asked([7, 101], [7], [102], seconds=9) == Visible(100, frozenset())
    assert asked([7, 8, 101], [8, 101], [8], seconds=1.5) == Visible(100, frozenset({8}))
    assert asked([7, 8, 101], seconds=0) == Visible(100, frozenset({7, 8}))
