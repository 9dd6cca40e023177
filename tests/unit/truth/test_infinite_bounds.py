"""Percentiles near which there are infinite values: a bound is open at that end, and no right document differs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import orjson
import pytest

from operations.verify.expected_file import reading
from tests.support.timed import VIEWS
from truth.bounds import WITHIN, bounds_of, settled
from truth.digest import digest
from truth.events.measured import _Rank
from truth.expected import Expected

ABOVE, BELOW = "Infinity", "-Infinity"


def ranked(rank: float, *values: Any) -> Any:
    measure = _Rank(rank)
    for value in values:
        measure.add(value)
    return measure.result()


@pytest.mark.parametrize(
    ("rank", "values", "bound"),
    [
        (0.95, [*range(195), *[ABOVE] * 5], [183.0, ABOVE]),
        (0.05, [*range(195), *[BELOW] * 5], [BELOW, 11.0]),
        (0.5, [BELOW] * 5 + [ABOVE] * 5, [BELOW, ABOVE]),
        (0.5, [*range(1, 6), *[ABOVE] * 5], [5.0, ABOVE]),
    ],
)
def test_a_bound_that_reaches_an_infinite_value_is_open_there(rank: float, values: list[Any], bound: list[Any]) -> None:
    """Verify threw it away, and demanded the one value of the other end for ever: 183, where 189 is right."""
    assert ranked(rank, *values) == {WITHIN: bound}


def test_a_percentile_that_can_be_nothing_else_is_stated_as_it_is() -> None:
    assert ranked(0.5, *[ABOVE] * 9) == ABOVE and ranked(0.1, *[BELOW] * 500, 1) == BELOW
    assert ranked(0.5, *["NaN"] * 9) is None and ranked(0.5, 7) == {WITHIN: [7.0, 7.0]}


@pytest.mark.parametrize(
    ("value", "right"),
    [
        *[(189.0, True), (1e300, True), (183, True), (182.9, False), (ABOVE, True), (BELOW, False), ("NaN", False)],
        *[("190", False), (None, False), (True, False), ([ABOVE], False)],
    ],
)
def test_what_lies_within_an_open_bound_has_its_digest_also_by_way_of_the_file(
    tmp_path: Path, value: Any, right: bool
) -> None:
    fields = {"p": ranked(0.95, *range(195), *[ABOVE] * 5), "n": 200}
    with reading(tmp_path / "told") as told:
        list(told.fill(VIEWS["tumbling"], [Expected("k", b"{}", fields)], ["document"]))
        kept = told.bounds("k")
    assert kept == bounds_of(fields)
    document, within = settled(orjson.dumps({"p": value, "n": 200}), kept)
    assert (digest(document) == digest(fields), within) == (right, int(right))


def test_no_finite_bound_takes_an_infinity() -> None:
    for value in (ABOVE, BELOW, math.inf):
        assert settled(orjson.dumps({"p": value}), {"p": (1.0, 2.0)})[1] == 0
