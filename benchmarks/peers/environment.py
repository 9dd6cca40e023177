"""pgsync's own Python environment in the cache folder: pinned with hashes, built once, never mixed with ours."""

from __future__ import annotations

import fcntl
import hashlib
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cdc.errors import StackError
from deploy.local.artifacts import cache_dir

VERSION = "7.3.0"
LOCK = Path(__file__).with_name("pgsync.lock")
# Forty small wheels: seconds on a good line. After this the line is dead.
INSTALL_SECONDS = 600.0
Progress = Callable[[str], None]


def folder() -> Path:
    """Where the environment is, or will be: another lock file or another Python is another environment."""
    digest = hashlib.sha256(LOCK.read_bytes() + platform.python_version().encode()).hexdigest()
    return cache_dir() / f"peer-pgsync-{VERSION}-{digest[:12]}"


def ensure(progress: Progress = lambda line: None) -> Path:
    """Build the environment if it is not there.

    Args:
        progress: called with one line at a time.

    Returns:
        folder with its programs (``python``, ``bootstrap``, ``pgsync``).

    Raises:
        StackError: a package can't be had, or is not the pinned one.
    """
    target = folder()
    ready = target / "ready"  # written last: an interrupted build is simply done again
    if not ready.exists():
        cache_dir().mkdir(mode=0o755, parents=True, exist_ok=True)
        with (cache_dir() / "peer-pgsync.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready.exists():  # another process may have been faster
                progress(f"building an environment for pgsync {VERSION} in {target}")
                _build(target)
                ready.touch()
    return target / "bin"


def _build(target: Path) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(target)])
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    _run([str(target / "bin" / "python"), *install, "-r", str(LOCK)])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise StackError(
            f"pgsync's environment was not built within {INSTALL_SECONDS:.0f} s",
            fix="check the network and pip's settings, then run it again",
        ) from None
    if done.returncode != 0:
        tail = "\n".join(f"    {line}" for line in done.stdout.decode(errors="replace").splitlines()[-6:])
        raise StackError(
            f"pgsync's environment can't be built (exit code {done.returncode}):\n{tail}",
            fix="check the network and pip's settings, then run it again; without pgsync, leave the peer out",
        )
