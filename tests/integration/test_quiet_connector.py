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

PROGRAMS = Path(__file__).parents[1] / "support"


def said(program: str, folder: Path) -> str:
    """What a Java program prints that has our connector beside it."""
    units, jar = artifacts.ensure(["kafka", "connect-plugins"], print), folder / "headwater-postgres.jar"
    jars = [units["kafka"], units["connect-plugins"] / DEBEZIUM]
    java = LocalStack().site.jdk.home / "bin"
    build.build("headwater-postgres", str(java / "javac"), jars, jar)
    path = ":".join([str(jar), *(f"{one}/*" for one in jars)])
    command = [str(java / "java"), "-cp", path, str(PROGRAMS / program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_rests_and_wakes(tmp_path: Path) -> None:
    """With Debezium's own queue: an empty answer, one record, an empty answer; only the second lets it ask for its
    stored offsets. Then: what is told is seen at once, and looking for nothing costs nothing. Asked as Debezium asks
    it, the queue spins for half a millisecond each time, which is a tenth of a core."""
    *words, told, rest = said("QuietCheck.java", tmp_path).split()
    assert words == ["ours", "nothing:0:rests", "record:1:asks", "nothing:0:rests"]
    assert int(told.removeprefix("told:")) < 20_000
    assert int(rest.removeprefix("rest:")) < 60_000


def test_the_chunk_that_was_read_as_the_connector_started_is_read_anew_before_anything_is_sent(tmp_path: Path) -> None:
    """Debezium reads it before it asks for classes of ours: nobody had looked whether all could be seen."""
    assert said("ChunksCheck.java", tmp_path).split() == ["begun-amid:anew:sent", "asked-for:sent:sent"]


def test_the_local_worker_has_it(stack: Endpoints) -> None:
    assert QUIET_CONNECTOR in ConnectClient(Connect(url=stack.connect_url)).plugins()
