"""PgBouncer before a test's database, as managed services and careful operators put one there."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.account import own, unprivileged
from deploy.local.endpoints import Endpoints
from tests.support.redis_server import free_port
from tests.support.source import eventually

# What is needed besides what every Debian has.
PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")


@contextmanager
def pooler(server: Endpoints, users: dict[str, str], mode: str = "transaction") -> Iterator[int]:
    """A running PgBouncer; yields its port.

    Args:
        server: whose Postgres it stands before.
        users: role -> password.
        mode: when a client gives its connection back: ``session``, ``transaction``.
    """
    folder = Path(tempfile.mkdtemp(prefix="headwater-pooler-", dir=os.environ.get("TMPDIR", "/tmp")))
    folder.chmod(0o755)
    try:
        program, environment = _program(folder)
        port = free_port()
        (folder / "users").write_text("".join(f'"{user}" "{password}"\n' for user, password in users.items()))
        (folder / "ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.postgres_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = plain\nauth_file = {folder / 'users'}\n"
            f"pool_mode = {mode}\nignore_startup_parameters = extra_float_digits\n"
        )
        account = unprivileged()  # which refuses root
        own(folder, account)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(program), str(folder / "ini")],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        try:
            assert eventually(lambda: _listens(port)), (folder / "log").read_text()
            yield port
        finally:
            process.kill()
            process.wait(10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _program(folder: Path) -> tuple[Path, dict[str, str]]:
    """The program that is installed, else Debian's package unpacked here; the test is skipped where neither is had."""
    if found := shutil.which("pgbouncer"):
        return Path(found), {}
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("no PgBouncer here, and no apt-get that could fetch it")
    fetched = subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=folder, capture_output=True, check=False)
    if fetched.returncode != 0:
        pytest.skip("no PgBouncer here, and apt-get could not fetch it")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder / "root")], check=True)
    libraries = folder / "root/usr/lib" / f"{platform.machine()}-linux-gnu"
    return folder / "root/usr/sbin/pgbouncer", {"LD_LIBRARY_PATH": str(libraries)}
