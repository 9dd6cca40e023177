"""A table is altered in the middle of something: the first snapshot, reading again, a rebuild by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.local import ready
from tests.support.migrating import Migrating, Rows

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200)]
MANY = 30_000


class Held:
    """Keeps everybody from a table until it is altered: so the migration lies in the middle of who reads it."""

    def __init__(self, made: Migrating, table: str) -> None:
        self.connection = psycopg.connect(made.conninfo)
        self.connection.execute(f"LOCK TABLE {table}".encode())

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def wait_for_reader(self, seconds: float = 90.0) -> None:
        """Until Debezium stands before the table."""
        until = time.monotonic() + seconds
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock'"
        while not self.connection.execute(waiting).fetchone()[0]:  # type: ignore[index]
            assert time.monotonic() < until, "nobody has come to read the table"
            time.sleep(0.05)

    def altered(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())
        self.connection.commit()


class Cut(Migrating):
    """The table is altered before the first snapshot has read it, and after the snapshot has begun."""

    held = False

    def wait_for_slot(self, seconds: float = 90.0) -> None:
        """Until the snapshot has its moment, of which no table has been read: `apply` wants no lock any more, and the
        slot, which waits for every transaction that writes, is made."""
        until = time.monotonic() + seconds
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            made = (
                "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE %s AND confirmed_flush_lsn IS NOT NULL"
            )
            while not connection.execute(made, [f"%{self.name}"]).fetchone()[0]:  # type: ignore[index]
                assert time.monotonic() < until, "no slot was made"
                time.sleep(0.005)

    def run(self, verb: str, *options: str, ok: tuple[int, ...] = (0,)) -> str:
        if (verb, options) == ("apply", ("--wait",)) and not self.held:
            self.held = True
            waiting = threading.Thread(target=lambda: super(Cut, self).run(verb, *options, ok=ok))
            waiting.start()
            self.wait_for_slot()
            with Held(self, "parts") as lock:
                lock.wait_for_reader()
                lock.altered(
                    "ALTER TABLE parts ADD COLUMN size int DEFAULT 4, ALTER weight TYPE bigint USING weight * 2",
                    "ALTER TABLE parts DROP COLUMN note",
                    "ALTER TABLE parts ADD COLUMN note text",
                )
            waiting.join()
            return ""
        return super().run(verb, *options, ok=ok)


def test_the_first_snapshot(tmp_path: Path) -> None:
    made = Cut(ready(), tmp_path)
    with made.running():
        assert made.held
        made.wait(lambda report: not report["evolving"])
        made.assert_equal()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Migrating]:
    migrating = Migrating(ready(), tmp_path_factory.mktemp("middle"), sinks=("search", "cache"), rows=MANY)
    with migrating.running():
        yield migrating


def test_reading_again(made: Migrating) -> None:
    made.run("resnapshot", "public.things", "--no-wait")
    with Held(made, "things") as lock:
        state = lock.connection.execute(
            f"SELECT snapshot FROM headwater.captured_{made.name} WHERE table_name = 'public.things'"
        )
        assert state.fetchone() == ("requested",), "it was read too soon: the test needs more rows"
        lock.altered("ALTER TABLE things ADD COLUMN middle text DEFAULT 'm'", "ALTER TABLE things DROP COLUMN gone")
    with Rows(made.conninfo):
        made.migrated("public.things", lambda shape: "middle" in json.dumps(shape))
    made.assert_equal()


def test_a_rebuild_by_hand(made: Migrating) -> None:
    command = [sys.executable, "-m", "console.cli", "rebuild", str(made.file), "cache", "--auto", "--json"]
    with Rows(made.conninfo):
        with (made.folder / "rebuild.log").open("wb") as log:
            rebuild = subprocess.Popen(command, env=made.environment(), stdout=subprocess.PIPE, stderr=log)
        log_file = made.folder / "rebuild.log"
        until = time.monotonic() + 120
        while "filling generation" not in log_file.read_text():
            assert rebuild.poll() is None and time.monotonic() < until, log_file.read_text()
            time.sleep(0.1)
        time.sleep(8)
        made.execute("ALTER TABLE things ADD COLUMN later int DEFAULT 7")
        made.execute("ALTER TABLE things ALTER n TYPE bigint USING n + 1")
        out, _ = rebuild.communicate(timeout=900)
    assert rebuild.returncode == 0, log_file.read_text()
    assert json.loads(out)["equal"] is True
    made.migrated("public.things", lambda shape: "later" in json.dumps(shape), seconds=400)
    made.assert_equal()


def test_without_the_owner_rows_are_read_again_and_what_needs_one_is_named(tmp_path: Path) -> None:
    made = Migrating(ready(), tmp_path, sinks=("cache",), views={"thing": {"root": "things"}})
    with made.running():
        made.stop()
        made.setup = False
        made.write_pipeline()
        made.readable(allowed=True)  # nobody grants it again
        made.start()
        made.execute("ALTER TABLE things ADD COLUMN note text DEFAULT 'n'")
        made.migrated("public.things", lambda shape: "note" in json.dumps(shape))
        made.assert_equal()
        made.execute("ALTER TABLE things REPLICA IDENTITY DEFAULT")
        report = made.wait(lambda report: any(one["error"] for one in report["evolving"]), 120)
        assert "public.things" in report["evolving"][0]["error"]
        assert report["sinks"][0]["state"] == "running"
        made.execute("ALTER TABLE things REPLICA IDENTITY FULL")  # the owner has done it
        made.wait(lambda report: not report["evolving"], 120)
        made.setup = True
        made.write_pipeline()
