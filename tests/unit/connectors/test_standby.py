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
    """A session: what it was told, in transactions, which ids are under way at each question, and which of other
    databases."""

    def __init__(self, *under_way: list[int], end: int = 100, elsewhere: tuple[int, ...] = ()) -> None:
        self.under_way, self.said, self.end, self.elsewhere = [*under_way], list[str](), end, elsewhere

    @contextmanager
    def transaction(self) -> Any:
        self.said.append("BEGIN")
        yield
        self.said.append("COMMIT")

    def execute(self, query: Any, *_: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(None)
        self.said.append(text)
        if "xact_id" in text:
            return SimpleNamespace(fetchone=lambda: (self.end,))
        if "backend_xid" in text:
            return SimpleNamespace(fetchall=lambda: [(one,) for one in self.elsewhere])
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


def test_a_transaction_of_another_database_has_written_nothing_here() -> None:
    """One that was open for hours let each round of `verify` read the topic once more."""
    later = visibility.IN_THE_LOG  # ids have two halves by then, and a session shows the lower one
    postgres = Postgres([later + 7, later + 8, later + 9], end=later + 100, elsewhere=(8, 9, 10))
    assert read_visible(cast(Connection, postgres), 0.0) == Visible(later + 100, frozenset({later + 7}))
    quiet = Postgres([])
    read_visible(cast(Connection, quiet), 0.0)
    assert not any("backend_xid" in said for said in quiet.said), "nothing is asked where nothing is under way"
