"""A pipeline of version 0.1.0, made and fed by that version's own code, goes on under this one.

What is rebuilt is rebuilt by the commands that refusals name, beside readers who never see a gap.
"""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cdc.formats import STATE
from deploy.local.unpack import unpack_tar
from tests.support.readers import Readers
from tests.support.scenario import Scenario
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(1500)]

FIRST_VERSION = "6aa1ae71d42b3288aaec90710f2ac03dd1d12882"
SINKS = ("search", "cache", "warehouse")
JOINED = {"search": "customer_card", "cache": "order_card"}


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The first version's source."""
    packed, folder = tmp_path / "older.tar", tmp_path / "older"
    words = ["git", "-C", str(Path(__file__).parents[2]), "archive", "-o", str(packed), FIRST_VERSION]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this clone does not have the first version's commit: {done.stderr.strip()}")
    with tarfile.open(packed) as archive:
        unpack_tar(archive, folder)
    assert 'version = "0.1.0"' in (folder / "pyproject.toml").read_text()
    return folder


def flows(scenario: Scenario) -> dict[tuple[str, str], dict[str, Any]]:
    return {(sink["sink"], flow["flow"]): flow for sink in scenario.status()["sinks"] for flow in sink["flows"]}


def test_a_pipeline_of_the_first_version_goes_on(local_stack: Servers, tmp_path: Path, older: Path) -> None:
    scenario = Scenario(local_stack, tmp_path, code=older)
    joined = {(sink, scenario.view(view)) for sink, view in JOINED.items()}
    try:
        scenario.prepare()
        scenario.run("run", "--until-caught-up", "--timeout", "300")
        scenario.launch()
        with scenario.load(seed=3, seconds=12, rate=30):
            pass
        scenario.kill()  # in the middle of what it was about
        scenario.code = None
        assert "note its format" in scenario.run("plan", ok=(2,))
        scenario.run("apply", "--wait")
        scenario.readable(allowed=False)
        with ExitStack() as stack:
            readers = [stack.enter_context(Readers(scenario, sink)) for sink in SINKS]
            stack.enter_context(scenario.load(seed=4, seconds=60, rate=10))
            scenario.launch()
            scenario.wait(
                lambda _: all((flows(scenario)[one]["state"] == "failed") == (one in joined) for one in flows(scenario))
            )
            for one in joined:
                why = flows(scenario)[one]["last_error"]
                assert "was written by an older Headwater" in why
                (command,) = set(re.findall(r"`headwater rebuild FILE (\w+ --auto)`", why))
                scenario.readable(allowed=True)  # to compare, it reads Postgres
                report = json.loads(scenario.run("rebuild", *command.split(), "--json"))
                assert (report["stage"], report["equal"]) == ("living", True)
            for reader in readers:
                assert reader.reads > 20
                assert (reader.failed, reader.wrong) == ([], [])
        for sink in JOINED:
            scenario.run("retire", sink, "--yes")
        scenario.assert_equal()
        kept = json.loads((scenario.folder / "state" / scenario.name / "format.json").read_text())
        assert kept == {"format": STATE}
    finally:
        scenario.close()
