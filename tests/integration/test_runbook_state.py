"""docs/runbooks.md: `run` on another machine, a state folder that is lost, one that is put back from an older copy."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark.disk.lease import EXPIRES_SECONDS
from tests.support.scenario import Scenario
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.slow]

SINKS = ("search", "cache", "warehouse")
END_SECONDS = 120.0


def ended(scenario: Scenario) -> str:
    """What `run` has said, once it has ended by itself and with an error."""
    assert scenario.runner is not None
    try:
        assert scenario.runner.wait(END_SECONDS) == 1, scenario.log()
    except subprocess.TimeoutExpired:
        pytest.fail(f"`run` goes on:\n{scenario.log()}")
    scenario.runner = None
    return (scenario.folder / "run.log").read_text(errors="replace")


def forget_log(scenario: Scenario) -> None:
    (scenario.folder / "run.log").unlink(missing_ok=True)


def build(scenario: Scenario, sink: str) -> None:
    """The next generation, shown to readers once it was compared, which takes the right to read."""
    scenario.readable(allowed=True)
    scenario.run("rebuild", sink, "--auto")
    scenario.readable(allowed=False)


def level(scenario: Scenario, *sinks: str) -> None:
    """Wait until these sinks have applied all that is in the log."""

    def good(report: dict[str, Any]) -> bool:
        mine = [sink for sink in report["sinks"] if sink["sink"] in sinks]
        return all(sink["lag_events"] == 0 and sink["state"] == "running" for sink in mine)

    scenario.wait(good)


def test_run_on_another_machine_while_the_old_one_lives_on(local_stack: Servers, tmp_path: Path) -> None:
    """The old one's writes are refused, it ends, and its service manager starts it in vain."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    old = Scenario(local_stack, here, sinks=("cache", "warehouse"))
    with old.running():
        with old.load(seed=61, seconds=10):
            pass
        shutil.copytree(here / "state", there / "state")
        place = {f"sinks.warehouse.{key}": str(here / "warehouse" / tail) for key, tail in WAREHOUSE.items()}
        new = replace(old, folder=there, runner=None, extra=place)
        new.write_pipeline()
        # The copy says that the old one is alive, and is believed for so long after its last word.
        time.sleep(EXPIRES_SECONDS)
        try:
            with old.load(seed=62, seconds=150, rate=10):  # one that has nothing to write learns nothing
                new.start()
                said = ended(old)
                assert "was claimed" in said or "was taken over" in said
                forget_log(old)
                old.launch()  # as systemd does
                assert "--take-over" in ended(old)
            new.assert_equal()
            assert new.runner is not None and new.runner.poll() is None
            # Somebody goes back, and says so.
            new.stop()
            with old.load(seed=63, seconds=10):
                pass
            forget_log(old)
            old.start("--take-over")
            old.assert_equal()
        finally:
            new.stop()


WAREHOUSE = {"catalog_uri": "catalog.db", "warehouse": ""}


def test_a_state_folder_from_an_older_copy(local_stack: Servers, tmp_path: Path) -> None:
    """Refused by name; then what is repeated changes nothing, and a sink that was promoted since is built again."""
    scenario = Scenario(local_stack, tmp_path)
    with scenario.running():
        scenario.stop()
        shutil.copytree(tmp_path / "state", tmp_path / "older")
        scenario.start()
        with scenario.load(seed=64, seconds=12):
            pass
        build(scenario, "search")
        scenario.run("retire", "search", "--generation", "1", "--yes")
        level(scenario, *SINKS)
        scenario.stop()
        with scenario.load(seed=65, seconds=10):
            pass
        shutil.rmtree(tmp_path / "state")
        (tmp_path / "older").rename(tmp_path / "state")
        forget_log(scenario)
        scenario.launch()
        said = ended(scenario)
        for sink in SINKS:
            assert f"sink {sink}: " in said and "--take-over" in said
        scenario.launch("--take-over")
        level(scenario, "cache", "warehouse")
        scenario.assert_equal("--sink", "cache", "--sink", "warehouse")
        report = scenario.status("search")["sinks"][0]
        assert report["state"] == "failed"
        assert "see generation 2" in scenario.run("status", "--sink", "search")
        build(scenario, "search")
        scenario.assert_equal()
        assert not scenario.dead_letters()


def test_a_state_folder_that_is_lost(local_stack: Servers, tmp_path: Path) -> None:
    """Nothing is filled over what is there, or beside it unseen; one command a sink, and no reader misses a thing."""
    scenario = Scenario(local_stack, tmp_path, sinks=("cache", "warehouse"))
    with scenario.running():
        build(scenario, "cache")
        scenario.run("retire", "cache", "--generation", "1", "--yes")
        scenario.stop()
        shutil.rmtree(tmp_path / "state")
        with scenario.load(seed=66, seconds=10):
            pass
        forget_log(scenario)
        scenario.launch()
        said = ended(scenario)
        assert "see generation 2" in said
        for sink in scenario.sinks:
            assert f"`headwater rebuild FILE {sink} --auto`" in said
        for sink in scenario.sinks:
            build(scenario, sink)
        numbers = [entry["generation"] for entry in generations(scenario) if entry["stage"] == "living"]
        assert sorted(numbers) == [2, 3]
        scenario.launch()
        with scenario.load(seed=67, seconds=10):
            pass
        scenario.assert_equal()
        for entry in generations(scenario):
            if entry["stage"] != "living":
                scenario.run("retire", entry["sink"], "--generation", str(entry["generation"]), "--yes")
        scenario.assert_equal()


def generations(scenario: Scenario) -> list[dict[str, Any]]:
    import json

    report = json.loads(scenario.run("generations", "--json"))
    return [{"sink": sink["sink"], **entry} for sink in report["sinks"] for entry in sink["generations"]]
