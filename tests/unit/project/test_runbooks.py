"""docs/runbooks.md: each runbook says when, how and at what cost, and names tests that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import cast

import click
import pytest

from console.cli.main import VERBS, cli

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
# The first section is about all of them.
RUNBOOKS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)[1:])


@pytest.mark.parametrize("title", RUNBOOKS)
def test_a_runbook_is_whole_and_its_tests_are_there(title: str) -> None:
    text = RUNBOOKS[title]
    for part in ("**When:**", "**Steps:**", "**Costs:**", "**Shown by:**"):
        assert text.count(part) == 1, part
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text.partition("**Shown by:**")[2])
    assert named
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"


def test_a_release_is_installed_by_the_line_that_its_test_runs_and_from_wheels_of_these_versions() -> None:
    wheels = []
    for folder in (ROOT, ROOT / "client"):
        made = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        wheels.append(f"{made['name'].replace('-', '_')}-{made['version']}-py3-none-any.whl")
    # Not pip: for it, hashes in a file of constraints are asked of the wheels as well.
    assert f"\nuv pip install --constraint requirements.lock {' '.join(wheels)}\n" in RUNBOOKS["A release"]


def test_new_passwords_reach_every_process_that_goes_on_by_itself() -> None:
    """`serve` and an audit that never ends went on with the old ones: only `run` was to be started again."""
    verbs = {verb: cast(click.Command, cli.get_command(click.Context(cli), verb)) for verb in VERBS}
    goes_on = {("--every",), ("--watch",)}
    kept = {
        f"{verb} {option.opts[0]}"
        for verb, command in verbs.items()
        for option in command.params
        if tuple(option.opts) in goes_on
    }
    step = RUNBOOKS["Passwords"].partition("\n5. ")[2].partition("\n\n")[0]
    assert kept >= {"verify --every", "status --watch"}
    assert {"run", "serve", "tail", "queries tail", *kept} <= set(re.findall("`([^`]+)`", step))


def test_there_are_runbooks() -> None:
    assert len(RUNBOOKS) == 7
