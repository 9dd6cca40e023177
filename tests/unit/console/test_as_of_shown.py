"""What `as-of` prints of one engine is a text that the engine takes."""

from __future__ import annotations

import ast
from typing import Any

import duckdb

from console.cli.as_of import shown_lines
from operations.as_of.statements import python_text

SQL = {
    "spark": "SELECT `id` FROM t",
    "duckdb": "SELECT 1 AS id",
    "pyiceberg": python_text({"uri": "sqlite:////c.db"}, "hw_lake", "n.t_history", "SELECT 1 AS id", 7),
    "duckdb_versions": "SELECT 2",
}
ENDS = ("t, spark", "t, duckdb", "t, pyiceberg")
TABLE = {"table": "public.t", "aside": {"price": ["price__int", "price__text"]}, "sql": SQL}
REPORT: dict[str, Any] = {"lsn": "0/7", "tag": None, "frontier": "0/9", "tables": [TABLE, {**TABLE, "aside": {}}]}


def text(engine: str | None, **more: Any) -> str:
    return "\n".join(shown_lines({**REPORT, **more}, engine))


def test_for_pyiceberg_it_is_python() -> None:
    """The first line was a comment of SQL: a file that was made of it did not run."""
    found = text("pyiceberg")
    assert len(ast.parse(found).body) == 10
    assert found.startswith("# as of 0/7; history is complete up to 0/9 at least\n# public.t: what price was under a")


def test_for_duckdb_it_is_sql() -> None:
    found = text("duckdb", tag="march")
    assert found.startswith("-- as of 0/7, tag march; ")
    with duckdb.connect() as connection:
        assert len(connection.extract_statements(found)) == 2


def test_without_an_engine_it_is_each_in_its_own_comments() -> None:
    marks = [line.split()[0] for line in text(None).splitlines() if line.endswith(ENDS)]
    assert marks == ["--", "--", "#", "--", "--", "#"]
