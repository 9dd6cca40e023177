"""Redis servers of a test's own, with the options it wants, on a free port."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from deploy.local import artifacts
from deploy.local.services.redis import program
from tests.support.source import eventually

# Options, and a port (0: any); gives the URL.
StartRedis = Callable[..., str]


@contextmanager
def redis_servers(folder: Path) -> Iterator[StartRedis]:
    """A function that starts one; all of them are killed in the end.

    Args:
        folder: for their files.
    """
    executable = program(artifacts.ensure(["redis"], lambda _line: None)["redis"])
    running: list[subprocess.Popen[bytes]] = []

    def start(*options: str, port: int = 0) -> str:
        port = port or free_port()
        place = folder / str(port)
        place.mkdir(exist_ok=True)
        own = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), "--save", "")
        command = [str(executable), *own, *options]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        assert eventually(lambda: _answers(port)), "no Redis came"
        return f"redis://127.0.0.1:{port}/0"

    try:
        yield start
    finally:
        for process in running:
            process.send_signal(signal.SIGKILL)
            process.wait(10)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with redis.Redis(port=port) as client:
        try:
            return bool(client.ping())
        except (redis.AuthenticationError, redis.ResponseError):
            return True  # it wants a password first
        except redis.ConnectionError:
            return False
