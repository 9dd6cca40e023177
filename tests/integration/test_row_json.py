"""Our converter for Connect writes what Kafka's own writes, byte for byte, less what nobody reads.

Keys above all: two texts of one key would be two rows for ever in a compacted topic.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from cdc.pipeline import Connect
from connectors.debezium import ROW_CONVERTER
from connectors.rest import ConnectClient
from deploy.connect import build
from deploy.local import artifacts
from deploy.local.endpoints import Endpoints
from deploy.local.stack import LocalStack

PROGRAM = Path(__file__).parents[1] / "support" / "RowJsonCheck.java"
# Of the values and of what is left out; another one another time.
SEEDS = ("1", "2", "3")


def test_the_same_bytes_as_kafkas_converter(tmp_path: Path) -> None:
    """Rows of all types, nested, with nulls and defaults; change events; what must be refused."""
    jars, jar = artifacts.ensure(["kafka"], print)["kafka"], tmp_path / "headwater-json.jar"
    java = LocalStack().site.jdk.home / "bin"
    build.build("headwater-json", str(java / "javac"), [jars], jar)
    for seed in SEEDS:
        command = [str(java / "java"), "-cp", f"{jar}:{jars}/*", str(PROGRAM), seed]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        word, count = done.stdout.split()
        assert word == "same"
        assert int(count) > 4_000


def test_the_local_worker_has_it(stack: Endpoints) -> None:
    assert ROW_CONVERTER in ConnectClient(Connect(url=stack.connect_url)).plugins(connectors_only=False)
