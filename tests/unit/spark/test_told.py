"""Errors of ours in Spark's words are known by their class, wherever that class is defined."""

from __future__ import annotations

import pytest

from cdc import errors
from cdc.errors import DiskFull, Fenced, HeadwaterError, SinkRefused, SinkUnavailable
from spark import failures


def traceback(kind: type[HeadwaterError], words: str) -> str:
    """As Spark hands it on."""
    return (
        f"org.apache.spark.SparkException: Job aborted\n  File …\n{kind.__module__}.{kind.__qualname__}: {words}\nmore"
    )


@pytest.mark.parametrize("kind", sorted(failures._tree(HeadwaterError), key=lambda kind: kind.__name__))  # type: ignore[attr-defined]
def test_every_error_is_known_and_tried_again_only_if_that_may_help(kind: type[HeadwaterError]) -> None:
    text = traceback(kind, "it is so")
    assert failures.kinds(text) == {kind}
    assert failures.refused(text) == (not kind.transient)
    assert failures.words(text) == ["it is so"]


def test_the_way_out_comes_with_the_words() -> None:
    error = SinkRefused("it is gone", means="nothing was written", fix="`headwater rebuild`")
    assert failures.words(traceback(SinkRefused, str(error))) == [str(error)]


def test_a_class_that_has_moved_is_known_by_its_new_name() -> None:
    assert failures.name_of(Fenced) == f"{errors.__name__}.Fenced"
    assert not failures.kinds("somewhere.else.Fenced: no error of ours") and not failures.refused(
        "SinkRefused: in a quoted text"
    )


def test_of_several_all_count() -> None:
    both = traceback(SinkUnavailable, "down") + "\n" + traceback(DiskFull, "full")
    assert failures.kinds(both) == {SinkUnavailable, DiskFull} and not failures.refused(both)
    assert failures.refused(both + traceback(Fenced, "taken"))
