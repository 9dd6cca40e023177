"""A table that is removed leaves no file, wherever it was cut: with pyiceberg and SQLite alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from sinks.iceberg.catalogue import drop_table, open_catalog
from sinks.iceberg.owners import GENERATION

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["ann", "bob"]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Any]:
    place = SimpleNamespace(catalog_uri=str(tmp_path / "c.db"), warehouse=str(tmp_path / "w"), namespace="n")
    with open_catalog(place, "hw_lake") as opened:
        opened.create_namespace("n")
        table = opened.create_table("n.v", ROWS.schema, properties={GENERATION: "1"})
        for _ in range(3):
            table.append(ROWS)
    yield place


def files(lake: Any) -> list[Path]:
    return [path for path in Path(lake.warehouse).rglob("*") if path.is_file()]


class Cut(BaseException):
    """As a signal would."""


@pytest.mark.parametrize("after", range(0, 18, 2))
def test_what_was_cut_is_ended_by_the_same_once_more(lake: Any, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """pyiceberg takes the name away first: all rows stayed in Parquet for ever, and the second time said "removed"."""
    left, delete = [after], PyArrowFileIO.delete

    def cut(self: PyArrowFileIO, location: Any) -> None:
        if not left[0]:
            raise Cut
        left[0] -= 1
        delete(self, location)

    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "delete", cut)
        try:
            drop_table(lake, "hw_lake", "v", 1, "shop/lake")
        except Cut:
            assert files(lake)
    drop_table(lake, "hw_lake", "v", 1, "shop/lake")
    assert [path for path in files(lake) if path.suffix != ".json"] == [], "the newest metadata has no row's values"
    with open_catalog(lake, "hw_lake") as opened:
        assert not opened.table_exists("n.v")


def test_each_manifest_is_read_once(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not once for each snapshot that has it: of hundreds of snapshots most have the same."""
    seen: list[str] = []
    import pyiceberg.catalog as theirs

    delete = theirs.delete_data_files

    def noted(io: Any, some: list[Any]) -> None:
        seen.extend(one.manifest_path for one in some)
        delete(io, some)

    monkeypatch.setattr(theirs, "delete_data_files", noted)
    drop_table(lake, "hw_lake", "v", 1, "shop/lake")
    assert len(seen) == len(set(seen)) == 3 and files(lake) == []
    assert not Path(lake.warehouse, "n", "v").exists()
