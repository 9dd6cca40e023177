"""Nothing has the name by which it is believed before it is on the disk: a power cut would leave it empty."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import compiled
from deploy.local import artifacts
from deploy.local.maven import Coordinate
from deploy.local.site import Site

JAR = "org.example:a:1"
Seen = list[tuple[bytes, bool]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], Seen]:
    """Look, at each call by which the disk is told to keep what was written, at a file and at its last name."""
    found: Seen = []

    def watch(unfinished: str, name: str) -> Seen:
        def look(*_: int) -> None:
            [written] = tmp_path.glob(unfinished)
            found.append((written.read_bytes(), any(tmp_path.glob(name))))

        monkeypatch.setattr(os, "sync", look)
        monkeypatch.setattr(os, "fsync", look)
        return found

    return watch


def test_what_was_fetched(seen: Callable[[str, str], Seen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    file = artifacts.Pinned(Coordinate.parse(JAR), 3, hashlib.sha512(b"jar").hexdigest())
    monkeypatch.setattr(artifacts, "pinned", lambda: {"lib": (file,)})
    arrived = tmp_path / "arrived"
    arrived.mkdir()
    (arrived / file.coordinate.file_name).write_bytes(b"jar")
    told = seen(".unpacking-*/*", "lib-*")
    artifacts._install("lib", arrived)
    assert told == [(b"jar", False)]
    assert [one.read_bytes() for one in artifacts.folder("lib").iterdir()] == [b"jar"]


def test_a_jar_of_ours(seen: Callable[[str, str], Seen], tmp_path: Path) -> None:
    javac, target = tmp_path / "javac", tmp_path / "ours.jar"
    javac.write_text("#!/bin/sh\n")
    javac.chmod(0o755)
    told = seen(".ours.jar.*", "ours.jar")
    compiled.build(str(javac), [], [], target)
    assert told == [(target.read_bytes(), False)]


def test_a_secret(seen: Callable[[str, str], Seen], tmp_path: Path) -> None:
    told = seen("secrets/.postgres.*", "secrets/postgres")
    made = Site(tmp_path, 15000, None).secret("postgres")
    assert told == [(f"{made}\n".encode(), False)]
