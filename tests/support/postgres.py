"""A Postgres of a test's own, to be stopped, killed, put back to a copy, or replaced by another at the same address."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from deploy.local import artifacts
from deploy.local.account import own, unprivileged
from deploy.local.endpoints import Endpoints
from deploy.local.process import run_once
from deploy.local.services.postgres import SETTINGS, SUPERUSER, Postgres

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

    def promote_later(self) -> None:
        """Make the stopped server take a new timeline at its next start, as after a restore to a point in time.

        That start needs ``restore_command``.
        """
        (self.cluster / "recovery.signal").touch()
        own(self.cluster, self.account)

    def _run(self, program: str, *arguments: str) -> None:
        run_once(program, [str(self.bin / program), *arguments], self.folder, self.account)


@contextlib.contextmanager
def own_postgres(**settings: str) -> Iterator[OwnPostgres]:
    """A running server for the duration of a block."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-", dir=os.environ.get("TMPDIR", "/tmp")))
    folder.chmod(0o755)
    server = OwnPostgres(folder)
    try:
        server.make()
        server.start(**settings)
        yield server
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
