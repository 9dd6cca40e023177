"""What `as-of` says of columns beside others: which hold what one held under a former type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, NestedField, StringType

from operations.as_of import report
from sinks.iceberg.history import former_names
from sinks.iceberg.numbers import NUMBERS


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w"))
    catalog.create_namespace("n")
    names = ("id", "price", "price__net")
    schema = Schema(*(NestedField(at, name, IntegerType()) for at, name in enumerate(names, 1)))
    yield catalog.create_table(("n", "t_history"), schema, properties={NUMBERS: numbers(*names)})
    catalog.close()


def numbers(*names: str) -> str:
    return json.dumps({name: at for at, name in enumerate(names, 1)})


def aside(table: Table, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As `as-of --json` has it."""
    monkeypatch.setattr(report, "statements", lambda *_: {"public.t": "SELECT"})
    cut: Any = SimpleNamespace(tables={"public.t": table}, sink="lake", cut=1, lsn="0/1", frontier=1)
    [told] = report.told(SimpleNamespace(name="shop"), cut, None)["tables"]  # type: ignore[arg-type]
    return told["aside"]


def retyped(table: Table) -> None:
    """As history does it where a column has got a type that Iceberg can't make of the former one."""
    with table.update_schema() as change:
        change.rename_column("price", "price__int")
    with table.update_schema() as change:
        change.add_column("price", StringType())


def test_a_column_that_the_source_has_dropped_is_not_taken_for_one_that_was_put_aside(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to be what `price` held under another type."""
    assert aside(table, monkeypatch) == {}
    with table.transaction() as change:
        change.set_properties({NUMBERS: numbers("id", "price")})
    assert aside(table, monkeypatch) == {}
    retyped(table)
    assert aside(table, monkeypatch) == {"price": ["price__int"]}


def test_one_that_was_dropped_makes_room_and_is_none(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with table.update_schema() as change:
        change.rename_column("price", "price__dropped")
    with table.update_schema() as change:
        change.add_column("price", StringType())
    assert aside(table, monkeypatch) == {}


def test_where_former_schemas_are_gone_the_names_decide(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column too many is read in vain, and of one too few nobody would know."""
    retyped(table)
    known = table.schemas()
    assert former_names(table) == {"id": set(), "price": set(), "price__int": {"price"}, "price__net": set()}
    with table.transaction() as change:
        change.set_properties({NUMBERS: numbers("id", "price")})
    monkeypatch.setattr(Table, "schemas", lambda _: {number: one for number, one in known.items() if number})
    assert former_names(table) is None
    assert aside(table, monkeypatch) == {"price": ["price__int", "price__net"]}
