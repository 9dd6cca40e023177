"""Comparing what a sink holds with what it should hold: by a digest a key, bucket by bucket, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc.keys import shown
from operations.verify.buckets import Side, twice

# How many differing keys a report names; more only make it long.
NAMED = 20

Kind = Literal["missing", "extra", "changed", "moving", "unseen", "doubted"]


@dataclass
class Comparison:
    """How one view of one sink compares.

    Attributes:
        expected: rows that should be there.
        compared: rows that are there.
        differences: how many keys lack, should not be there, or hold something else.
        missing, extra, changed: the first of each kind.
        moving: the first keys that could not be decided: their rows changed each time they were looked at.
        undecided: how many these are in all; they do not count as differences.
        unseen: the first keys whose newest change is in the log and can't be seen in Postgres yet: what they must be
            nobody can tell.
        invisible: how many these are in all; they do not count as differences.
        doubted: the first keys that differ, but may be right: what they must be depends on events that may have been
            given up, because their partition stood still for ten minutes, or that the log has lost; or they are not
            there, and may have expired.
        doubtful: how many these are in all; they do not count as differences.
        within: values of approximate measures, and sums of floats, that were compared within a bound.
        columns: of the first that are changed, which columns differ; see ``operations.verify.columns``.
        lossy: of these columns those of a type of which Debezium does not deliver every value; see there.
        caught_up: whether the sink was seen to have passed the moment at which the differences were seen; null if there
            were none.
        sampled: only a sample was compared.
        seconds, rows_s: how long it took, and rows a second.
        repaired: keys that differed and were made right; null without ``--repair``.
        not_repaired: the first keys that were not, and why.
    """

    view: str
    expected: int = 0
    compared: int = 0
    differences: int = 0
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moving: list[str] = field(default_factory=list)
    undecided: int = 0
    unseen: list[str] = field(default_factory=list)
    invisible: int = 0
    doubted: list[str] = field(default_factory=list)
    doubtful: int = 0
    within: int = 0
    columns: dict[str, list[Any]] = field(default_factory=dict)
    lossy: list[dict[str, str]] = field(default_factory=list)
    caught_up: bool | None = None
    sampled: bool = False
    seconds: float = 0.0
    rows_s: float = 0.0
    repaired: int | None = None
    not_repaired: list[dict[str, str]] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Nothing differs."""
        return self.differences == 0

    def note(self, kind: Kind, key: str) -> None:
        """Count a difference, and name it while the list is short."""
        if kind == "moving":
            self.undecided += 1
        elif kind == "unseen":
            self.invisible += 1
        elif kind == "doubted":
            self.doubtful += 1
        else:
            self.differences += 1
        named: list[str] = getattr(self, kind)
        if len(named) < NAMED:
            named.append(shown(key))

    def undecide(self) -> None:
        """What differs may be right, as nobody knows what it must be any more."""
        self.moving = [*self.moving, *self.missing, *self.extra, *self.changed][:NAMED]
        self.undecided += self.differences
        self.forget(differences_only=True)

    def forget(self, *, differences_only: bool = False) -> None:
        """Differences are about to be counted anew; and what could not be decided, unless that is of other keys."""
        self.differences = 0
        self.missing, self.extra, self.changed = [], [], []
        if not differences_only:
            self.undecided = self.invisible = self.doubtful = 0
            self.moving, self.unseen, self.doubted = [], [], []


def kind_of(wanted: bytes | None, held: bytes | None, *, stays: bool = False) -> Kind | None:
    """How a key differs, by the two digests; None if it does not.

    Args:
        wanted: of what should be there.
        held: of what is.
        stays: what is there may stay when its row goes: an event, whose row is deleted once it is written.
    """
    if wanted == held or (stays and wanted is None):
        return None
    return "missing" if held is None else "extra" if wanted is None else "changed"


_MARKS: dict[Kind, str] = {"missing": "-", "extra": "+", "changed": "~", "unseen": "*", "doubted": "?"}
_KINDS = {mark: kind for kind, mark in _MARKS.items()}


def marked(kind: Kind, key: str) -> str:
    """A key with how it differs, as lists of keys on disk have them."""
    return _MARKS[kind] + key


def unmarked(key: str) -> tuple[Kind, str]:
    """(how it differs, key)."""
    return _KINDS[key[0]], key[1:]


def compare(
    result: Comparison,
    expected: Side,
    held: Side,
    differs: Callable[[str], None],
    *,
    unique: bool = False,
    stays: bool = False,
    repeats: bool = False,
) -> None:
    """Hold a sink's digests against the expected ones.

    Args:
        result: what is filled in.
        expected: one side.
        held: the other; a key may come twice while writers are busy, and the last one counts.
        differs: told of each key that differs, marked.
        unique: a key that comes twice is a defect (a warehouse's table is read from one snapshot).
        stays: see ``kind_of``.
        repeats: a key may be expected twice, and the last one counts.

    Raises:
        StateError: a key is expected twice, or not all is there that was written.
    """
    for bucket in range(expected.buckets):
        wanted, again = _wanted(result.view, expected, bucket, repeats=repeats), set()
        there: dict[str, bytes] = {}
        for key, value in held.read(bucket):
            if unique and key in there:
                again.add(key)
            there[key] = value
        result.expected += len(wanted)
        result.compared += len(there)
        for key in {**wanted, **there}:
            kind: Kind | None = "changed"
            if key not in again:
                kind = kind_of(wanted.get(key), there.get(key), stays=stays)
            if kind is not None:
                result.note(kind, key)
                differs(marked(kind, key))


def _wanted(view: str, expected: Side, bucket: int, *, repeats: bool) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for key, value in expected.read(bucket):
        if key in found and not repeats:
            raise twice(view, key)
        found[key] = value
    return found
