"""A sum that has no place in Spark SQL's types is the end of its document and not of the verification of all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cdc.join.tree import Aggregate, Function
from cdc.join.view import JoinedView
from tests.support.plain_spark import engine_session
from tests.support.trees import node, table, texts
from truth.assembled import document_of, marked, shape_of, spark_row, sparks, sums_of
from truth.joins import documents
from truth.spark_sql import Broken, computed

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.sampled(part=0),
]

OWNERS = table("owners", "id", id="int4")
SHARES = table("shares", "id", id="int4", owner="int4", n="int8", x="numeric(38,2)")
MOST, WIDEST = str(2**63 - 1), "9" * 36
ROWS = {
    "public.owners": texts("id", "1", "2", "3"),
    "public.shares": texts(
        "id owner n x",
        *(f"1 1 {MOST} {WIDEST}.99", "2 1 0 0.00", f"3 2 {MOST} {WIDEST}.99", "4 2 1 0.01", "5 3 7 -", "6 3 - 5.00"),
    ),
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with engine_session() as session:
        yield session


@pytest.mark.parametrize(
    ("column", "function", "kind", "held"),
    [("n", "sum", "bigint", ["9223372036854775807", "7"]), ("x", "sum", "decimal(38,2)", [f"{WIDEST}.99", "5.00"])],
)
def test_a_sum_without_a_place_breaks_its_own_document(
    spark: SparkSession, column: str, function: Function, kind: str, held: list[str]
) -> None:
    """Named twice it was cast outside of what guards each expression, and the job of the whole page failed."""
    total = Aggregate("total", SHARES, (("id", "owner"),), function, value=column)
    tree = node(OWNERS, columns=(("id", "id"),), aggregates=(total,))
    fields = {"text": "CAST(total AS string)", "known": "total IS NOT NULL"}
    view = JoinedView("v", OWNERS, ("id",), tree.columns, fields, root=tree)
    wide = marked(tree, view.row_sql)
    seen, sums = sparks(wide, view.row_sql), sums_of(wide, view.row_sql, {})
    rows = [row for _, row in documents(wide, ("id",), ROWS)]
    assert [document_of(wide, row)["id"] for row in rows] == [1, 2, 3]
    given = [sums.without_place(row) or spark_row(seen, row) for row in rows]
    first, broken, last = computed(spark, view, shape_of(seen, {}), given)
    assert [first, last] == [{"text": text, "known": True} for text in held]
    assert isinstance(broken, Broken) and dict(broken.said) == {"aggregate total": f"sum({column})"}
    assert broken.words.endswith(f"has no place in its type, {kind}")
