"""`plan --migration` tries SQL out on a real Postgres, says what it would mean, and leaves nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ConfigError, SourceError
from cdc.pipeline import Pipeline
from operations.schema.migrations import let_through, migrations
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack
COLUMNS = "SELECT attname::text FROM pg_attribute WHERE attrelid = 'public.things'::regclass AND attnum > 0"


@pytest.fixture
def applied(source: SourceDatabase, tmp_path: Path) -> Pipeline:
    """A pipeline whose sinks were brought to the tables as they are."""
    source.execute("CREATE TABLE public.things (id int PRIMARY KEY, a text)", "INSERT INTO public.things VALUES (1)")
    views = {"any": {"root": "public.things"}}
    pipeline = source.pipeline("public.things", views=views, engine={"state_dir": str(tmp_path / "state")})
    let_through(pipeline)
    return pipeline


def tried(pipeline: Pipeline, folder: Path, sql: str) -> list[str]:
    file = folder / "V1.sql"
    file.write_text(sql)
    return [f"{table['table']}: {', '.join(table['changes'])}" for table in migrations(pipeline, file)]


def test_it_is_told_and_not_done(source: SourceDatabase, applied: Pipeline, tmp_path: Path) -> None:
    sql = "-- V1; of the things\nALTER TABLE things ADD b int DEFAULT 1;\nUPDATE things SET a = '50%; or so';"
    (said,) = tried(applied, tmp_path, sql)
    assert said.startswith("public.things: column b")
    assert source.rows(COLUMNS) == [("id",), ("a",)]
    assert source.rows("SELECT id, a FROM public.things") == [(1, None)]
    assert tried(applied, tmp_path, "CREATE TABLE other (id int)") == []
    assert tried(applied, tmp_path, "DROP TABLE things") == []
    assert source.rows("SELECT count(*) FROM public.things") == [(1,)]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "/* so */ end", "PREPARE TRANSACTION 'kept'"])
def test_one_that_would_stay_is_refused_before_anything_of_it_is_done(
    source: SourceDatabase, applied: Pipeline, tmp_path: Path, end: str
) -> None:
    with pytest.raises(ConfigError, match=r"V1\.sql:2: .*must not begin or end"):
        tried(applied, tmp_path, f"ALTER TABLE things ADD b int;\n{end}; ALTER TABLE things ADD c int")
    assert source.rows(COLUMNS) == [("id",), ("a",)]


def test_the_server_takes_one_statement_at_a_time_whatever_was_understood(
    source: SourceDatabase, applied: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.schema.migrations.statements", lambda text: [(1, text, "alter table")])
    with pytest.raises(SourceError, match="multiple commands"):
        tried(applied, tmp_path, "ALTER TABLE things ADD b int; COMMIT")
    assert source.rows(COLUMNS) == [("id",), ("a",)]


def test_what_postgres_refuses_is_told_with_its_line(source: SourceDatabase, applied: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r'(?s)refuses .*V1\.sql:2: syntax error at or near "ADDD"'):
        tried(applied, tmp_path, "ALTER TABLE things ADD b int;\nALTER TABLE things ADDD c int")
    index = "ALTER TABLE things ADD b int;\n\nCREATE INDEX CONCURRENTLY ON things (a)"
    with pytest.raises(SourceError, match=r"V1\.sql:3: can't be tried out: .*inside a transaction block"):
        tried(applied, tmp_path, index)
    with pytest.raises(SourceError, match="invalid transaction termination"):
        tried(applied, tmp_path, "DO $$ BEGIN ALTER TABLE things ADD b int; COMMIT; END $$")
    assert source.rows(COLUMNS) == [("id",), ("a",)]
