"""docs/faults.md has a row for every fault, and each names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "faults.md"
FAULTS = 40
TEST = re.compile(r"`(tests/[^`]+\.py)::(\w+)`")


def rows(text: str) -> list[list[str]]:
    """Number, fault, what happens, tests: of each row."""
    lines = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of the test functions of a file; none if it is not there."""
    if not (ROOT / path).is_file():
        return frozenset()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def faulty(text: str) -> list[str]:
    """What is wrong with the page."""
    found = [f"row {row[0]} has {len(row)} cells" for row in rows(text) if len(row) != 4]
    numbers = [int(row[0]) for row in rows(text)]
    if numbers != list(range(1, FAULTS + 1)):
        found.append(f"numbers are {numbers}")
    for row in rows(text):
        named = TEST.findall(row[-1])
        found += [] if named else [f"row {row[0]} names no test"]
        found += [f"row {row[0]}: there is no {name} in {path}" for path, name in named if name not in names_in(path)]
        unread = re.sub(TEST, "", row[-1]).strip(", ")
        found += [f"row {row[0]}: {unread} is no test"] if unread else []
    return found


def test_every_fault_has_a_row_and_every_row_tests_that_exist() -> None:
    assert faulty(PAGE.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("pattern", "instead", "complaint"),
    [
        (r"^\| 17 \|.*\n", "", "numbers are"),
        (r"::test_fault_13\w+`", "::test_that_is_not_there`", "row 13: there is no"),
        (r"(?m)^(\| 9 \|.*\|) `tests.*$", r"\1 somebody has seen it |", "row 9 names no test"),
        (r"tests/unit/operations/test_alive\.py", "tests/unit/test_dead.py", "row 11: there is no"),
    ],
)
def test_a_page_with_a_hole_is_found(pattern: str, instead: str, complaint: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    broken = re.sub(pattern, instead, text, count=1, flags=re.MULTILINE)
    assert broken != text
    assert any(word.startswith(complaint) for word in faulty(broken)), faulty(broken)


def test_a_test_that_bears_a_number_bears_a_fault_s() -> None:
    numbers = {
        int(number)
        for path in (ROOT / "tests").rglob("test_*.py")
        for number in re.findall(r"def test_fault_(\d+)_", path.read_text(encoding="utf-8"))
    }
    assert len(numbers) > 15 and numbers <= set(range(1, FAULTS + 1))
