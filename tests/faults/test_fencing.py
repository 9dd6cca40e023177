"""Fault 40, a zombie: a runner is paused, another takes over, the first one wakes up: its writes are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from spark.disk.lease import EXPIRES_SECONDS
from tests.support.scenario import Scenario

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]

END_SECONDS = 90.0


@pytest.mark.parametrize("whole", [True, False], ids=["the whole family paused", "only the driver's Python paused"])
def test_fault_40_a_zombie_is_fenced_off(scenario: Scenario, *, whole: bool) -> None:
    old = scenario.runner
    assert old is not None
    family = [old.pid, *([c.pid for c in psutil.Process(old.pid).children(recursive=True)] if whole else [])]
    log = scenario.folder / "run.log"
    with scenario.load(seed=40, seconds=EXPIRES_SECONDS + 30, rate=20):
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        refused = [sys.executable, "-m", "console.cli", "run", str(scenario.file)]
        too_early = subprocess.run(refused, env=scenario.environment(), capture_output=True, text=True, check=False)
        assert too_early.returncode == 1 and "already run by process" in too_early.stderr
        time.sleep(EXPIRES_SECONDS + 1)
        said = len(log.read_text())
        scenario.runner = None
        scenario.start()
        for pid in family:
            os.kill(pid, signal.SIGCONT)
        assert old.wait(END_SECONDS) == 1, log.read_text()[said:]
    assert "taken over" in log.read_text()[said:] or "was claimed" in log.read_text()[said:]
    scenario.assert_equal()
    assert scenario.runner is not None and scenario.runner.poll() is None
    # What the old one has given back at its end was not its own any more.
    second = subprocess.run(refused, env=scenario.environment(), capture_output=True, text=True, check=False)
    assert second.returncode == 1 and "already run by process" in second.stderr
    scenario.execute("UPDATE customers SET name = name || '.'")
    scenario.assert_equal()
    assert not scenario.dead_letters()
