"""A transaction is in the log before it can be seen: what is read in between is older than what the log says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from connectors.apply import apply
from connectors.resnapshot import Wish, resnapshot
from connectors.snapshot import wait_snapshot
from tests.support.servers import Servers
from tests.support.source import SourceDatabase, eventually, source_database

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow, pytest.mark.alone]


@contextmanager
def no_standby_answers(source: SourceDatabase) -> Iterator[None]:
    """Who asks for it waits at its commit for a standby that is not there."""
    with source.connect("superuser") as root:
        root.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        root.execute("SELECT pg_reload_conf()")
        try:
            time.sleep(1)
            yield
        finally:
            root.execute("ALTER SYSTEM RESET synchronous_standby_names")
            root.execute("SELECT pg_reload_conf()")


@pytest.mark.xfail(
    strict=True, reason="docs/decisions/resnapshot.md, What is not so: what was read stands above the log"
)
def test_what_is_in_the_log_and_can_not_be_seen_yet_is_not_taken_back_by_reading_again(local_stack: Servers) -> None:
    with source_database(local_stack.endpoints) as source:
        with source.connect("superuser") as root:
            root.execute(f"ALTER DATABASE {source.name} SET synchronous_commit = local".encode())
        source.execute("CREATE TABLE big (id int PRIMARY KEY, v text)")
        source.execute("INSERT INTO big SELECT i, 'old' FROM generate_series(1, 100) i")
        pipeline = source.pipeline("public.big")
        apply(pipeline)
        assert wait_snapshot(pipeline, seconds=120).done
        with source.connect() as writer, no_standby_answers(source):
            writer.execute("SET synchronous_commit = on")
            both = "WITH gone AS (DELETE FROM big WHERE id = 5) UPDATE big SET v = 'new' WHERE id = 6"
            thread = threading.Thread(target=writer.execute, args=(both,))
            thread.start()
            topic = pipeline.topic("public.big")
            in_log = eventually(
                lambda: {row["id"]: row["v"] for row in source.latest(topic).values() if row}.get(6) == "new"
            )
            assert in_log and dict(source.rows("SELECT id, v FROM big"))[6] == "old"
            resnapshot(pipeline, Wish(("public.big",), None, sweep=False))
            assert wait_snapshot(pipeline, seconds=240).done
        thread.join(30)
        wanted = dict(source.rows("SELECT id, v FROM big"))
        assert wanted[6] == "new" and 5 not in wanted
        assert {row["id"]: row["v"] for row in source.latest(topic).values() if row} == wanted
