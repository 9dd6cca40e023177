"""What is kept of the leaves of a partitioned table, of what Postgres has answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.shapes import Shape, leaf_print
from connectors.tables import shapes as read

TABLE = Table("public", "t", (Column("id", "integer", "int4", ordinal=1),), ("id",))


def made(file: str | None, *leaves: tuple[str, str]) -> Shape:
    below = [[oid, f"t_{oid}", "7", its] for oid, its in leaves]
    row: tuple[Any, ...] = ("public.t", 9, file, [], below, [["1", "5"]])
    return read._shapes(Catalogue({"public.t": TABLE}), [row], 100)["public.t"]


def test_each_leaf_is_kept_with_its_file_and_a_plain_table_has_none() -> None:
    assert made("4711") == Shape(TABLE, 100, 9, "4711", (), (), ((1, "5"),))
    parts = ((11, "t_11", "7"), (12, "t_12", "7"))
    assert made(None, ("11", "1"), ("12", "0")) == Shape(TABLE, 100, 9, "", (), parts, ((1, "5"),), ((11, 1), (12, 0)))
    assert made(None).leaves == ()


def test_of_very_many_leaves_one_text_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MOST_LEAVES", 1)
    many = made(None, ("11", "1"), ("12", "2"))
    assert (many.files, many.leaves, len(many.parts)) == (leaf_print([(11, 1), (12, 2)]), None, 2)
    assert made(None, ("11", "1")).leaves == ((11, 1),)


def test_a_look_whether_tables_were_altered_is_at_captured_ones_alone() -> None:
    """Every column of every partition of their schemas was put into one text, each second."""
    asked = list[tuple[str, dict[str, list[str]]]]()

    def execute(query: str, values: dict[str, list[str]]) -> Any:
        asked.append((query, values))
        return SimpleNamespace(fetchone=lambda: ("text",))

    found = read.fingerprint(SimpleNamespace(execute=execute), ["b.*", "a.two", "a.one", "b.own"])  # type: ignore[arg-type]
    [(query, values)] = asked
    assert found == "text" and values == {"schemas": ["a", "b"], "tables": ["a.one", "a.two", "b.own"], "whole": ["b"]}
    assert "attrelid = ANY(ARRAY(SELECT DISTINCT root FROM tree))" in query, "a partition's columns are its root's"
    assert "FROM pg_inherits" not in query and "JOIN pg_class c ON c.oid = t.oid" in query
