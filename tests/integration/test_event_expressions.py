"""What a view of events may not compute: what gives another value each time, and a column in Postgres's quotes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from cdc.fold import FoldView
from cdc.stateful import StatefulView
from cdc.timed import Kind, Measure
from spark.events.states import analyse_stateful
from spark.events.steady import refuse_unsteady_events
from tests.support.folds import OUTBOX
from tests.support.plain_spark import engine_session
from tests.support.timed import MATCHES, VIEWS

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.sampled(part=0),
]
WINDOW, MATCH = VIEWS["session"], MATCHES["all"]
FOLD = FoldView("f", OUTBOX, ("id",), (), initial="named_struct('n', 0L)", step="named_struct('n', state.n + 1)")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with engine_session() as session:
        yield session


@pytest.mark.parametrize("view", [WINDOW, MATCH, FOLD], ids=["window", "match", "fold"])
def test_what_is_made_of_events_alone_is_taken(spark: SparkSession, view: StatefulView) -> None:
    refuse_unsteady_events(spark, analyse_stateful(spark, view))


@pytest.mark.parametrize(
    ("view", "what"),
    [
        (replace(WINDOW, condition="at > now()"), "where: at > now()"),
        (replace(WINDOW, by={"about": "uuid()"}), "about: uuid()"),
        (replace(WINDOW, measures={"n": Measure("max", "rand()")}), "n: rand()"),
        (replace(MATCH, then=Kind("at < current_timestamp()", "aggregateid", {})), "then.where: at <"),
        (replace(MATCH, first=Kind("true", "uuid()", {})), "first.key: uuid()"),
        (replace(MATCH, first=Kind("true", "aggregateid", {"when": "now()"})), "first.fields.when: now()"),
        (replace(FOLD, step="named_struct('n', unix_millis(now()))"), "what `step` and `initial` give"),
        (replace(FOLD, initial="named_struct('n', unix_millis(now()))"), "what `step` and `initial` give"),
    ],
)
def test_what_another_generation_would_find_otherwise_is_refused_of_a_file_and_not_of_what_runs(
    spark: SparkSession, view: StatefulView, what: str
) -> None:
    known = analyse_stateful(spark, view)
    with pytest.raises(ConfigError, match="is not made of the row alone") as refused:
        refuse_unsteady_events(spark, known)
    assert what in str(refused.value)


@pytest.mark.parametrize(
    ("view", "where"),
    [
        (replace(WINDOW, condition="\"type\" <> 'noise'"), "where"),
        (replace(WINDOW, by={"about": '"AggregateId"'}), "about"),
        (replace(WINDOW, measures={"word": Measure("max", '"type"')}), "word"),
        (replace(MATCH, first=Kind("\"type\" = 'viewed'", "aggregateid", {})), "first.where"),
    ],
)
def test_a_column_in_postgres_quotes_is_refused_of_a_file_and_not_of_what_runs(
    spark: SparkSession, view: StatefulView, where: str
) -> None:
    known = analyse_stateful(spark, view)
    with pytest.raises(ConfigError, match=f"{where}: in Spark SQL .* is a text, not the column"):
        refuse_unsteady_events(spark, known)


def test_a_sum_that_spark_itself_does_not_take_is_told_as_any_other_fault_of_the_file(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"`n: sum\(rand\(\)\)` can't be measured: .*NONDETERMINISTIC"):
        analyse_stateful(spark, replace(WINDOW, measures={"n": Measure("sum", "rand()")}))


@pytest.mark.parametrize(
    ("view", "what"),
    [
        (replace(WINDOW, measures={"n": Measure("approx_count_distinct", "unhex(type)")}), "n: unhex"),
        (replace(MATCH, first=Kind("true", "unhex(type)", {})), "first.key: unhex"),
        (replace(MATCH, then=Kind("true", "unhex(type)", {})), "then.key: unhex"),
    ],
)
def test_bytes_are_no_key_of_a_file_and_one_of_what_runs(spark: SparkSession, view: StatefulView, what: str) -> None:
    """Java's text of them is not their own: different ones would be one."""
    known = analyse_stateful(spark, view)
    with pytest.raises(ConfigError, match="binary") as refused:
        refuse_unsteady_events(spark, known)
    assert what in str(refused.value) and "hex(" in f"{refused.value} {refused.value.fix}"


def test_bytes_are_no_group(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"about: unhex.* is a binary") as refused:
        analyse_stateful(spark, replace(WINDOW, by={"about": "unhex(type)"}))
    assert "hex(" in refused.value.fix
