"""``headwater serve`` as users start it, on a port of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

ADDRESS = re.compile(r'serving .* at (http://[^\s"]+)')


class Server:
    """One that may be killed and started again at the same address.

    Args:
        file: the pipeline file; what the server says goes beside it.
        environment: what it sees.
        options: of the verb.
    """

    def __init__(self, file: Path, environment: Mapping[str, str], *options: str) -> None:
        self.file, self.environment, self.options = file, dict(environment), options
        self.url, self._port = "", "0"
        self._process: subprocess.Popen[str] | None = None
        self._log_thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", "console.cli", "serve", str(self.file), "--port", self._port, *self.options]
        self._process = subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if found := ADDRESS.search(line):
                self.url, self._port = found[1], found[1].rpartition(":")[2]
                self._log_thread = threading.Thread(target=self._log, args=(self._process,), daemon=True)
                self._log_thread.start()
                return
        raise AssertionError(f"it did not start:\n{''.join(said)}")

    def _log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with (self.file.parent / "serve.log").open("a") as log, process.stderr as said:
            log.writelines(said)

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a crash does."""
        assert self._process is not None
        self._process.kill()
        self._ended()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._ended()

    def _ended(self) -> None:
        assert self._process is not None and self._log_thread is not None and self._process.stderr is not None
        self._process.wait(timeout=30)
        self._log_thread.join(timeout=30)
        self._process.stderr.close()


@contextmanager
def serving(file: Path, environment: Mapping[str, str], *options: str) -> Iterator[str]:
    """Its address, while it runs."""
    with Server(file, environment, *options) as server:
        yield server.url


@contextmanager
def running_app(app: Any) -> Iterator[str]:
    """An ASGI application in a thread of this process; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=30)
