"""A standby of a test's own Postgres, which copies its failover slots and can be promoted to take its place."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from deploy.local.account import own
from deploy.local.services.postgres import SUPERUSER
from tests.support.postgres import PASSWORD, OwnPostgres, running
from tests.support.source import eventually

SLOT = "standby_one"
# As docs/operations.md asks of a standby.
STANDBY = {"hot_standby": "on", "hot_standby_feedback": "on", "sync_replication_slots": "on"}


class Standby(OwnPostgres):
    """A physical copy of ``primary`` that streams from it."""

    def __init__(self, folder: Path, primary: OwnPostgres) -> None:
        super().__init__(folder)
        self.primary = primary

    def make(self, cluster: str = "cluster") -> None:
        """As pg_basebackup does it, which the local stack's Postgres comes without."""
        self.cluster = self.folder / cluster
        with self.primary.connect() as connection:
            connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", [SLOT])
            connection.execute("SELECT pg_backup_start('standby', fast => true)")
            shutil.copytree(self.primary.cluster, self.cluster, symlinks=True, ignore=_left_out, dirs_exist_ok=True)
            row = connection.execute("SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)").fetchone()
        assert row is not None
        (self.cluster / "backup_label").write_text(row[0])
        (self.cluster / "standby.signal").touch()
        for folder in ("pg_wal/archive_status", "pg_wal/summaries", "pg_replslot"):
            (self.cluster / folder).mkdir(parents=True, exist_ok=True)
        own(self.folder, self.account)

    def start(self, **settings: str) -> None:
        """Start it as a standby; after a promotion as what it is then."""
        where = f"host=127.0.0.1 port={self.primary.port} user={SUPERUSER} password={PASSWORD} dbname=postgres"
        super().start(**STANDBY, primary_conninfo=where, primary_slot_name=SLOT, **settings)

    def has_copied(self, slot: str) -> bool:
        """The slot's copy is here for good."""
        with self.connect() as connection:
            row = connection.execute(
                "SELECT synced AND NOT temporary AND invalidation_reason IS NULL FROM pg_replication_slots"
                " WHERE slot_name = %s",
                [slot],
            ).fetchone()
        return bool(row and row[0])

    def take_over(self, **settings: str) -> None:
        """Answer at the primary's address, which must be free, as a primary."""
        self.stop()
        self.port = self.primary.port
        self.start(**settings)
        with self.connect() as connection:
            connection.execute("SELECT pg_promote()")
            assert eventually(lambda: connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,))


@contextlib.contextmanager
def standby_of(primary: OwnPostgres, **settings: str) -> Iterator[Standby]:
    """A running standby for the duration of a block."""
    with running(lambda folder: Standby(folder, primary), "headwater-standby-", settings) as server:
        yield server


def _left_out(folder: str, names: list[str]) -> list[str]:
    """What a backup does not take: the log, which is streamed, slots, and what belongs to the process."""
    if Path(folder).name in ("pg_wal", "pg_replslot"):
        return names
    return [name for name in names if name in ("postmaster.pid", "postmaster.opts") or name.startswith("pgsql_tmp")]
