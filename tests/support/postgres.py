"""A Postgres of a test's own, to be stopped, killed, put back to a copy, or replaced by another at the same address."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from deploy.local import artifacts
from deploy.local.account import own, unprivileged
from deploy.local.endpoints import Endpoints
from deploy.local.process import run_once
from deploy.local.services.postgres import SETTINGS, SUPERUSER, Postgres
from tests.support.servers import Servers

PASSWORD = "own-postgres"


class OwnPostgres:
    """One server on a free port; its cluster is a folder, its settings are given at each start."""

    def __init__(self, folder: Path) -> None:
        units = Postgres.units()
        self.bin = artifacts.ensure(units)[units[0]] / "bin"
        self.folder, self.cluster = folder, folder / "cluster"
        self.account = unprivileged()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None

    def endpoints(self, others: Endpoints) -> Endpoints:
        """The stack's addresses, with this server as the database."""
        return replace(others, postgres_port=self.port, postgres_password=PASSWORD)

    def make(self, cluster: str = "cluster") -> None:
        """initdb."""
        self.cluster = self.folder / cluster
        password = self.folder / "password"
        password.write_text(PASSWORD)
        own(self.folder, self.account)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", f"--pwfile={password}"]
        self._run("initdb", f"--pgdata={self.cluster}", f"--username={SUPERUSER}", *options)

    def start(self, **settings: str) -> None:
        """Start it and wait until it answers."""
        argv = [str(self.bin / "postgres"), "-D", str(self.cluster), "-p", str(self.port)]
        for key, value in {**SETTINGS, **settings}.items():
            argv += ["-c", f"{key}={value}"]
        (self.cluster / "postmaster.pid").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                user=self.account.uid if self.account else None,
                group=self.account.gid if self.account else None,
                extra_groups=[] if self.account else None,
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """As the superuser."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=SUPERUSER, password=PASSWORD, dbname=database, autocommit=True
        )

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: an orderly stop; SIGQUIT: as after a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def kill(self) -> None:
        """kill -9 of the server and all of its processes."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
            self.process = None

    def copy(self, to: str) -> None:
        """Copy the stopped server's files, as a backup does."""
        shutil.copytree(self.cluster, self.folder / to, symlinks=True)
        own(self.folder / to, self.account)

    def put_back(self, copy: str) -> None:
        """Replace the stopped server's files by an earlier copy."""
        shutil.rmtree(self.cluster)
        (self.folder / copy).rename(self.cluster)

    def renumber(self) -> int:
        """Give the stopped server's cluster another system identifier, as pg_upgrade does, and take its logical slots.

        The identifier stands in pg_control, under a checksum, and at the beginning of each file of the log.

        Returns:
            the new one.
        """
        control = self.cluster / "global" / "pg_control"
        data = bytearray(control.read_bytes())
        end = _checked_part(bytes(data))
        number = int.from_bytes(data[:8], sys.byteorder) + 1
        data[:8] = number.to_bytes(8, sys.byteorder)
        data[end : end + 4] = crc32c(bytes(data[:end])).to_bytes(4, sys.byteorder)
        control.write_bytes(data)
        for path in (self.cluster / "pg_wal").iterdir():
            if len(path.name) == 24 and path.is_file():
                with path.open("r+b") as log:
                    log.seek(24)
                    log.write(number.to_bytes(8, sys.byteorder))
        for slot in (self.cluster / "pg_replslot").iterdir():
            shutil.rmtree(slot)
        return number

    def promote_later(self) -> None:
        """Make the stopped server take a new timeline at its next start, as after a restore to a point in time.

        That start needs ``restore_command``.
        """
        (self.cluster / "recovery.signal").touch()
        own(self.cluster, self.account)

    def _run(self, program: str, *arguments: str) -> None:
        run_once(program, [str(self.bin / program), *arguments], self.folder, self.account)


Server = TypeVar("Server", bound=OwnPostgres)


class Elsewhere:
    """The stack's servers, with another Postgres."""

    def __init__(self, stack: Servers, postgres: OwnPostgres) -> None:
        self._stack, self._postgres = stack, postgres

    @property
    def endpoints(self) -> Endpoints:
        return self._postgres.endpoints(self._stack.endpoints)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stack, name)


def _checked_part(control: bytes) -> int:
    """Where pg_control's checksum stands: behind all that it is of."""
    crc = 0xFFFFFFFF
    for at in range(512):
        if at >= 200 and int.from_bytes(control[at : at + 4], sys.byteorder) == crc ^ 0xFFFFFFFF:
            return at
        crc = _CRC[(crc ^ control[at]) & 0xFF] ^ (crc >> 8)
    raise AssertionError("pg_control has another form")


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum, which Postgres takes of its files."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _row(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC = [_row(byte) for byte in range(256)]


@contextlib.contextmanager
def own_postgres(**settings: str) -> Iterator[OwnPostgres]:
    """A running server for the duration of a block."""
    with running(OwnPostgres, "headwater-postgres-", settings) as server:
        yield server


@contextlib.contextmanager
def running(made: Callable[[Path], Server], prefix: str, settings: Mapping[str, str]) -> Iterator[Server]:
    """A server in a folder of its own, started, for the duration of a block.

    Args:
        made: the server, given its folder.
        prefix: of the folder's name.
        settings: of its start.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("TMPDIR", "/tmp")))
    folder.chmod(0o755)
    server = made(folder)
    try:
        server.make()
        server.start(**settings)
        yield server
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
