"""What a session starts with: its jars in the class path, where an archive of classes can hold them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.local import artifacts
from deploy.local.stack import LocalStack
from spark.machine import class_archive, startup
from spark.machine.jars import OWN_JAR
from tests.support import inside
from tests.support.own_classes import own_classes_at_hand

pytestmark = pytest.mark.stack


LOOK = """
import os, sys
from pathlib import Path
from spark.machine.session import build_session
spark = build_session("t", master="local[2]", jars=Path(sys.argv[1]), log=Path(sys.argv[2]))
jvm = spark._jvm
system = jvm.java.lang.ClassLoader.getSystemClassLoader()
for name in ("org.apache.iceberg.spark.SparkCatalog", "org.apache.kafka.clients.admin.Admin"):
    assert system.loadClass(name).getClassLoader().equals(system)
assert not spark.conf.get("spark.jars", ""), "no copies of them are made"
assert os.environ["SPARK_DIST_CLASSPATH"] == "/nowhere/else.jar", "as it was"
print(jvm.System.getProperty("java.class.path"))
"""


def test_jars_are_loaded_as_spark_itself_is_and_ours_come_last(tmp_path: Path) -> None:
    """An archive is good for a class path that begins as its own does: what is built anew must not come before."""
    own = artifacts.spark_jars()[0].parent
    with own_classes_at_hand():
        env = {name: value for name, value in os.environ.items() if name != inside.SPARK}
    env["SPARK_DIST_CLASSPATH"] = "/nowhere/else.jar"
    env[class_archive.VARIABLE] = str(LocalStack().endpoints.spark_archive)
    command = [sys.executable, "-c", LOOK, str(own), str(tmp_path / "spark.log")]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    names = [Path(entry).name for entry in done.stdout.split()[-1].split(os.pathsep)]
    assert names[-2:] == [OWN_JAR, "else.jar"]
    sparks, icebergs = (
        [at for at, name in enumerate(names) if name.startswith(start)]
        for start in ("spark-sql_", "iceberg-spark-runtime")
    )
    assert max(sparks) < min(icebergs)


def test_an_archive_of_other_jars_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars, archive, said = tmp_path / "jars", tmp_path / "spark.jsa", list[str]()
    jars.mkdir()
    made = list[list[str]]()

    def make(command: list[str], **_: Any) -> None:
        made.append(command)
        Path(command[-1]).write_text("classes")

    monkeypatch.setattr(startup.subprocess, "run", make)
    (jars / "a-1.jar").touch()
    assert startup.prepare(jars, archive, said.append)
    assert startup.prepare(jars, archive, said.append)
    assert len(made) == 1
    (jars / "a-1.jar").rename(jars / "a-2.jar")
    assert startup.prepare(jars, archive, said.append)
    assert len(made) == len(said) == 2
    archive.with_name("spark.jsa.of").unlink()  # of before archives were told apart
    assert startup.prepare(jars, archive, said.append)
    assert len(made) == 3
