"""What is left of a server is ended; who merely looks at its files is left alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deploy.local import process
from deploy.local.keeper import Keeper
from deploy.local.services import jvm
from deploy.local.services.registry import SERVICES
from deploy.local.site import Site

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process, which is gone at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*argv: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        return started[-1]

    yield begin
    for one in started:
        one.kill()
        one.communicate()


@pytest.fixture(params=["elasticsearch", "elasticsearch-9", "opensearch"])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Keeper:
    site = Site(tmp_path, 15000, None)
    (site.data(request.param) / "x").touch()
    return Keeper(SERVICES[request.param], site)


def pid_file(keeper: Keeper) -> str:
    return str(SERVICES[keeper.service.name]._pid_file(keeper.site.data(keeper.service.name)))  # type: ignore[attr-defined]


def ended(keeper: Keeper, monkeypatch: pytest.MonkeyPatch, *those: subprocess.Popen[bytes]) -> list[bool]:
    """Which of these processes are ended with what is left; no other of this machine is looked at."""
    found = [psutil.Process(one.pid) for one in those]
    monkeypatch.setattr(psutil, "process_iter", lambda: found)
    keeper._end_strays(lambda _: None)
    return [one.poll() is not None for one in those]


def test_who_looks_at_the_pid_file_is_left_alone(keeper: Keeper, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(pid_file(keeper)).write_text("1")
    assert ended(keeper, monkeypatch, start("tail", "-f", pid_file(keeper))) == [False]


def test_server_and_launcher_are_ended(keeper: Keeper, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher as a shell script, which has its own name before its options."""
    script = keeper.site.home / "launcher"
    script.write_text("#!/bin/sh\nread line\n")
    script.chmod(0o755)
    launcher = start(str(script), "-d", "-p", pid_file(keeper))
    server = start("sh", "-c", "read line", jvm.mark(keeper.site, keeper.service.name))
    assert ended(keeper, monkeypatch, launcher, server) == [True, True]
    assert process.matching(lambda one: one.pid in (launcher.pid, server.pid)) == []
