"""Names of cuts beside tags of somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from cdc.errors import TagExists
from operations.as_of.naming import name_cut
from sinks.iceberg.history import tags


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w"))
    catalog.create_namespace("n")
    rows = pa.table({"id": pa.array([1], pa.int32())})
    made = catalog.create_table(("n", "t_history"), rows.schema)
    made.append(rows)
    yield made
    catalog.close()


def cut_of(table: Table) -> Any:
    return SimpleNamespace(tables={"public.t": table}, cut=1, lsn="0/1", source="s")


def test_a_tag_that_is_no_cut_is_told_as_such_and_how_it_is_dropped(table: Table) -> None:
    """`as-of --drop` was advised, which knows nothing of it."""
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "march 1").commit()  # type: ignore[union-attr]
    with pytest.raises(TagExists, match=r"n\.t_history has a tag march 1 in Iceberg already, which is no cut") as found:
        name_cut(cut_of(table), "march 1")
    assert "ALTER TABLE n.t_history DROP TAG `march 1`" in found.value.fix and "--drop" not in found.value.fix
    assert tags([table]) == {}


def test_of_a_branch_nothing_is_advised_but_another_name(table: Table) -> None:
    with pytest.raises(TagExists, match="has a branch main in Iceberg") as found:
        name_cut(cut_of(table), "main")
    assert found.value.fix == "choose another name"


def test_a_cut_of_that_name_is_to_be_dropped_as_one(table: Table) -> None:
    name_cut(cut_of(table), "march")
    table.refresh()
    with pytest.raises(TagExists, match=r"there is a cut march already, on n\.t_history") as found:
        name_cut(cut_of(table), "march")
    assert "--drop NAME" in found.value.fix
