"""A warehouse's flow meets a table that is not its own: it is refused, and the table stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.catalogue import Column, Table
from cdc.errors import StateError
from cdc.view import View
from spark.disk.lease import Lease
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from spark.warehouse.commits import loaded
from spark.warehouse.merge import ready_place
from tests.support.plain_spark import lake_session

# PySpark leaves the sockets that rows come through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
CATALOG = "hw_lake"
TABLE = Table("public", "orders", (Column("id", "int4", "int4", ordinal=1),), ("id",))


class Lake:
    """Tables of one namespace, and flows that would keep them."""

    def __init__(self, spark: SparkSession, folder: Path, namespace: str) -> None:
        self.spark, self.folder, self.namespace = spark, folder, namespace
        self.sink: Any = SimpleNamespace(
            catalog_uri=str(folder / "c.db"), warehouse=str(folder / "w"), namespace=namespace, format_version=2
        )
        spark.sql(f"CREATE NAMESPACE {CATALOG}.{namespace}")

    def sql(self, text: str) -> None:
        """A statement about ``orders`` of somebody else's."""
        self.spark.sql(text.replace("orders", f"{CATALOG}.{self.namespace}.orders", 1))

    def seen(self) -> tuple[dict[str, str], list[str], list[tuple[Any, ...]]]:
        """The table's properties, columns and rows."""
        name = f"{CATALOG}.{self.namespace}.orders"
        self.spark.catalog.refreshTable(name)
        found = self.spark.table(name)
        return dict(loaded(self.spark, name).properties()), found.columns, sorted(map(tuple, found.collect()))

    def start(self, state: str) -> None:
        """What a flow with a state folder of its own does before it reads."""
        folder = self.folder / self.namespace / state
        lease = Lease(folder, "tested")
        lease.take()
        spec = FlowSpec("lake", {"orders": View.identity(TABLE)}, {"o": ("orders",)}, {"o": TABLE}, {}, {})
        flow = Flow("orders", spec, Reading("", {}, None), folder / "orders")
        try:
            ready_place(self.spark, flow, self.sink, CATALOG, lease)
        finally:
            lease.release()


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSession, Path]]:
    folder = tmp_path_factory.mktemp("lake")
    with lake_session(folder) as session:
        yield session, folder


def test_a_table_with_rows_stays_as_it_was_when_a_new_flow_is_refused(where: tuple[SparkSession, Path]) -> None:
    """It had lost the columns that the view lacks by then, and bore the lease of who was refused."""
    lake = Lake(*where, "filled")
    lake.start("first")
    lake.sql("ALTER TABLE orders ADD COLUMNS (note string)")
    lake.sql("INSERT INTO orders (id, _hw_version, note) VALUES (1, 8, 'kept')")
    before = lake.seen()
    assert before[1:] == (["id", "_hw_version", "note"], [(1, 8, "kept")])
    with pytest.raises(StateError, match="the target of orders holds rows"):
        lake.start("lost")
    assert lake.seen() == before


def test_a_first_start_that_was_cut_goes_on_with_its_empty_table(where: tuple[SparkSession, Path]) -> None:
    lake = Lake(*where, "cut")
    lake.start("first")
    lake.start("first")
    assert lake.seen()[1:] == (["id", "_hw_version"], [])
