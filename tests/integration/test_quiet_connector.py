"""Our connector above Debezium's: what it leaves out while nothing happens, and that the local worker has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cdc.pipeline import Connect
from connectors.debezium import QUIET_CONNECTOR
from connectors.rest import ConnectClient
from deploy.connect import build
from deploy.local import artifacts
from deploy.local.endpoints import Endpoints
from deploy.local.services.plugins import DEBEZIUM
from deploy.local.stack import LocalStack

PROGRAM = Path(__file__).parents[1] / "support" / "QuietCheck.java"


def test_it_rests_and_wakes(tmp_path: Path) -> None:
    """With Debezium's own queue: an empty answer, one record, an empty answer; only the second lets it ask for its
    stored offsets. Then: what is told is seen at once, and looking for nothing costs nothing. Asked as Debezium asks
    it, the queue spins for half a millisecond each time, which is a tenth of a core."""
    units, jar = artifacts.ensure(["kafka", "connect-plugins"], print), tmp_path / "headwater-postgres.jar"
    jars = [units["kafka"], units["connect-plugins"] / DEBEZIUM]
    java = LocalStack().site.jdk.home / "bin"
    build.build("headwater-postgres", str(java / "javac"), jars, jar)
    command = [str(java / "java"), "-cp", ":".join([str(jar), *(f"{folder}/*" for folder in jars)]), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    *words, told, rest = done.stdout.split()
    assert words == ["ours", "nothing:0:rests", "record:1:asks", "nothing:0:rests"], done.stderr
    assert int(told.removeprefix("told:")) < 20_000
    assert int(rest.removeprefix("rest:")) < 60_000


def test_the_local_worker_has_it(stack: Endpoints) -> None:
    assert QUIET_CONNECTOR in ConnectClient(Connect(url=stack.connect_url)).plugins()
