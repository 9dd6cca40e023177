"""`headwater status --alive`: what a container's health check goes by, with no server to ask."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cdc.pipeline import load
from console.cli.main import cli
from operations.state.folder import register_of
from operations.status.alive import ailments
from spark.disk.status import FlowStatus
from tests.support.lone_cache import written


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path)


def write(file: Path, state: str, at: float, pid: int) -> None:
    folder = register_of(load(file), "cache").generation().flow_folder("main")
    folder.mkdir(parents=True, exist_ok=True)
    FlowStatus("cache/main", state, pid, 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [], at).write(folder)


@pytest.mark.parametrize(
    ("state", "age", "pid", "found"),
    [
        ("running", 0, None, []),
        ("filling", 0, None, []),
        ("retrying", 0, None, []),  # its server is down: a new process would wait as well
        ("failed", 0, None, ["cache, main: failed"]),
        ("stopped", 0, None, ["cache, main: stopped"]),
        ("running", 60, None, ["cache, main: dead"]),  # hangs
        ("running", 0, 2**22 + 1, ["cache, main: dead"]),  # no such process
    ],
)
def test_alive_is_what_works_or_waits(file: Path, state: str, age: float, pid: int | None, found: list[str]) -> None:
    write(file, state, time.time() - age, os.getpid() if pid is None else pid)
    assert ailments(load(file)) == found


def test_a_sink_that_never_ran_is_not_alive(file: Path) -> None:
    assert ailments(load(file)) == ["cache: never run"]


def test_the_command_asks_no_server_and_tells_by_its_exit_code(file: Path) -> None:
    began = time.monotonic()
    result = CliRunner().invoke(cli, ["status", str(file), "--alive"])
    assert (result.exit_code, result.output.strip()) == (1, "cache: never run")
    write(file, "running", time.time(), os.getpid())
    result = CliRunner().invoke(cli, ["status", str(file), "--alive"])
    assert (result.exit_code, result.output.strip()) == (0, "alive")
    assert time.monotonic() - began < 2
