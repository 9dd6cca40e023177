"""A warehouse's flow meets a table that is not its own: it is refused, and the table stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.catalogue import Column, Table
from cdc.errors import SinkRefused, StateError
from cdc.view import View
from sinks.iceberg.catalogue import LEASE
from sinks.iceberg.owners import GENERATION, MADE_BY
from spark.disk.lease import Lease
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from spark.warehouse.commits import loaded
from spark.warehouse.merge import ready_place
from tests.support.plain_spark import lake_session

# PySpark leaves the sockets that rows come through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
CATALOG, OWNER = "hw_lake", "shop/lake"
ROW = "INSERT INTO orders (id, _hw_version) VALUES (1, 8)"
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

    def start(self, state: str, owner: str = OWNER, *, new: bool = True) -> None:
        """What a flow with a state folder of its own does before it reads; one that is not new goes on."""
        folder = self.folder / self.namespace / state
        lease = Lease(folder, "tested")
        lease.take()
        spec = FlowSpec("lake", {"orders": View.identity(TABLE)}, {"o": ("orders",)}, {"o": TABLE}, {}, {})
        flow = Flow("orders", spec, Reading("", {}, None), folder / "orders")
        if not new:
            flow.checkpoint.mkdir(parents=True, exist_ok=True)
            (flow.checkpoint / "metadata").write_text("{}")
        try:
            ready_place(self.spark, flow, self.sink, CATALOG, lease, owner)
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


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("rows", [0, 1])
def test_another_pipelines_table_is_not_claimed(where: tuple[SparkSession, Path], rows: int, new: bool) -> None:
    """A copy of the file under another name took an empty one for its own, and fenced the pipeline that had made it."""
    lake = Lake(*where, f"copied_{rows}_{new}")
    lake.start("first")
    if rows:
        lake.sql(ROW)
    before = lake.seen()
    assert before[0][MADE_BY] == "shop/lake/orders"
    with pytest.raises(SinkRefused, match=r"shop/lake/orders has made it, and not shop_test/lake/orders"):
        lake.start("copy", "shop_test/lake", new=new)
    assert lake.seen() == before
    lake.start("first", new=False)


@pytest.mark.parametrize("rows", [0, 1])
def test_another_tools_table_is_not_claimed(where: tuple[SparkSession, Path], rows: int) -> None:
    """It counted as the first generation, and lost all columns that the view lacks."""
    lake = Lake(*where, f"tool_{rows}")
    lake.sql("CREATE TABLE orders (id int, total int) USING iceberg")
    if rows:
        lake.sql("INSERT INTO orders VALUES (1, 8)")
    before = lake.seen()
    for new in (True, False):
        with pytest.raises(SinkRefused, match="another tool has made it"):
            lake.start("ours", new=new)
    assert lake.seen() == before


def test_a_table_of_before_says_whose_it_is_once_its_flow_goes_on(where: tuple[SparkSession, Path]) -> None:
    lake = Lake(*where, "before")
    lake.start("first")
    lake.sql(ROW)
    lake.sql(f"ALTER TABLE orders UNSET TBLPROPERTIES ('{MADE_BY}')")
    lake.start("first", new=False)
    said, _, rows = lake.seen()
    assert (said[MADE_BY], said[GENERATION], rows) == ("shop/lake/orders", "1", [(1, 8)]) and LEASE in said
