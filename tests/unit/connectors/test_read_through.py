"""Where the log was when a table's rows were in its topic for the first time, as the list of captured tables has it."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import sql

from connectors.captured import captured
from connectors.captured.captured import Captured, _entry, _note, settle
from connectors.database.schema import _newer_columns
from connectors.names import Names

AT = datetime(2026, 11, 30, tzinfo=UTC)


class Asked:
    """A connection that writes down what it is asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def execute(self, query: sql.Composed | str, _params: Any = None) -> Any:
        self.texts.append(query if isinstance(query, str) else query.as_string(None))
        return iter(())

    def transaction(self) -> Any:
        return nullcontext()


class Columns(Asked):
    """One to a database whose list has these columns."""

    def __init__(self, *columns: str) -> None:
        super().__init__()
        self.columns = columns

    def execute(self, query: sql.Composed | str, _params: Any = None) -> Any:
        super().execute(query)
        return ((one,) for one in self.columns)


def read_through(begins: dict[str, Any], through: dict[str, Any] | None) -> int | None:
    return _entry("public.t", "done", None, AT, None, False, None, None, begins, through).read_through


def test_it_is_known_of_the_topic_that_there_is() -> None:
    """After a topic was made anew the place is one before all that is in it."""
    through = {"lsn": "0/2CA3B1F8", "topic": "T1"}
    assert read_through({"0": 5, "topic": "T1"}, through) == 0x2CA3B1F8
    assert read_through({"topic": "T2"}, through) is None
    assert read_through({}, through) is None
    assert read_through({}, {"lsn": "0/1", "topic": None}) == 1, "an older version has kept no topic"
    assert read_through({"topic": "T1"}, None) is None


@pytest.mark.parametrize("there", [True, False])
def test_it_is_noted_as_a_table_is_complete_unless_an_older_version_has_made_the_list(
    there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "has_columns", lambda *_: there)
    asked: Any = Asked()
    assert settle(asked, Names("headwater", "p"), [Captured("public.t", "requested", "s", AT)]) == set()
    (text,) = asked.texts
    assert ("read_through = CASE WHEN c.condition IS NULL AND (c.read_through IS NULL OR" in text) == there
    assert ("pg_current_wal_insert_lsn()" in text) == there


@pytest.mark.parametrize("stays", [True, False])
def test_it_goes_with_the_topic(stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is swept stays in its topic; read into another one, a table is read for the first time."""
    monkeypatch.setattr(captured, "look", lambda *_: SimpleNamespace(by_name={}))
    asked: Any = Asked()
    begins: Any = SimpleNamespace(of=lambda *_: "{}")
    files: Any = None
    note = _note(Names("headwater", "p"), "pub", "public.t", "wanted", None, None, begins, files, sweep=stays)
    note.run(SimpleNamespace(setup=asked))  # type: ignore[arg-type]
    assert f"read_through = CASE WHEN {str(stays).lower()} THEN t.read_through END" in asked.texts[0]


def test_of_tables_that_an_older_version_has_read_it_is_where_the_log_is_by_now() -> None:
    """Not of one that was changed since: it may be about to get another topic."""
    names, asked = Names("headwater", "p"), Columns("condition", "sweep", "identity", "gap", "left_at", "begins")
    (action,) = _newer_columns(cast(Any, asked), names)
    assert action.after is not None and "read_through" in action.after
    action.run(cast(Any, SimpleNamespace(setup=asked)))
    alter, noted = asked.texts[1:]
    assert "ADD COLUMN IF NOT EXISTS read_through jsonb" in alter
    assert "SET read_through = jsonb_build_object('lsn', pg_current_wal_insert_lsn()::text" in noted
    assert "WHERE c.snapshot = 'done' AND c.gap IS NULL AND c.read_through IS NULL" in noted
    assert _newer_columns(cast(Any, Columns(*asked.columns, "read_through")), names) == []
