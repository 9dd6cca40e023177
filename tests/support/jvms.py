"""Javas that are there in name only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark import SparkContext

from spark.machine import quiet, session


def fake_jdk(folder: Path, version: str) -> Path:
    """A Java home, by what is read of it."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def jvms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no Java but those made below the returned folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("cdc.java.SYSTEM_FOLDER", tmp_path / "jvm")
    (tmp_path / "jvm").mkdir()
    return tmp_path / "jvm"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environment of each virtual machine that Spark would be started in."""
    seen: list[dict[str, str]] = []
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda **_: None)
    monkeypatch.setattr(session, "launch_gateway", lambda *_: seen.append(dict(os.environ)))
    monkeypatch.setattr(quiet, "keep", lambda _: None)
    return seen
