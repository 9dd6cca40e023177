"""Findings as a person reads them: what many tables have in common in one line, with some of their names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from connectors.actions import MANY
from connectors.preflight.model import Finding, Level

# Names in a line: there may be hundreds.
NAMED = 5
OTHERS = "; and so the others"
# Where the rest of cut SQL is.
WHOLE = " (`headwater check FILE --json` has all)"
# SQL up to this length is told whole: it is there to be copied.
SQL_LENGTH = 400


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def offered(whole: str, first: str) -> str:
    """SQL for many names: all of it if that is short, else for the first of them, and where all is."""
    return whole if whole == first or len(whole) <= SQL_LENGTH else f"{first}{OTHERS}{WHOLE}"


def gathered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in short, what many of them say told once, in the place of the first; ``--json`` has each, and whole."""
    alike: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        alike.setdefault((finding.level, finding.many) if finding.many else number, []).append(finding)
    told = [one for same in alike.values() for one in (same if len(same) < MANY else [_as_one(same)])]
    return [replace(one, message=one.short or one.message, fix=one.short_fix or one.fix) for one in told]


def _as_one(same: Sequence[Finding]) -> Finding:
    first = same[0]
    message = first.many.replace("{n}", f"{len(same):,}", 1).replace("{names}", some([one.about for one in same]), 1)
    others = OTHERS if len({one.fix for one in same}) > 1 else ""
    return replace(first, message=message, fix=first.fix + others)


def tally(findings: Sequence[Finding]) -> str:
    """How many warnings and notes there are: ``2 warnings, 1 note``; empty if there are none."""
    numbers = {level: sum(one.level is level for one in findings) for level in (Level.WARNING, Level.NOTE)}
    return ", ".join(f"{n:,} {level.value}{'' if n == 1 else 's'}" for level, n in numbers.items() if n)
