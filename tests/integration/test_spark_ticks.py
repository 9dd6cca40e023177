"""Moments through which a query has read its log: those of its own life, and no earlier one's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.events.ticks import teller, ticks
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from tests.support.own_session import own_session

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with own_session(tmp_path_factory.mktemp("spark")) as session:
        yield session
        session.stop()


def life(spark: SparkSession, flow: Flow, checkpoint: Path, *told: int) -> list[int]:
    """The moments that one start of a flow reads, of which it is told some after it was planned."""
    seen: list[int] = []
    frame = ticks(spark, flow)
    for micros in told:
        teller(spark, flow)(micros)
    writer = frame.writeStream.foreachBatch(lambda rows, _: seen.extend(row.offset for row in rows.collect()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert query.exception() is None
    return seen


def test_a_view_that_is_dropped_and_made_again_begins_without_the_time_of_its_former_life(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its first batch was told to be later than all its history, which became dead letters."""
    flow = Flow("v", FlowSpec("s", {}, {"t": ()}, {}, {}, {}), Reading("", {}, None), tmp_path / "g1" / "v")
    assert life(spark, flow, tmp_path / "first", 5_000) == [5_000]
    assert life(spark, flow, tmp_path / "second") == []
    assert life(spark, flow, tmp_path / "second", 3_000) == [3_000]


def test_one_that_is_started_again_goes_on_from_what_it_was_told(spark: SparkSession, tmp_path: Path) -> None:
    flow = Flow("w", FlowSpec("s", {}, {"t": ()}, {}, {}, {}), Reading("", {}, None), tmp_path / "g1" / "w")
    assert life(spark, flow, tmp_path / "it", 5_000) == [5_000]
    assert life(spark, flow, tmp_path / "it", 4_000) == [], "not back"
    assert life(spark, flow, tmp_path / "it", 6_000) == [6_000]
