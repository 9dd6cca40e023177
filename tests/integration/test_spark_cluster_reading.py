"""Our jar's reading of records on executors, which fetch the jar from the process that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import artifacts, own_classes
from deploy.local.sparkcluster import SparkCluster
from deploy.local.stack import LocalStack
from spark.machine import class_archive

pytestmark = [pytest.mark.slow]

SCRIPT = """
import json, sys
from pathlib import Path
from cdc.catalogue import Column, Table
from spark.machine import cluster
from spark.reading import native_rows
from spark.reading.native import NativeReader
from spark.reading.record import RECORD_DDL
from spark.machine.session import build_session
from tests.integration.test_native_reader import TOPIC, plain_entries, spec_of

master, jars, folder = sys.argv[1:]
conf = {"spark.executor.memory": "512m"}
spark = build_session("reading", master=master, jars=Path(jars), log=Path(folder) / "spark.log", conf=conf)
cluster.await_executors(spark)
columns = [Column("id", "bigint", "int8", nullable=False, ordinal=1), Column("v", "text", "text", ordinal=2)]
spec = spec_of(Table("public", "t", tuple(columns), ("id",)))
source = {"schema": "public", "table": "t", "lsn": 5, "sequence": '["4","5"]', "snapshot": "false", "ts_ms": 1}
records = []
for number in range(400):
    event = {"after": {"id": number, "v": f"\\u00e4 {number}"}, "source": source, "op": "c"}
    text = json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
    records.append((b'{"id":%d}' % number, text if number else text[:-1]))
seen = native_rows.seen(NativeReader.of(spec).raw, spark.createDataFrame([], RECORD_DDL))
found = plain_entries(spark, spec, records)
print("FOUND" + json.dumps([seen is not None, [row and row["v"] for row in found]]))
spark.stop()
"""


def test_executors_read_records_by_our_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = LocalStack()
    assert own_classes.prepare(stack.site, print) is not None
    monkeypatch.setenv(class_archive.VARIABLE, str(stack.endpoints.spark_archive))
    jars = artifacts.ensure(["spark"], lambda _line: None)["spark"]
    with SparkCluster(tmp_path / "machines", workers=2) as machines:
        command = [sys.executable, "-c", SCRIPT, machines.url, str(jars), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND")), None)
    assert line is not None, done.stdout + done.stderr
    assert json.loads(line.removeprefix("FOUND")) == [True, [None, *(f"ä {number}" for number in range(1, 400))]]
