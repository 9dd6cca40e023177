"""Postgres 18 with logical decoding on, by password only, on loopback only."""

from __future__ import annotations

import os
import platform
import shutil
import signal
from pathlib import Path

import psycopg

from cdc.errors import StackError
from deploy.local.account import own
from deploy.local.process import Launch, run_once
from deploy.local.services.base import PROBE_SECONDS, Service
from deploy.local.site import HOST, Site

SUPERUSER = "postgres"
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # socket paths are limited to 107 bytes: a deep home would not start
    "wal_level": "logical",
    "max_replication_slots": 20,
    "max_wal_senders": 20,
    "max_connections": 100,
    # A consumer that is gone without a word is noticed after a minute, and its slot can be taken over.
    "wal_sender_timeout": "60s",
    # A forgotten slot must not fill the disk: beyond this it is invalidated, which preflight and status name.
    "max_slot_wal_keep_size": "8GB",
    "max_wal_size": "1GB",
    "shared_buffers": "128MB",
    "io_method": "sync",  # Postgres 18 starts three I/O workers otherwise; no use on a small stack
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def superuser_password(site: Site) -> str:
    """The superuser's password. It is made before there is a cluster; beside one, a new one would open nothing.

    Args:
        site: the stack's.

    Raises:
        StackError: there is a cluster, and its password is lost.
    """
    root = site.home / "data" / Postgres.name
    if not site.has_secret("postgres") and (root / "cluster" / "PG_VERSION").exists():
        raise StackError(
            f"the password of the Postgres in {root} is lost ({site.home / 'secrets' / 'postgres'} is gone)",
            fix="put the file back, or start afresh, also without the other servers' data: headwater down --wipe (at"
            " its end it says what else is to be removed)",
        )
    return site.secret("postgres")


class Postgres(Service):
    """The source database."""

    name = "postgres"
    port_names = ("postgres",)
    refuses_root = True
    stray_seconds = 3.0  # backends see within a second or so that their postmaster is dead
    programs = ("postgres",)
    stop_signal = signal.SIGINT  # "fast": SIGTERM would wait for every client to leave by itself

    @classmethod
    def units(cls) -> tuple[str, ...]:
        """The programs for this machine's processor."""
        machine = platform.machine()
        if platform.system() != "Linux" or machine not in ("x86_64", "aarch64"):
            raise StackError(
                f"the local stack has no Postgres for {platform.system()} on {machine}",
                fix="run it on Linux (x86_64 or aarch64), or point the pipeline at a Postgres that already runs",
            )
        return (f"postgres-{machine}",)

    def prepare(self, site: Site, units: dict[str, Path]) -> None:
        """Create the cluster once; clear what a killed server left behind. StackError if its password is lost."""
        root = site.shared_data(self.name)
        cluster = root / "cluster"
        if (cluster / "PG_VERSION").exists():
            superuser_password(site)
            # Left by a kill -9. Postgres drops it itself unless the pid in it is in use again, by whomever; and no
            # process of that cluster is left here: the keeper has ended them.
            (cluster / "postmaster.pid").unlink(missing_ok=True)
            return
        password = superuser_password(site)
        password_file = root / ".password"
        password_file.unlink(missing_ok=True)
        descriptor = os.open(password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(password + "\n")
        own(password_file, site.account)
        try:
            self._initdb(site, units[self.units()[0]], cluster, password_file)
        finally:
            password_file.unlink(missing_ok=True)

    def _initdb(self, site: Site, programs: Path, cluster: Path, password_file: Path) -> None:
        half = cluster.with_name("cluster.new")  # renamed when complete: an interrupted initdb is simply done again
        shutil.rmtree(half, ignore_errors=True)
        argv = [
            str(programs / "bin" / "initdb"),
            f"--pgdata={half}",
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
        ]
        run_once("initdb", argv, cluster.parent, site.account)
        half.rename(cluster)

    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """``postgres`` with every setting on the command line: the cluster's own files stay as initdb wrote them."""
        cluster = site.shared_data(self.name) / "cluster"
        programs = units[self.units()[0]]
        argv = [str(programs / "bin" / "postgres"), "-D", str(cluster), "-p", str(site.port(self.name))]
        for key, value in SETTINGS.items():
            argv += ["-c", f"{key}={value}"]
        return Launch(argv, cwd=cluster, log=site.log(self.name), account=site.account)

    def ailment(self, site: Site) -> str | None:
        """Log in with the generated password and ask for one row. StackError if it is lost."""
        password = superuser_password(site)
        try:
            with psycopg.connect(
                host=HOST,
                port=site.port(self.name),
                user=SUPERUSER,
                password=password,
                dbname="postgres",
                connect_timeout=int(PROBE_SECONDS),
                options=f"-c statement_timeout={int(PROBE_SECONDS * 1000)}",
            ) as connection:
                connection.execute("select 1")
        except psycopg.Error as error:
            return (str(error).strip().splitlines() or ["no answer"])[-1]
        return None

    def address(self, site: Site) -> str:
        """Host and port."""
        return f"{HOST}:{site.port(self.name)}"
