"""The shop's views against its own test file, Spark SQL included, as a pull request's check calls `headwater test`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

pytestmark = pytest.mark.sampled(turn=1, of=2)

SHOP = Path(__file__).parents[2] / "examples" / "shop"


def run(*words: str) -> tuple[int, dict[str, Any], str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    done = subprocess.run(
        [sys.executable, "-m", "console.cli", "test", str(SHOP / "pipeline.yaml"), *words, "--json"],
        env=mine,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    code, report, said = run()
    assert code == 0, (report, said)
    assert "starting Spark" in said
    return report


def test_the_examples_own_tests_pass(report: dict[str, Any]) -> None:
    assert report["failed"] == 0 and report["passed"] == len(report["tests"]) >= 5
    assert all(test["dead_letters"] == [] for test in report["tests"])


def test_expressions_count_and_may_fail_for_a_row(tmp_path: Path) -> None:
    """Wrong expectations over Spark SQL are told, and a row that Spark can't compute is a dead letter by name."""
    yaml = YAML(typ="safe", pure=True)
    pipeline = yaml.load((SHOP / "pipeline.yaml").read_text())
    pipeline["views"]["product"]["fields"]["each"] = "100 / stock"
    (tmp_path / "pipeline.yaml").write_text(json.dumps(pipeline))
    tests = yaml.load((SHOP / "tests" / "cards.yaml").read_text())
    (tmp_path / "catalogue.json").write_text((SHOP / "tests" / "catalogue.json").read_text())
    tests["tests"] = [
        {
            "name": "none in stock",
            "given": {"products": [{"product_id": 1, "stock": 0}, {"product_id": 2, "stock": 5}]},
            "expect": {"product": [{"key": 1, "dead_letter": "field each: `100 / stock`"}, {"key": 2, "absent": True}]},
        }
    ]
    (tmp_path / "bad.yaml").write_text(json.dumps(tests, default=str))
    command = [sys.executable, "-m", "console.cli", "test", "pipeline.yaml", "bad.yaml", "--json"]
    root = str(SHOP.parents[1])
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, check=False, capture_output=True, timeout=500
    )
    assert done.returncode == 2, done.stderr
    [test] = json.loads(done.stdout)["tests"]
    [wrong] = test["differences"]
    assert (wrong["key"], wrong["expected"]) == ("2", "no document")
    assert wrong["actual"]["each"] == 20.0
