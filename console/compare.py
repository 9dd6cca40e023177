"""Comparing what a sink holds with what it should hold: by a digest a key, in bounded memory.

Pure: takes two streams of (key, document), keeps 16 bytes a row of the first, and names what differs.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cdc.truth import canonical

# How many differing keys a report names; more only make it long.
NAMED = 20


@dataclass
class Comparison:
    """How one view of one sink compares.

    Attributes:
        expected: rows that should be there.
        compared: rows that are there.
        missing, extra, changed: the first keys that lack, should not be there, or hold something else.
        differences: how many there are in all.
    """

    view: str
    expected: int = 0
    compared: int = 0
    differences: int = 0
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Nothing differs."""
        return self.differences == 0

    def note(self, kind: list[str], key: str) -> None:
        """Count a difference, and name it while the list is short."""
        self.differences += 1
        if len(kind) < NAMED:
            kind.append(key)


def single(value: Any) -> Any:
    """A ``real`` as the one number it is: 1e-45 and 1.4e-45 are two texts of the same four bytes."""
    if isinstance(value, list):
        return [single(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:  # what a sink holds may be anything
            return value
    return value


def digest(document: Any) -> bytes:
    """16 bytes that are equal for equal JSON values, whatever the order of their keys.

    Args:
        document: JSON text as bytes, or a JSON-able value.
    """
    return hashlib.blake2b(canonical(document), digest_size=16).digest()


def compare(view: str, expected: dict[str, bytes], held: Iterable[tuple[str, Any]]) -> Comparison:
    """Hold a sink's documents against the digests of the expected ones.

    Args:
        view: for the report.
        expected: key -> digest; taken apart while comparing, so that what is left is what is missing.
        held: (key, document) of everything in the sink; a key may come twice while writers are busy.
    """
    result = Comparison(view, expected=len(expected))
    seen: set[str] = set()
    left = dict(expected)
    for key, document in held:
        if key in seen:
            continue
        seen.add(key)
        result.compared += 1
        want = left.pop(key, None)
        if want is None:
            result.note(result.extra, key)
        elif want != digest(document):
            result.note(result.changed, key)
    for key in left:
        result.note(result.missing, key)
    return result
