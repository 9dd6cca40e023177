"""docs/json-output.md shows the keys that `--json` really has."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from cdc.pipeline import load
from connectors.actions import Action
from connectors.preflight import CHECKS, Answer, Finding, Level
from console.check import to_dict
from console.compare import Comparison
from console.status import _flow, _sink
from deploy.local.stack import ServiceState

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "json-output.md").read_text(encoding="utf-8")


def example(verb: str) -> dict[str, Any]:
    """The example in a verb's section."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(f"{verb}\n")]
    [block] = re.findall(r"^```json\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    shown: dict[str, Any] = json.loads(block)
    return shown


def test_status(tmp_path: Path) -> None:
    secrets = {"HEADWATER_SOURCE_PASSWORD": "x", "HEADWATER_SETUP_PASSWORD": "x", "HEADWATER_HOME": str(tmp_path)}
    pipeline = load(ROOT / "examples/flights/pipeline.yaml", secrets)
    [sink] = example("status")["sinks"]
    assert sink.keys() == _sink(pipeline, "search", None).keys()
    assert sink["flows"][0].keys() == _flow(tmp_path, "main", None).keys()


def test_verify() -> None:
    [view] = example("verify")["sinks"][0]["views"]
    assert view.keys() == {*asdict(Comparison("v")), "equal"}


@pytest.mark.parametrize("verb", ["plan", "drop"])
def test_changes(verb: str) -> None:
    assert example(verb)["changes"][0].keys() == Action("topic", "t", "create").to_dict().keys()


def test_check() -> None:
    finding = Finding(Level.NOTE, "about", "message")
    told = to_dict(Answer(CHECKS[0], (finding,)))
    [shown] = example("check")["checks"]
    assert shown.keys() == told.keys()
    assert shown["findings"][0].keys() == told["findings"][0].keys()  # type: ignore[index]


def test_every_check_is_named() -> None:
    named = PAGE.partition("Checks: ")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"`([\w-]+)`", named)) == sorted(check.name for check in CHECKS)


def test_ps() -> None:
    assert list(example("ps")["services"][0]) == [field.name for field in fields(ServiceState)]
