"""The longest proofs take turns: a run of the whole suite takes some of them, chosen by the commit.

A proof that is marked ``sampled`` runs in about one of two times ``of`` commits; which one follows from the commit's
hash and from the proof's name, or its ``turn``: a run can be repeated, and within some landings all of them have run.
``make test-slow`` runs them all, and so does pytest when it is called by hand.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "HEADWATER_TEST_COMMIT"
# Odd: a proof of a fixture that takes turns by twos would never run in one of four.
EVERY = 5


def commit() -> str:
    """The commit that is checked out; empty where there is no git, and then every proof runs."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def in_turn(*values: str, of: int = 0) -> list[Any]:
    """Parameters of a fixture, of which each commit takes one; with ``of``, they are ``sampled`` with that."""
    turns = (pytest.mark.sampled(turn=turn, of=of or len(values), each=not of) for turn in range(len(values)))
    return [pytest.param(value, marks=mark) for value, mark in zip(values, turns, strict=True)]


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Which of the collected tests have their turn another time; none when no commit was told."""
    chosen_by = os.environ.get(VARIABLE, "")
    if not chosen_by:
        return []
    return [item for item in items if not _has_its_turn(item, int(chosen_by[:8], 16))]


def _has_its_turn(item: pytest.Item, drawn: int) -> bool:
    """By all of its marks: of a fixture that takes turns by twos, say, and of its own, by fives."""
    marks = (mark.kwargs for mark in item.iter_markers("sampled"))
    return all(_drawn(item.nodeid, drawn, **words) for words in marks)


def _drawn(nodeid: str, drawn: int, turn: int | None = None, of: int = EVERY, each: bool = False) -> bool:
    if each:
        return drawn % of == turn
    # Whole files go to one half or the other: what is expensive is what the tests of a file share.
    half = zlib.crc32(nodeid.split("::", 1)[0].encode()) % 2
    turn = zlib.crc32(nodeid.encode()) % of if turn is None else turn
    # Odd stays odd.
    rounds = 2 * of - of % 2
    return drawn % rounds == (turn + half * of) % rounds
