"""How long ago a moment was is asked of cdc/ages.py: a clock that is put back makes differences less than nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("cdc", "connectors", "sinks", "spark", "truth", "operations", "console", "deploy")
# What takes away a length of time, which gives a moment of before and no age.
MOMENTS = {
    "operations/letters/waiting.py",
    "operations/letters/watch.py",
    "operations/query/tail.py",
    "sinks/elasticsearch/fences.py",
    "spark/disk/batches.py",
    "spark/warehouse/upkeep/steps.py",
}


def _differences(text: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            left, right = ast.unparse(node.left), ast.unparse(node.right)
            if "time.time()" in (left, right):
                yield node.lineno


def test_ages_are_reckoned_in_one_place() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if (lines := list(_differences(path.read_text())))
    }
    assert found.keys() == MOMENTS, "`ago` where inf is safe, else `at_least` (cdc/ages.py)"


def test_a_difference_is_found() -> None:
    lines = ("a = 1", "b = time.time() - at", "c = at + 3 - time.time()", "d = time.monotonic() - at")
    assert list(_differences("\n".join(lines))) == [2, 3]
