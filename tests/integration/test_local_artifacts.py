"""Fetching through the real Maven client: a wrong digest, an interruption, two processes at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.errors import StackError
from deploy.local import artifacts

SMALL = "connect-plugins"  # 5 MB
ENSURE = f"from deploy.local import artifacts as a; a.ensure(['{SMALL}'], lambda line: print(line, flush=True))"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def start(cache: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "HEADWATER_CACHE": str(cache)}
    return subprocess.Popen([sys.executable, "-c", ENSURE], env=env, stdout=subprocess.PIPE, text=True)


def complete(cache: Path) -> bool:
    jars = {jar.name for jar in artifacts.folder(SMALL).rglob("*.jar")}
    return "debezium-connector-postgres-3.7.0.Final.jar" in jars and not (cache / ".fetch").exists()


@pytest.mark.sampled
def test_a_wrong_digest_is_refused_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [right] = artifacts.pinned()[SMALL]
    monkeypatch.setattr(artifacts, "pinned", lambda: {SMALL: (replace(right, sha512="0" * 128),)})
    with pytest.raises(StackError, match="another digest than the pinned one"):
        artifacts.ensure([SMALL])
    assert [path.name for path in cache.iterdir()] == ["fetch.lock"]
    monkeypatch.setattr(artifacts, "pinned", lambda: {SMALL: (right,)})
    artifacts.ensure([SMALL])
    assert complete(cache)


def test_two_processes_at_once_and_one_killed(cache: Path) -> None:
    """The first is killed while its Maven works; two more start meanwhile; one waits for the other, both succeed."""
    with start(cache) as killed:
        assert killed.stdout is not None
        assert "fetching" in killed.stdout.readline()
        deadline = time.monotonic() + 60
        while not list((cache / ".fetch").rglob("*.jar")) and time.monotonic() < deadline:
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
    assert not complete(cache)
    with start(cache) as one, start(cache) as two:
        outputs = [process.communicate(timeout=120)[0] for process in (one, two)]
    assert (one.returncode, two.returncode) == (0, 0)
    assert sum("fetched and checked" in output for output in outputs) == 1
    assert sum("another process is fetching" in output for output in outputs) >= 1
    assert complete(cache)


def test_an_unknown_version_is_named_without_an_address(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [right] = artifacts.pinned()[SMALL]
    gone = replace(right, coordinate=replace(right.coordinate, version="0.0.0-never"))
    monkeypatch.setattr(artifacts, "pinned", lambda: {SMALL: (gone,)})
    with pytest.raises(StackError) as caught:
        artifacts.ensure([SMALL])
    assert "0.0.0-never" in str(caught.value)
    assert "://" not in str(caught.value)


def test_spark_jars_are_the_pinned_ones() -> None:
    names = {jar.name for jar in artifacts.spark_jars()}
    assert names == {pinned.coordinate.file_name for pinned in artifacts.pinned()["spark"]}
