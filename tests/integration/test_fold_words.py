"""What the pipeline file may say of a fold, and what Spark takes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdc.errors import ConfigError
from cdc.fold import FoldView, folded
from cdc.stateful import refuse_stateful
from cdc.view import View
from spark.events.fold import analyse_fold
from spark.events.kept_columns import refuse_columns
from tests.support.folds import INITIAL, OUTBOX, STEP, view_of
from tests.support.plain_spark import session_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session_of(SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")) as session:
        yield session


def test_a_state_has_the_types_of_initial(spark: SparkSession) -> None:
    known = analyse_fold(spark, view_of("events"))
    assert known.state == {"n": "int", "total": "decimal(20,2)", "words": "array<string>"}
    assert known.needs_spark


@pytest.mark.parametrize(
    ("initial", "step", "said"),
    [
        ("named_struct('n',", STEP, "is not Spark SQL"),
        ("named_struct('n', payload)", STEP, "is not Spark SQL"),
        ("named_struct('n', 0) IS", STEP, "its last word is taken for a name"),
        ("1", "state", "is a int, and no struct"),
        ("named_struct('n', NULL)", "state", "n has no type"),
        ("named_struct('account', 'x')", "state", "account is a field of the state, and a column"),
        (INITIAL, "named_struct('n', state.m)", "does not give a struct"),
        (INITIAL, "event.nothing", "does not give a struct"),
        (INITIAL, "state.n + 1", "does not give a struct"),
    ],
)
def test_what_is_no_fold_is_refused_by_name(spark: SparkSession, initial: str, step: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        analyse_fold(spark, replace(view_of("events"), initial=initial, step=step))
    assert "view account" in str(error.value)


@pytest.mark.parametrize(
    ("initial", "said"),
    [
        ("named_struct('n', 1, 'N', 2)", "n and N are one column to Spark"),
        ("named_struct('Account', 1)", "account and Account are one column to Spark"),
        ("named_struct('_hw_version', 1)", "a table in a warehouse has a column _hw_version of its own"),
        ("named_struct('a', named_struct('x', 1, 'X', 2))", "x and X are one column to Spark"),
        (
            "named_struct('w', array(interval '1' day))",
            "w is of type interval day, which no column of an",
        ),
    ],
)
def test_what_no_table_can_hold_is_refused_by_name(spark: SparkSession, initial: str, said: str) -> None:
    known = analyse_fold(spark, replace(view_of("events"), initial=initial, step="state"))
    with pytest.raises(ConfigError, match=f"view account: {said}"):
        refuse_columns(known)


def test_what_no_document_can_hold_is_refused_by_name(spark: SparkSession) -> None:
    months = replace(view_of("events"), initial="named_struct('w', map('a', interval '1' year))", step="state")
    with pytest.raises(ConfigError, match=r"view account: initial\.w is of type interval year, which no document can"):
        analyse_fold(spark, months)


def test_what_a_table_can_hold_is_not_refused(spark: SparkSession) -> None:
    refuse_columns(analyse_fold(spark, view_of("events")))
    nested = "named_struct('a', named_struct('x', 1), 'b', named_struct('X', cast(map() as map<string, timestamp>)))"
    refuse_columns(analyse_fold(spark, replace(view_of("events"), initial=nested, step="state")))


def test_the_expression_folds_in_order_and_begins_anew_after_an_end(spark: SparkSession) -> None:
    step = "CASE WHEN event = 'end' THEN NULL ELSE named_struct('s', concat(state.s, event)) END"
    shape = T.StructType([T.StructField("s", T.StringType())]).jsonValue()
    said = folded(step, "named_struct('s', '>')", "struct<s: string>", shape)
    rows = spark.sql(
        f"SELECT {said} AS state FROM VALUES "
        "(1, CAST(NULL AS struct<s: string>), array('a', 'b')), (2, named_struct('s', 'x'), array('a')), "
        "(3, named_struct('s', 'x'), array('end')), (4, named_struct('s', 'x'), array('end', 'c')) "
        "AS t(n, held, events) ORDER BY n"
    ).collect()
    assert [row.state and row.state.s for row in rows] == [">ab", "xa", None, ">c"]


def test_a_folded_view_is_refused_where_rows_are_asked_for() -> None:
    refuse_stateful(View.identity(OUTBOX), "tested")
    with pytest.raises(ConfigError, match="view account is folded from events, and can't be tested"):
        refuse_stateful(view_of("events"), "tested")


def test_its_documents_are_named_by_the_aggregate() -> None:
    view = view_of("events")
    assert isinstance(view, FoldView)
    assert (view.key, view.columns) == (("aggregateid",), (("aggregateid", "account"),))
