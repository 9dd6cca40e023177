"""kill -9 of a rebuild at random moments: the same command goes on, and the new generation equals Postgres.

HEADWATER_REBUILD_KILLS says how often it is killed (`make test-slow`: 2, `make test-rebuild-kill`: 10).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import pytest

from tests.support.killing import kill_family
from tests.support.scenario import Scenario

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]

KILLS = int(os.environ.get("HEADWATER_REBUILD_KILLS", "2"))
# From before Spark has started to when the last documents are written, on a quiet machine and on a loaded one.
LATEST_SECONDS = 28.0


@pytest.mark.timeout(600 + 60 * KILLS)
def test_a_rebuild_that_is_killed_again_and_again_ends_equal(scenario: Scenario) -> None:
    rng = random.Random(5)
    moments = [rng.uniform(1.0, LATEST_SECONDS) for _ in range(KILLS)]
    command = [sys.executable, "-m", "console.cli", "rebuild", str(scenario.file), "search", "--json"]
    for seed, moment in enumerate(moments):
        with (scenario.folder / "rebuild.log").open("ab") as log:
            process = subprocess.Popen(command, env=scenario.environment(), stdout=log, stderr=log)
        scenario.execute(
            "UPDATE customers SET name = %s || name WHERE customer_id IN (SELECT customer_id FROM customers"
            " ORDER BY customer_id LIMIT 7)",
            str(seed),
        )
        until = time.monotonic() + moment
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        kill_family(process.pid)
        if process.wait(30) == 0:
            break  # it was quicker than its killer
    stages = [one["stage"] for one in _generations(scenario)]
    if stages == ["living", "filling"]:
        report = json.loads(scenario.run("rebuild", "search", "--json"))
        assert report["stage"] == "ready"
    assert [(one["generation"], one["stage"]) for one in _generations(scenario)] == [(1, "living"), (2, "ready")]
    scenario.run("promote", "search")
    scenario.assert_equal("--sink", "search")
    scenario.assert_equal("--sink", "search", "--generation", "1")
    assert scenario.runner is not None and scenario.runner.poll() is None


def test_a_promotion_that_is_repeated_changes_nothing(scenario: Scenario) -> None:
    before = _generations(scenario)
    report = json.loads(scenario.run("promote", "search", "--json"))
    assert report["generation"] == 2
    assert [one["stage"] for one in _generations(scenario)] == [one["stage"] for one in before]
    scenario.run("retire", "search", "--yes")
    assert [one["generation"] for one in _generations(scenario)] == [2]


def _generations(scenario: Scenario) -> list[dict[str, object]]:
    report = json.loads(scenario.run("generations", "--json", "--sink", "search"))
    found: list[dict[str, object]] = report["sinks"][0]["generations"]
    return found
