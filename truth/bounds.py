"""Measures that are approximate, or sums that are rounded: compared within bounds, and everything else exactly.

What must be there is stated as a bound in the place of the value. What is there is the same if it lies within: then it
is replaced by the bound itself, and two documents that agree have one digest. docs/decisions/verify.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from truth.values import parse

# The only field of a bound; no measure is an object.
WITHIN = "(within)"

# An infinite end is the word that documents have for it, for JSON has no such number.
INFINITE = ("Infinity", "-Infinity")
End = float | str
Bound = tuple[End, End]
Bounds = Mapping[str, Bound]


def stated(low: float, high: float) -> dict[str, list[End]]:
    """What a document has in the place of a value that may be anything from ``low`` to ``high``."""
    return {WITHIN: [_end(low), _end(high)]}


def bounds_of(fields: Mapping[str, Any]) -> dict[str, Bound]:
    """The bounds that are stated in a document's fields, by name."""
    return {
        name: (value[WITHIN][0], value[WITHIN][1])
        for name, value in fields.items()
        if isinstance(value, dict) and value.keys() == {WITHIN}
    }


def settled(document: Any, bounds: Bounds) -> tuple[Any, int]:
    """A document with each value that lies within its bound replaced by that.

    Args:
        document: JSON text as bytes, as a sink holds it; anything else stays what it is.
        bounds: of ``bounds_of``.

    Returns:
        it, and how many values were within.
    """
    if not bounds or not isinstance(document, bytes):
        return document, 0
    try:
        found = parse(document)
    except (ValueError, RecursionError):
        return document, 0
    return met(found, bounds) if isinstance(found, dict) else (document, 0)


def met(found: Mapping[str, Any], bounds: Bounds) -> tuple[dict[str, Any], int]:
    """As ``settled``, of a document that was read already."""
    within = {name: {WITHIN: list(bound)} for name, bound in bounds.items() if _lies(found.get(name), bound)}
    return {**found, **within}, len(within)


def _lies(value: Any, bound: Bound) -> bool:
    low, high = map(float, bound)
    if value in INFINITE:
        return low <= float(value) <= high
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and low <= value <= high


def _end(number: float) -> End:
    return number if math.isfinite(number) else INFINITE[number < 0]
