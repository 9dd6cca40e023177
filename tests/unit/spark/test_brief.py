"""What a cancelled merge says does not overflow the stack of Spark's thread, and still tells its cause."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cdc.errors import Fenced
from spark.failures import FULL, explain, refused
from spark.warehouse.brief import MOST_CHARACTERS, BatchFailed, brief, shortened

PY4J = "py4j.protocol.Py4JJavaError: An error occurred while calling"


def java(*causes: str, frames: int = 200) -> str:
    """As py4j words an error of Java's: some 20,000 characters a cause."""
    stack = "\n".join(
        f"\tat org.apache.spark.sql.execution.Something$class.method{n}(File.scala:{n})" for n in range(frames)
    )
    head, *rest = causes
    return f"{PY4J} o87.sql.\n: {head}\n{stack}\n" + "".join(f"Caused by: {cause}\n{stack}\n" for cause in rest)


def failed(text: str) -> str:
    def function(_batch: Any, _number: int) -> None:
        raise RuntimeError(text)

    with pytest.raises(BatchFailed) as caught:
        brief(function)(cast(Any, None), 1)
    assert caught.value.__suppress_context__, "Spark would get the long text as well"
    return str(caught.value)


def test_a_long_error_is_short_and_tells_its_root_cause() -> None:
    text = java(
        "org.apache.spark.SparkException: Job aborted", "a.B: first", *["x.Y: more"] * 400, "c.DException: root"
    )
    assert len(text) > 100_000
    said = failed(text)
    assert len(said) < MOST_CHARACTERS + 500 and PY4J not in said
    assert explain(said) == "Caused by: c.DException: root"
    assert "Job aborted" in failed(java("org.apache.spark.SparkException: Job aborted"))


@pytest.mark.parametrize("name", ["java.lang.InterruptedException", "java.nio.channels.ClosedByInterruptException"])
def test_a_query_that_was_stopped_is_still_known_by_spark(name: str) -> None:
    said = failed(java("org.apache.spark.SparkException: Job cancelled", f"{name}: null"))
    at = said.index(PY4J)
    assert len(said) - at < 200 and said.endswith(name), "what its expression has to go through is short"


def test_what_spark_is_to_know_a_stop_by_is_no_reason_of_a_failure() -> None:
    """A disk was made read-only: `status` had py4j's words for it, and no cause."""
    wrong = (
        "java.io.UncheckedIOException: Failed to create Parquet file",
        "java.io.IOException: Read-only file system",
    )
    said = failed(java("org.apache.spark.SparkException: Job aborted", *wrong))
    assert said.endswith("java.io.UncheckedIOException")
    assert explain(said) == "Caused by: java.io.IOException: Read-only file system"


def test_our_own_words_and_a_full_disk_are_kept() -> None:
    ours = java(
        "org.apache.spark.SparkException: Job aborted", "a.B: cdc.errors.SinkRefused: the table is gone", "e.F: x"
    )
    assert refused(failed(ours)) and explain(failed(ours)) == "the table is gone"
    assert FULL.search(failed(java("a.B: b", "java.io.IOException: No space left on device")))


@pytest.mark.parametrize("text", ["", "\n", "[STREAM_FAILED] Query [id = 1] terminated with exception:\n"])
def test_who_gives_no_reason_is_told_of_so(text: str) -> None:
    """`retrying: ` with nothing behind it was all that `status` had to say."""
    assert explain(text).endswith("no reason was given; see Spark's log")


def test_what_spark_has_seen_of_the_log_is_told_and_not_what_it_fears() -> None:
    """`Some data may have been lost because they are not available in Kafka any more;` was all of it."""
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may"
        " have been lost because they are not available in Kafka any more;\n"
        "either the data was aged out by Kafka or the topic may have been deleted before all the data in the\n"
        "topic was processed.\n"
        "If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.\n"
        "Reason:\nPartitions Set(shop.public.t-0) have been deleted. SQLSTATE: XXKST\n"
    )
    assert explain(text).startswith("the log is not what this flow has read: Partitions Set(shop.public.t-0) have been")


def test_an_error_of_ours_passes() -> None:
    def fenced(_batch: Any, _number: int) -> None:
        raise Fenced("taken over")

    with pytest.raises(Fenced):
        brief(fenced)(cast(Any, None), 1)


def test_an_empty_error_is_no_trouble() -> None:
    assert shortened("") == ""
