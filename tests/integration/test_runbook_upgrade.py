"""docs/runbooks.md: Postgres after pg_upgrade or a blue/green switch: another system identifier, the same rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cdc.pipeline import load
from connectors.gaps.source_gaps import check_source
from connectors.preflight import preflight
from operations.recapture import FILE
from tests.support.postgres import Elsewhere, own_postgres
from tests.support.scenario import Scenario
from tests.support.servers import Servers
from tests.support.source import eventually

pytestmark = [pytest.mark.stack, pytest.mark.slow]

SINKS = ("cache", "warehouse")


def test_an_upgraded_database_is_captured_anew(local_stack: Servers, tmp_path: Path, monkeypatch: Any) -> None:
    """`run` and `check` say what it is; one command goes on, also when it is killed; readers never miss a document."""
    with own_postgres() as server:
        scenario = Scenario(Elsewhere(local_stack, server), tmp_path, sinks=SINKS)
        with scenario.running():
            with scenario.load(seed=71, seconds=10):
                pass
            scenario.assert_equal()
            assert scenario.runner is not None
            server.stop()
            number = server.renumber()
            server.start()
            scenario.execute("DELETE FROM order_items WHERE line = 1")  # before anybody looks
            assert scenario.runner.wait(120) == 1, scenario.log()
            scenario.runner = None
            said = scenario.log()
            assert f"its system identifier is {number}, not" in said
            assert "`headwater recapture " in said
            for verb in ("run", "plan", "apply"):
                assert "headwater recapture " in scenario.run_error(verb), verb
            for name, value in scenario.environment().items():
                monkeypatch.setenv(name, value)
            pipeline = load(scenario.file)
            [slot] = [answer for answer in preflight(pipeline) if answer.check.name == "slot"]
            assert slot.state == "error" and "recapture" in slot.findings[0].fix
            refused = scenario.run_error("recapture")
            assert "asks before it removes anything" in refused and f"has the system identifier {number}" in refused
            assert "every table is read again" in refused and "sink cache is built again" in refused
            kill_in_the_middle(scenario)
            began = time.monotonic()
            with scenario.load(seed=72, seconds=10):
                report = json.loads(scenario.run("recapture", "--yes", "--json"))
            print(f"captured anew in {time.monotonic() - began:.0f} s after a kill")
            assert report["equal"] and {sink["sink"] for sink in report["sinks"]} == set(SINKS)
            assert all(sink["generation"] > 1 for sink in report["sinks"])
            assert not (tmp_path / "state" / scenario.name / FILE).exists()
            scenario.readable(allowed=False)
            scenario.start()
            with scenario.load(seed=73, seconds=10):
                pass
            scenario.assert_equal()
            for sink in json.loads(scenario.run("generations", "--json"))["sinks"]:
                assert [one["stage"] for one in sink["generations"]] == ["living"]
            seen = check_source(pipeline, None)  # system identifier, timeline and witness are noted anew
            assert seen is not None and seen.system_identifier == str(number)
            known = json.loads((tmp_path / "state" / scenario.name / "source.json").read_text())
            assert known["system_identifier"] == str(number) and known["witness"] > 0


def kill_in_the_middle(scenario: Scenario) -> None:
    """Once the old capture is gone: what is left is for the same command to go on with."""
    note = scenario.folder / "state" / scenario.name / FILE
    command = [sys.executable, "-m", "console.cli", "recapture", str(scenario.file), "--yes"]
    with (scenario.folder / "recapture.log").open("wb") as log:
        process = subprocess.Popen(command, env=scenario.environment(), stdout=log, stderr=log, start_new_session=True)
        try:
            assert eventually(lambda: note.exists() and json.loads(note.read_text())["dropped"], 60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
