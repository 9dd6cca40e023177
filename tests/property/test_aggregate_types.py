"""Aggregates of every type that they are of, by the engine and by the second opinion.

Random views (tests/support/join_world.py) have a few types; what the two make of the others' values is compared here,
value by value, where it differs most: at the ends of what a type holds, and where equal values have several texts.
"""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest

from cdc.catalogue import Column
from cdc.join import aggregates
from cdc.join.comparable import not_added, not_sorted
from cdc.join.document import _typed_result
from cdc.join.tree import Aggregate, Function
from tests.support.trees import table
from truth.arithmetic import aggregate, cells_of
from truth.assembled import _has_place, aggregate_type
from truth.columns import _expected

WORDS = ["NaN", "Infinity", "-Infinity"]
FAR = ["+294276-12-31", "+10000-01-01", "9999-12-31", "0000-01-01", "-0001-12-31", "-4713-11-24"]
CLOCKS = ["T00:00:00", "T00:00:00.5", "T00:00:00.49", "T23:59:59.999999"]
MOMENTS = [day + clock for day in FAR for clock in CLOCKS]
TEXTS = ["", "B", "a", "b", "ab", "é", "\uffff", "\U0001f600"]
VALUES: dict[str, list[Any]] = {
    "int8": [2**63 - 1, -(2**63), 2**53 + 1, 2**53, 0, -1],
    "float4": [1.1, 0.0, -0.0, 3.4028235e38, 1e-45, 16777216.0, *WORDS],
    "float8": [0.1, 0.2, 1.7976931348623157e308, -1e308, 5e-324, 0.0, -0.0, *WORDS],
    "numeric": ["1.0", "1.00", "1", "-0.5", "0.0000000000000001", "12345678901234567890123456789.5", "0", *WORDS],
    "numeric(10,2)": ["1.00", "-0.01", "99999999.99", "0.00", "NaN"],
    "numeric(38,18)": ["12345678901234567890.000000000000000001", "-0.000000000000000001", "2.000000000000000000"],
    "money": ["1.00", "-2.50", "92233720368547758.07", "0.00"],
    "timestamptz": ["infinity", "-infinity", *(moment + "Z" for moment in MOMENTS)],
    "timestamp": ["infinity", "-infinity", *(moment for moment in MOMENTS if "294276" not in moment)],
    "date": ["infinity", "-infinity", "+5874897-12-31", *FAR],
    "time": ["00:00:00", "24:00:00", "23:59:59.999999", "08:00:00.5", "08:00:00", "08:00:00.45"],
    "bool": [True, False],
    "uuid": ["00000000-0000-0000-0000-00000000000a", "ffffffff-0000-0000-0000-00000000000a"],
    "enum": TEXTS,
    "text": TEXTS,
    "bpchar": ["a  ", "ab ", "   "],
}
FUNCTIONS: tuple[Function, ...] = ("sum", "avg", "min", "max")


def by_engine(item: Aggregate, values: list[Any]) -> Any:
    if item.function in ("min", "max"):
        return aggregates.extreme(item, list(values))
    parts: dict[str, int] = {}
    for value in values:
        for name, limb in aggregates.limbs(value).items():
            parts[name] = parts.get(name, 0) + limb
    return aggregates.summed(item, parts, len(values))


def allowed(column: Column, function: Function) -> bool:
    return (not_added if function in ("sum", "avg") else not_sorted)(column) is None


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", VALUES)
def test_both_say_the_same_of_a_type(kind: str, function: Function) -> None:
    random, of = Random(7), table("t", "id", id="int4", v=kind)
    column, item = of.by_name["v"], Aggregate("x", of, (("id", "id"),), function, False, "v")
    if not allowed(column, function):
        return
    cell, held = cells_of(column), aggregate_type(item, {})
    assert held == aggregates.result_type(item)
    typed, refused = _typed_result(item) or (lambda value: value), 0
    for _ in range(200):
        values = random.choices(VALUES[kind], k=random.randint(1, 5))
        said, wanted = by_engine(item, values), aggregate(function, [cell(value) for value in values])
        assert orjson.dumps(aggregates.for_json(said)) == orjson.dumps(wanted), values
        if function in ("sum", "avg") and not _has_place(wanted, held):
            refused += 1
            with pytest.raises(ValueError, match=r"is not an integer of 64 bits|does not fit decimal\(38,"):
                typed(said)
            continue
        assert (typed(said) is None) == (_expected(wanted, held) is None), values
    assert (refused > 0) == ((kind, function) in (("int8", "sum"), ("numeric(38,18)", "avg")))


def test_every_function_is_of_some_of_the_types() -> None:
    columns = [table("t", "id", id="int4", v=kind).by_name["v"] for kind in VALUES]
    assert [sum(allowed(column, function) for column in columns) for function in FUNCTIONS] == [7, 7, 16, 16]
