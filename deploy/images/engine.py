"""A Docker engine: the one that runs, else one installed and started here when that is possible."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc.errors import StackError
from cdc.saying import Say, to_nobody
from deploy.images.docker import program

PACKAGES = ("docker.io", "debootstrap", "docker-compose", "iptables")
HOW = (
    "As root on Debian or Ubuntu this command installs and starts one by itself; elsewhere install Docker Engine with "
    "its compose plugin, start it, and see that `docker info` answers."
)
# A first start makes bridge and storage folders; on a loaded machine that takes some seconds.
START_SECONDS = 60.0


class NoEngine(StackError):
    """There is no Docker engine and none can be had: what needs one is skipped, loudly."""


def answers() -> bool:
    """Whether ``docker info`` reaches an engine."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run([program("docker"), "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def engine(log: Path, progress: Say = to_nobody) -> Iterator[None]:
    """An engine for the duration of a block: the running one, or one of ours that is ended afterwards.

    Args:
        log: where an engine of ours writes.
        progress: called with one line at a time.

    Raises:
        NoEngine: there is none, and it can't be installed or started here.
    """
    if answers():
        yield
        return
    if os.geteuid() != 0:
        raise NoEngine("no Docker engine answers, and only root could start one", fix=HOW)
    _install(progress)
    progress(f"starting dockerd, its log is {log}")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        daemon = subprocess.Popen([program("dockerd")], stdout=out, stderr=out, start_new_session=True)
    try:
        _await(daemon, log)
        yield
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)


def _install(progress: Say) -> None:
    if all(shutil.which(name) for name in ("dockerd", "docker", "debootstrap")):
        return
    apt = shutil.which("apt-get")
    if apt is None:
        raise NoEngine("no Docker engine is installed, and there is no apt-get to install one", fix=HOW)
    progress(f"installing {' '.join(PACKAGES)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run([apt, "-q", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = " ".join(done.stderr.strip().splitlines()[-2:])
            raise NoEngine(f"apt-get {command[0]} failed: {lines}", fix=HOW)


def _await(daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        if daemon.poll() is not None or time.monotonic() > deadline:
            last = log.read_text(errors="replace").strip().splitlines()[-3:]
            raise NoEngine("dockerd does not start here: " + " | ".join(last), fix=HOW)
        time.sleep(0.5)


def compose() -> list[str]:
    """How compose is called here: the plugin, else ``docker-compose``.

    Raises:
        NoEngine: neither is there.
    """
    docker = program("docker")
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        return [docker, "compose"]
    alone = shutil.which("docker-compose")
    if alone is None:
        raise NoEngine("neither the compose plugin nor docker-compose is there", fix=HOW)
    return [alone]
