"""A server that listens: for ``headwater serve``, and inside of ``headwater run --serve``."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from cdc.errors import ConfigError
from cdc.saying import Say
from console.http.app import make_app
from console.http.guard import access
from console.http.served import Pipelines
from console.log_lines import belongs_to, speaks_json

# Who waits for a write when the server is told to stop is answered `timeout` within this time.
STOP_SECONDS = 5
# A connection whose other end takes nothing is ended by the kernel after so long.
STALLED_SECONDS = 120
# Open files that this process may have, if its limit allows so many.
MOST_FILES = 65_536


def serve(files: Sequence[Path], host: str, port: int, names: tuple[str, ...], say: Say) -> None:
    """Answer until told to stop.

    Args:
        files: pipeline files.
        host: the address to listen at.
        port: 0 for any that is free.
        names: under which else the server may be called.
        say: told where it listens.

    Raises:
        ConfigError: the address is taken, or needs a token (terminal).
        PipelineFileError: a file can't be used (terminal).
    """
    with _listening(files, host, port, names, say) as (server, listener):
        server.run(sockets=[listener])


@contextmanager
def serving(files: Sequence[Path], host: str, port: int, say: Say) -> Iterator[None]:
    """Answer in a thread of this process, meanwhile; arguments and errors as ``serve``."""
    with _listening(files, host, port, (), say) as (server, listener):
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(timeout=2 * STOP_SECONDS)


def _allow_many() -> None:
    """A subscriber is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def _listening(
    files: Sequence[Path], host: str, port: int, names: tuple[str, ...], say: Say
) -> Iterator[tuple[uvicorn.Server, socket.socket]]:
    allowed, pipelines = access(os.environ, host, names), Pipelines(files)
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(
            f"can't listen at {host}, port {port}: {error.strerror}", fix="choose another port, or 0 for any"
        ) from error
    # What is accepted inherits it. A page is more than one write, and the kernel would hold the second back until the
    # reader has answered for the first, which he does after 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Who takes nothing of a stream for so long is not there any more, whatever his machine says.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_SECONDS * 1_000)
    _allow_many()
    if len(pipelines.names) == 1:
        belongs_to(pipelines.names[0])
    with listener:
        address = f"[{host}]" if ":" in host else host
        say(f"serving {', '.join(pipelines.names)} at http://{address}:{listener.getsockname()[1]}")
        server: uvicorn.Server
        app = make_app(pipelines, allowed, lambda: server.should_exit)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                timeout_graceful_shutdown=STOP_SECONDS,
                log_config=None if speaks_json() else LOGGING_CONFIG,  # its own words go where ours go
            )
        )
        yield server, listener
