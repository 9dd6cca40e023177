"""promtool, the tool that Prometheus checks rules with: found, or built by Go. ``python -m tests.support.promtool``.

There is no package of it to be locked. Go builds one version from its sources, whose digests it compares with its
public database by itself; that takes minutes, once, so only ``make test-alerts`` does it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cdc.errors import HeadwaterError, StackError
from deploy.local.artifacts import cache_dir

VERSION = "v0.316.0"
PACKAGE = "github.com/prometheus/prometheus/cmd/promtool"
# Two cores that others keep busy need a quarter of an hour; after this it hangs.
BUILD_SECONDS = 3600.0
MISSING = "promtool is neither on PATH nor built: `make test-alerts` builds it"


def built() -> Path:
    """Where the built one is, or will be."""
    return cache_dir() / f"promtool-{VERSION}" / "promtool"


def found() -> str | None:
    """The one to be used: the built one, whose version is known, else PATH's."""
    return str(built()) if built().is_file() else shutil.which("promtool")


def build() -> Path:
    """Build it if it is not there.

    Raises:
        StackError: there is no Go, or it can't build it.
    """
    target = built()
    if target.is_file():
        return target
    go = shutil.which("go")
    if go is None:
        raise StackError("promtool can't be built: there is no Go", fix="install Go, or put promtool on PATH")
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    # One package at a time: some of them take a GiB each. Go puts the file there last.
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-p=1 -trimpath", "CGO_ENABLED": "0"}
    command = [go, "install", f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(command, env=environment, cwd=folder, check=False, timeout=BUILD_SECONDS)
    if done.returncode or not target.is_file():
        raise StackError(f"Go could not build promtool {VERSION}", fix="see what it said above; it needs Go 1.26.7")
    return target


if __name__ == "__main__":
    try:
        print(build())
    except HeadwaterError as error:
        sys.exit(str(error))
