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


def test_stored_offsets_are_asked_for_after_records_only(tmp_path: Path) -> None:
    """With Debezium's own queue: an empty answer, one record, an empty answer."""
    units, jar = artifacts.ensure(["kafka", "connect-plugins"], print), tmp_path / "headwater-postgres.jar"
    jars = [units["kafka"], units["connect-plugins"] / DEBEZIUM]
    java = LocalStack().site.jdk.home / "bin"
    build.build("headwater-postgres", str(java / "javac"), jars, jar)
    command = [str(java / "java"), "-cp", ":".join([str(jar), *(f"{folder}/*" for folder in jars)]), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == ["ours", "nothing:0:rests", "record:1:asks", "nothing:0:rests"], done.stderr


def test_the_local_worker_has_it(stack: Endpoints) -> None:
    assert QUIET_CONNECTOR in ConnectClient(Connect(url=stack.connect_url)).plugins()
