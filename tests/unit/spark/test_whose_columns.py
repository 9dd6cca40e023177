"""What is written to a table names our columns only: other engines may have added some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.view import View
from operations.verify.repair import warehouse as repair
from spark.warehouse import whose

VIEW = View.identity(Table("public", "t", (Column("id", "int4", "int4"), Column("v", "text", "text")), ("id",)))


class Rows:
    """A frame that knows its columns, and to which table it was appended."""

    def __init__(self, *columns: str, table: str = "") -> None:
        self.columns, self.appended, self._table = list(columns), dict[str, list[str]](), table
        there = [SimpleNamespace(name=name, dataType="string") for name in ("id", "V", "note", "_hw_version")]
        self.sparkSession = SimpleNamespace(table=lambda _: SimpleNamespace(schema=there))

    def select(self, *columns: str) -> Rows:
        rows = Rows(*columns)
        rows.appended = self.appended
        return rows

    def writeTo(self, table: str) -> Any:
        return SimpleNamespace(append=lambda: self.appended.update({table: self.columns}))


def test_rows_that_are_appended_have_a_null_for_a_column_that_somebody_has_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def null(_value: None) -> Any:
        return SimpleNamespace(cast=lambda kind: SimpleNamespace(alias=lambda name: f"null {kind} {name}"))

    monkeypatch.setattr(whose, "F", SimpleNamespace(lit=null))
    rows = Rows("id", "v", "_hw_version")
    whose.append_rows(rows, "c.n.t")  # type: ignore[arg-type]
    assert rows.appended == {"c.n.t": ["`id`", "`v`", "`_hw_version`", "null string note"]}


def test_a_repair_leaves_a_column_alone_that_somebody_has_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """It named all of the table's, and failed at one that no row that was remade has."""
    kinds = [("id", "int"), ("v", "string"), ("later", "string")]
    monkeypatch.setattr(repair, "table_columns", lambda *_: kinds)
    monkeypatch.setattr(repair, "_is_ours", lambda *_: True)
    place = SimpleNamespace(find=lambda: "c.n.t", check=lambda *_: None)
    monkeypatch.setattr(repair, "TablePlace", lambda *_: place)
    said: list[str] = []
    there = [SimpleNamespace(name=name) for name in ("id", "v", "note", "_hw_version")]
    spark = SimpleNamespace(table=lambda _: SimpleNamespace(schema=there), sql=said.append)
    build = SimpleNamespace(
        pipeline=SimpleNamespace(sinks={"s": None}),
        sink="s",
        token=1,
        owner="p/s",
        generation=SimpleNamespace(number=1),
    )
    source: Any = SimpleNamespace(createOrReplaceTempView=lambda _: None, unpersist=lambda: None)
    source.persist = lambda: source
    repair.merge(SimpleNamespace(build=build, spark=spark, view=VIEW), [source])  # type: ignore[arg-type]
    assert "INSERT (`id`, `v`, `_hw_version`)" in said[0]
    assert "note" not in said[0] and "later" not in said[0], "one that the table does not have yet either"
