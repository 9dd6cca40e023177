"""``python -m examples.analytics ARGS``: ``dbt ARGS`` on the project, in an environment of its own.

The environment is made once, in the cache folder, from ``dbt.lock``: what dbt needs never meets what Headwater needs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

from cdc.errors import StackError
from deploy.local.artifacts import cache_dir

HERE = Path(__file__).parent
PROJECT, LOCK = HERE / "project", HERE / "dbt.lock"
# Seventy wheels, a hundred MB: half a minute on a good line. After this the line is dead.
INSTALL_SECONDS = 900.0


def folder() -> Path:
    """Where the environment is, or will be: another lock file or another Python is another environment."""
    digest = hashlib.sha256(LOCK.read_bytes() + platform.python_version().encode()).hexdigest()
    return cache_dir() / f"example-dbt-{digest[:12]}"


def ensure() -> Path:
    """Make the environment if it is not there; gives the ``dbt`` in it.

    Raises:
        StackError: a package can't be had, or is not the locked one.
    """
    target = folder()
    ready = target / "ready"  # written last: one that was interrupted is simply made again
    cache_dir().mkdir(mode=0o755, parents=True, exist_ok=True)
    with (cache_dir() / "example-dbt.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            print(f"making an environment for dbt in {target}", file=sys.stderr)
            _run([sys.executable, "-m", "venv", "--clear", str(target)])
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            _run([str(target / "bin/python"), *install, "--only-binary", ":all:", "--require-hashes", "-r", str(LOCK)])
            ready.touch()
    return target / "bin" / "dbt"


def _run(command: list[str]) -> None:
    try:
        code = subprocess.run(command, check=False, timeout=INSTALL_SECONDS).returncode
    except subprocess.TimeoutExpired:
        code = -1
    if code:
        raise StackError("dbt's environment can't be made", fix="check the network and pip's settings; see above")


def settings() -> dict[str, str]:
    """What dbt and the project's profile read from the environment, where it does not say so already."""
    home = Path(os.environ.get("HEADWATER_HOME") or ".headwater").absolute()
    made = home / "analytics"
    made.mkdir(parents=True, exist_ok=True)
    return {
        "DBT_PROJECT_DIR": str(PROJECT),
        "DBT_PROFILES_DIR": str(PROJECT),
        "DBT_TARGET_PATH": str(made / "target"),
        "DBT_LOG_PATH": str(made / "logs"),
        "ANALYTICS_DATABASE": str(made / "analytics.duckdb"),
        "ANALYTICS_CATALOG_URI": f"sqlite:///{home}/warehouse/catalog.db",
    }


def main(arguments: list[str]) -> int:
    """Run dbt; its exit code."""
    try:
        dbt = ensure()
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    return subprocess.run([str(dbt), *arguments], env={**settings(), **os.environ}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
