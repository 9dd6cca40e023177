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


def test_an_error_of_ours_passes() -> None:
    def fenced(_batch: Any, _number: int) -> None:
        raise Fenced("taken over")

    with pytest.raises(Fenced):
        brief(fenced)(cast(Any, None), 1)


def test_an_empty_error_is_no_trouble() -> None:
    assert shortened("") == ""
