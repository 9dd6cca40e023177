"""The longest proofs take turns: a run of the whole suite takes a fair part of them, chosen by the commit.

Proofs that are marked ``sampled`` stand in a ring, in groups of a file's parts, and what each group takes was measured
(``seconds.json``). The commit's hash says where in the ring its run begins, and it takes groups until a time is full:
one run takes as long as another, each group has the same chance, and a run can be repeated.
``sampled(turn=…, of=…)`` is for variants, of which each run takes one.

``python -m tests --seconds`` notes what the last run has measured; a group that has no number yet runs each time.
``make test-slow`` runs them all, and so does pytest when it is called by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
VARIABLE = "HEADWATER_TEST_COMMIT"
# Under this name a report of a run says of a test which group it belongs to.
GROUP = "group"
MEASURED = Path(__file__).with_name("seconds.json")
# Of a run, on one worker of several: what the suite's budget leaves to them beside what always runs.
SECONDS = 600
# Proofs of one file that name no part of their own are spread over so many.
PARTS = 5


def commit() -> str:
    """The commit that is checked out; empty where there is no git, and then every proof runs."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def in_turn(*values: str, ring: bool = False) -> list[Any]:
    """Parameters of a fixture, of which each run takes one; with ``ring``, each is a part of its file in the ring."""
    turns = range(len(values))
    marks = (pytest.mark.sampled(part=at) if ring else pytest.mark.sampled(turn=at, of=len(values)) for at in turns)
    return [pytest.param(value, marks=mark) for value, mark in zip(values, marks, strict=True)]


def measured() -> dict[str, int]:
    """Seconds that each group of proofs has taken."""
    return {str(group): int(seconds) for group, seconds in json.loads(MEASURED.read_text()).items()}


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Which of the collected tests have their turn another time; none when no commit was told."""
    chosen_by = os.environ.get(VARIABLE, "")
    if not chosen_by:
        return []
    drawn = int(chosen_by[:8], 16)
    rest = resting(drawn, measured())
    return [item for item in items if group(item) in rest or not _is_the_variant(item, drawn)]


def group(item: pytest.Item) -> str:
    """Which group of the ring a test belongs to, ``file part``; empty for one that always runs."""
    marks = [mark.kwargs for mark in item.iter_markers("sampled") if "turn" not in mark.kwargs]
    parts = (mark.get("part", zlib.crc32(item.nodeid.encode()) % PARTS) for mark in marks)
    return f"{item.nodeid.split('::', 1)[0]} {'+'.join(sorted(map(str, parts)))}" if marks else ""


def resting(drawn: int, seconds: Mapping[str, int]) -> Collection[str]:
    """Groups that have their turn another time. Pure.

    Args:
        drawn: of the commit's hash.
        seconds: what each known group takes.
    """
    ring = sorted(seconds, key=lambda name: zlib.crc32(name.encode()))
    whole, at, taken = sum(seconds.values()), 0, set[str]()
    begin = zlib.crc32(f"{drawn:08x}".encode()) % max(whole, 1)
    for name in ring:
        if (at - begin) % whole < SECONDS:
            taken.add(name)
        at += seconds[name]
    return seconds.keys() - taken


def _is_the_variant(item: pytest.Item, drawn: int) -> bool:
    marks = (mark.kwargs for mark in item.iter_markers("sampled") if "turn" in mark.kwargs)
    return all(drawn % mark["of"] == mark["turn"] for mark in marks)


def note(found: Iterable[tuple[str, float]]) -> dict[str, int]:
    """Write down what groups have taken, beside what is known of others whose files are still there.

    Args:
        found: group and seconds, of each test that ran.
    """
    new: dict[str, float] = {}
    for name, seconds in found:
        new[name] = new.get(name, 0.0) + seconds
    known = measured() | {name: max(1, round(seconds)) for name, seconds in new.items()}
    kept = {name: known[name] for name in sorted(known) if (ROOT / name.split(" ", 1)[0]).is_file()}
    MEASURED.write_text(json.dumps(kept, indent=2) + "\n")
    return kept
