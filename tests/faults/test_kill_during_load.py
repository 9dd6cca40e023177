"""kill -9 of each part while an application writes: afterwards every sink equals Postgres, row by row."""

import time

import pytest

from tests.support.scenario import Scenario

pytestmark = [pytest.mark.stack, pytest.mark.fault]

LOAD_SECONDS, KILL_AFTER = 14.0, 4.0


def test_nothing_killed(scenario: Scenario) -> None:
    with scenario.load(seed=1, seconds=8):
        pass
    report = scenario.assert_equal()
    assert {sink["sink"] for sink in report["sinks"]} == {"search", "cache", "warehouse"}


def test_fault_03_spark_is_killed(scenario: Scenario) -> None:
    with scenario.load(seed=2, seconds=LOAD_SECONDS):
        time.sleep(KILL_AFTER)
        scenario.kill()
    scenario.start()
    scenario.assert_equal()


@pytest.mark.parametrize("server", ["connect", "kafka", "elasticsearch", "redis-cache"])
def test_fault_16_a_server_is_killed(scenario: Scenario, server: str) -> None:
    with scenario.load(seed=hash(server) % 1000, seconds=LOAD_SECONDS):
        time.sleep(KILL_AFTER)
        scenario.stack.kill(server)
        time.sleep(2)
        scenario.stack.up()
    if server == "redis-cache":
        # The cache server keeps nothing on disk: what it held is gone with it, and the sink must be filled anew.
        scenario.stop()
        scenario.run("drop", "--sink", "cache", "--yes")
        scenario.start()
    scenario.assert_equal()
    assert scenario.runner is not None and scenario.runner.poll() is None


def test_fault_03_a_batch_whose_commit_was_lost_is_replayed(scenario: Scenario) -> None:
    scenario.stop()
    with scenario.load(seed=7, seconds=4):
        pass
    scenario.start()
    scenario.stop()
    removed = 0
    for commits in (scenario.folder / "state").glob("**/checkpoint/commits"):
        newest = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        newest.unlink()
        removed += 1
    assert removed >= 6
    scenario.start()
    scenario.assert_equal()
