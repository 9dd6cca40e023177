"""Spark's Java machine is killed while it is asked something: that is told in our words, and is no defect of ours."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext

from console.cli import main as door


def in_flight(*_: object, **__: object) -> None:
    raise Py4JError("An error occurred while calling o424.isActive")


@pytest.mark.parametrize("killed", [True, False])
def test_a_question_under_way(
    killed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
    monkeypatch.setattr(door.cli, "main", in_flight)
    monkeypatch.setattr(door, "ENDING_SECONDS", 5.0 if killed else 0.1)
    monkeypatch.delitem(sys.modules, "console.log_lines", raising=False)
    if killed:
        java.kill()
    try:
        with pytest.raises(SystemExit if killed else Py4JError):
            door.main()
    finally:
        java.kill()
        java.wait()
    assert ("error [cluster]: a process that this one needs has ended" in capsys.readouterr().err) is killed
