"""Javas that are there in name only."""

from __future__ import annotations

from pathlib import Path

import pytest


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
