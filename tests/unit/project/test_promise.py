"""docs/promise.md says what is so: its tests exist, and each package is really imported in the room it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "promise.md"
ROOMS = ("connectors", "cdc", "sinks", "spark", "deploy", "tests")
# What the project's brief names.
PACKAGES = {
    "requests",
    "confluent_kafka",
    "fastavro",
    "pyspark",
    "elasticsearch",
    "psycopg",
    "pytest",
    "testcontainers",
}


def rows() -> list[list[str]]:
    """The cells of every row of the page's tables, without their heads."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def libraries() -> dict[str, str]:
    """Package -> room."""
    return {row[0].strip("` "): row[1].strip("`/ ") for row in rows() if len(row) == 4}


def imported(room: str) -> set[str]:
    """Top-level packages that a room's code imports, at its head or inside a function."""
    found = set()
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def test_every_promised_package_and_room_has_a_row() -> None:
    assert libraries().keys() == PACKAGES
    assert [row[0].strip("`/ ") for row in rows() if len(row) == 3] == list(ROOMS)


def test_every_test_that_is_named_exists() -> None:
    for row in rows():
        named = re.findall(r"`(tests/[^`]+)`", row[-1])
        assert named, f"{row[0]} names no test"
        for name in named:
            assert list(ROOT.glob(name)), f"{row[0]} names {name}, which is not there"
            found = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob(name) if path.is_file())
            assert "def test_" in found, f"{name} holds no test"


@pytest.mark.parametrize(("package", "room"), sorted(libraries().items()))
def test_a_package_is_imported_in_its_room(package: str, room: str) -> None:
    assert package in imported(room)
