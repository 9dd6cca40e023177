"""No cut is made through a history that was rolled back, until what it lacks was read again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType

from cdc.errors import BeyondFrontier
from cdc.records.history import OFFSET, PARTITION
from operations.as_of import cut as cuts
from operations.as_of.put_back import refuse_put_back
from spark.warehouse.marks import OFFSETS
from tests.unit.operations.test_as_of_read_again import NOW, Lake

ROWS = pa.schema([(PARTITION, pa.int32()), (OFFSET, pa.int64())])


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    yield opened
    opened.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """One that holds its topic up to 9 and, of another partition, 7."""
    catalog.create_namespace("n")
    made = catalog.create_table("n.t_history", ROWS)
    for offset in (2, 5, 8):
        row = pa.table({PARTITION: [0], OFFSET: [offset]}, schema=ROWS)
        made.append(row, {OFFSETS: json.dumps({"0": offset + 1, "1": 7})})
    return made


def snapshots(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.metadata.snapshots]


def test_one_that_lacks_what_was_written_is_refused(table: Table) -> None:
    """Cuts of the time in between were called complete, and showed rows as they had been before."""
    refuse_put_back("public.t", table, {0: 9, 1: 7})
    refuse_put_back("public.t", table, {0: 4})  # the batch that has written more has not ended
    table.manage_snapshots().rollback_to_snapshot(snapshots(table)[0]).commit()
    with pytest.raises(BeyondFrontier, match=r"history of public\.t was put back to an older state") as failed:
        refuse_put_back("public.t", table, {0: 9, 1: 7})
    assert "start `headwater run` again" in str(failed.value)
    refuse_put_back("public.t", table, {1: 7})  # what was forgotten is read again, and waited for elsewhere


def test_one_whose_newest_snapshots_somebody_has_expired_is_not(table: Table) -> None:
    table.append(pa.table({PARTITION: [1], OFFSET: [0]}, schema=ROWS))  # of upkeep, which says nothing
    for one in snapshots(table)[1:3]:
        table.maintenance.expire_snapshots().by_id(one).commit()
    refuse_put_back("public.t", table, {0: 9, 1: 7})


def test_one_of_before_snapshots_said_up_to_where_is_not(catalog: SqlCatalog) -> None:
    catalog.create_namespace("n")
    made: Any = catalog.create_table("n.t_history", ROWS)
    refuse_put_back("public.t", made, {0: 9})


def test_a_cut_asks_for_what_was_applied_before_it_loads_the_tables(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "Names", type("Names", (), {"of": lambda _: None}))
    lake = Lake(catalog, monkeypatch)
    with lake.table.update_schema() as change:
        for field in ROWS:
            change.add_column(field.name, {PARTITION: IntegerType(), OFFSET: LongType()}[field.name])
    marks = {OFFSETS: json.dumps({"0": 3})}
    lake.table.append(pa.table({PARTITION: [0], OFFSET: [2]}, schema=ROWS), marks)
    applied = {"public.t": {0: 3}}

    def told(_: Path) -> dict[str, dict[int, int]]:
        return applied

    monkeypatch.setattr(cuts, "applied_offsets", told)
    assert lake.cut() == NOW
    applied["public.t"][0] = 4
    with pytest.raises(BeyondFrontier, match="put back"):
        lake.cut()
