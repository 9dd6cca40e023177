"""Headwater as this example uses it: the command line, as subprocesses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from cdc.errors import HeadwaterError

PIPELINE = Path(__file__).with_name("pipeline.yaml")
APPLY_S = 120.0
VERIFY_S = 300.0
# `run` ends its queries and closes the JVM on SIGTERM; a hung one must not keep this script for ever.
STOP_S = 60.0
EQUAL, DIFFERENT = 0, 2


def command(*arguments: str) -> list[str]:
    """The ``headwater`` command of this Python."""
    return [sys.executable, "-m", "console.cli", *arguments]


def apply(env: Mapping[str, str]) -> None:
    """``headwater apply FILE --wait``."""
    _checked(["apply", str(PIPELINE), "--wait"], env, APPLY_S)


def drop(env: Mapping[str, str]) -> None:
    """``headwater drop FILE --topics --yes``: connector, slot, publication, topics and the sinks' state."""
    _checked(["drop", str(PIPELINE), "--topics", "--yes"], env, APPLY_S)


def verify(env: Mapping[str, str]) -> tuple[bool, dict[str, Any]]:
    """``headwater verify FILE --json``: whether every sink equals Postgres, and the report."""
    done = _run(["verify", str(PIPELINE), "--json"], env, VERIFY_S)
    if done.returncode not in (EQUAL, DIFFERENT):
        raise HeadwaterError(f"headwater verify failed ({done.returncode}): {_last_lines(done.stderr)}")
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode == EQUAL, report


@contextmanager
def running(env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``headwater run FILE`` in the background; stopped at the end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        arguments = command("run", str(PIPELINE))
        process = subprocess.Popen(arguments, env=_environment(env), stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(ready: Callable[[], bool], seconds: float, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Ask ``ready()`` until it says yes; False after ``seconds``.

    Raises:
        HeadwaterError: ``headwater run`` ended meanwhile.
    """
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        if ready():
            return True
        if process.poll() is not None:
            text = log.read_text(encoding="utf-8", errors="replace")
            raise HeadwaterError(f"headwater run ended with {process.returncode}: {_last_lines(text)}")
        sleep(0.3)
    return False


def _checked(arguments: list[str], env: Mapping[str, str], seconds: float) -> None:
    done = _run(arguments, env, seconds)
    if done.returncode != 0:
        what = f"headwater {arguments[0]} failed ({done.returncode}): {_last_lines(done.stderr or done.stdout)}"
        raise HeadwaterError(what)


def _run(arguments: list[str], env: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    line = command(*arguments)
    try:
        return subprocess.run(line, env=_environment(env), capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise HeadwaterError(f"headwater {arguments[0]} did not end within {seconds:.0f} s.") from error


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **env, "HEADWATER_LOG": "text"}  # its last lines are shown to a person


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-8:])
