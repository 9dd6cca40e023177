"""What is said of a query that DuckDB refuses, and what docs/sinks.md says to ask."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace

import duckdb
import pytest

from operations.query.statement import refused
from sinks.iceberg.catalogue import spark_properties
from tests.unit.project.test_docs import ROOT

SINKS = (ROOT / "docs/sinks.md").read_text()


@pytest.mark.parametrize("asked", ["sum(w)", "w * 2", "round(w, 2)", "sum(d)"])
def test_a_number_that_is_a_text_is_to_be_cast(asked: str) -> None:
    """A numeric without a precision is one; what was said was which candidates there are."""
    with duckdb.connect() as connection, pytest.raises(duckdb.BinderException) as found:
        connection.execute(f"SELECT {asked} FROM (SELECT '1.5' AS w, DATE '2026-01-01' AS d)")
    told = refused(found.value, "t")
    assert ("CAST(… AS DECIMAL" in str(told.fix)) == (asked != "sum(d)")
    assert ("Candidate" in told.what) == (asked == "sum(d)")
    assert "No function matches" in told.what


def test_rows_that_are_read_again_are_left_out_as_the_documentation_says() -> None:
    [query] = re.findall(r"```sql\n(SELECT id, name, price, _hw_commit_time.*?)```", SINKS, re.DOTALL)
    events = [
        (1, "a", None, "read", 1), (1, "a", None, "read", 2), (1, "a", 5, "update", 3), (1, "a", 5, "read", 4),
        (1, "a", 5, "update", 5), (1, None, None, "delete", 6), (1, None, None, "read", 7), (1, "b", 5, "read", 8),
        (2, None, None, "read", 1), (2, None, None, "read", 9),
    ]  # fmt: skip
    with duckdb.connect() as connection:
        columns = "id INT, name VARCHAR, price INT, _hw_op VARCHAR, _hw_position BIGINT"
        connection.execute(f"CREATE TABLE products_history ({columns}, _hw_offset BIGINT, _hw_commit_time BIGINT)")
        connection.executemany(
            "INSERT INTO products_history SELECT *, _5, _5 FROM (SELECT ? a, ? b, ? c, ? d, ? _5)", events
        )
        found = connection.execute(f"FROM ({query}) ORDER BY id, valid_from").fetchall()
    assert found == [
        (1, "a", None, 1, 3), (1, "a", 5, 3, 5), (1, "a", 5, 5, 6), (1, None, None, 7, 8), (1, "b", 5, 8, None),
        (2, None, None, 1, None),
    ]  # fmt: skip


def test_spark_opens_what_the_documentation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = re.findall(r"settings = (\{.*?\n\})", SINKS, re.DOTALL)
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.Dict)
    pairs = [pair for pair in zip(tree.keys, tree.values, strict=True) if isinstance(pair[1], ast.Constant)]
    said = {ast.literal_eval(name): ast.literal_eval(value) for name, value in pairs if name is not None}
    monkeypatch.setattr("sinks.iceberg.catalogues.sql.SqlCatalogue._make_folders", lambda _: None)
    sink = SimpleNamespace(catalog_uri="/path/catalog.db", warehouse="/path", namespace="flights")
    wanted = {name: value for name, value in spark_properties(sink).items() if not name.startswith("cache")}
    begin = "spark.sql.catalog.hw_warehouse."
    assert {name.removeprefix(begin): value for name, value in said.items() if name.startswith(begin)} == wanted
