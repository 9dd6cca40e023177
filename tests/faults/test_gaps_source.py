"""Gaps at the source: each is named, nothing goes on past it, and the command that the message names gets well.

Topics are compared with Postgres here: the newest record of every key, which is what every sink is made of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from cdc.errors import HeadwaterError, LogGap, SlotLost, SourceChanged
from cdc.pipeline import Pipeline
from connectors.apply import apply, plan_pipeline
from connectors.database.history import read_moment
from connectors.database.lost import read_lost
from connectors.database.slot import read_slot
from connectors.drop import drop
from connectors.gaps.source_gaps import Remembered, check_source
from connectors.resnapshot import Wish, resnapshot
from connectors.servers import open_servers
from connectors.snapshots.snapshot import Progress, wait_snapshot
from tests.support.postgres import OwnPostgres, own_postgres
from tests.support.servers import Servers
from tests.support.source import SourceDatabase, eventually, source_database

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]

ROWS = 2_000
# A slot that falls this far behind is lost at the next checkpoint.
SMALL_LOG = {"max_slot_wal_keep_size": "32MB", "max_wal_size": "48MB", "min_wal_size": "32MB"}


@pytest.fixture(scope="module")
def server(local_stack: Servers) -> Iterator[OwnPostgres]:
    """A Postgres that the tests of this file may break."""
    with own_postgres(**SMALL_LOG) as made:
        yield made


@pytest.fixture
def source(server: OwnPostgres, local_stack: Servers) -> Iterator[SourceDatabase]:
    with source_database(server.endpoints(local_stack.endpoints)) as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        database.execute(f"INSERT INTO t SELECT i, 'old' FROM generate_series(1, {ROWS}) i")
        yield database


@pytest.fixture
def pipeline(source: SourceDatabase) -> Pipeline:
    made = source.pipeline("public.t")
    apply(made)
    assert wait_snapshot(made, seconds=90).done
    return made


def equal(source: SourceDatabase, pipeline: Pipeline) -> bool:
    latest = source.latest(pipeline.topic("public.t")).values()
    return {row["id"]: row["v"] for row in latest if row} == dict(source.rows("SELECT id, v FROM t"))


def change(source: SourceDatabase, mark: str) -> None:
    """Every kind of change, on other rows each time."""
    at = sum(map(ord, mark)) % 1_000
    source.execute(
        f"UPDATE t SET v = '{mark}' WHERE id BETWEEN {at} AND {at + 50}",
        f"DELETE FROM t WHERE id BETWEEN {at + 51} AND {at + 60}",
        f"UPDATE t SET id = id + 100000 WHERE id BETWEEN {at + 61} AND {at + 65}",
        f"INSERT INTO t SELECT {ROWS + at} + i, '{mark}' FROM generate_series(0, 20) i ON CONFLICT DO NOTHING",
    )


def stop_connector(pipeline: Pipeline) -> None:
    with open_servers(pipeline) as servers:
        servers.connect.stop(servers.connector)
        servers.connect.wait_stopped(servers.connector)
        slot = pipeline.source.slot
        assert eventually(lambda: not getattr(read_slot(servers.source, slot), "active", False))


def start_connector(pipeline: Pipeline, *, fails: bool = True) -> None:
    with open_servers(pipeline) as servers:
        servers.connect.resume(servers.connector)
        if not fails:
            time.sleep(8)
            return
        # It fails: Debezium looks for itself whether it can go on.
        assert eventually(lambda: bool((status := servers.connect.status(servers.connector)) and status.failed), 60)


def read_all_again(pipeline: Pipeline) -> Progress:
    resnapshot(pipeline, Wish([]))
    done = wait_snapshot(pipeline, seconds=120)
    assert done.done
    return done


def assert_refused(pipeline: Pipeline, remembered: Remembered | None, error: type[HeadwaterError], words: str) -> None:
    """By a runner, at its start and later, and by apply; nothing is changed."""
    for known in (remembered, None) if error is not SourceChanged else (remembered,):
        with pytest.raises(error, match=words) as found:
            check_source(pipeline, known)
        assert "headwater " in found.value.fix
    if error is not SourceChanged:
        for verb in (plan_pipeline, apply):
            with pytest.raises(error, match=words):
                verb(pipeline)
        with pytest.raises(error):
            resnapshot(pipeline, Wish(["public.t"]))
        assert "headwater resnapshot FILE --all" in found.value.fix


def assert_well(source: SourceDatabase, pipeline: Pipeline, remembered: Remembered | None) -> None:
    assert eventually(lambda: equal(source, pipeline), 60)
    assert plan_pipeline(pipeline) == []
    assert check_source(pipeline, remembered) is not None
    change(source, "well again")
    assert eventually(lambda: equal(source, pipeline), 60)


# -- the slot ----------------------------------------------------------------------------------------------------------


def test_fault_05_an_invalidated_slot(source: SourceDatabase, pipeline: Pipeline) -> None:
    remembered = check_source(pipeline, None)
    stop_connector(pipeline)
    change(source, "in the gap")
    source.execute("CREATE TABLE filler (v text)")
    with source.connect("superuser") as root:
        for _ in range(20):
            root.execute("INSERT INTO filler VALUES ('more')")
            root.execute("SELECT pg_switch_wal()")  # 16 MiB
            root.execute("CHECKPOINT")
            row = root.execute(
                "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s", [pipeline.source.slot]
            ).fetchone()
            if row == ("lost",):
                break
        assert row == ("lost",)
    assert_refused(pipeline, remembered, SlotLost, "invalidated")
    start_connector(pipeline, fails=False)  # it tries again and again
    assert_refused(pipeline, remembered, SlotLost, "invalidated")
    done = read_all_again(pipeline)
    assert [(table.table, table.swept) for table in done.tables] == [("public.t", 15)]
    assert_well(source, pipeline, remembered)


def test_a_slot_that_only_the_file_calls_otherwise_is_not_lost(source: SourceDatabase, pipeline: Pipeline) -> None:
    """`run` told to read everything again, which would have been refused."""
    renamed = pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"slot": "another_one"})})
    for known in (check_source(pipeline, None), None):
        with pytest.raises(SourceChanged, match=r"is captured with source\.slot: .* the file names another_one"):
            check_source(renamed, known)
    assert_well(source, pipeline, None)


def test_fault_06_a_dropped_slot_is_not_made_again_by_debezium(source: SourceDatabase, pipeline: Pipeline) -> None:
    remembered = check_source(pipeline, None)
    stop_connector(pipeline)
    change(source, "in the gap")
    with source.connect("superuser") as root:
        root.execute("SELECT pg_drop_replication_slot(%s)", [pipeline.source.slot])
    assert_refused(pipeline, remembered, SlotLost, "is gone")
    start_connector(pipeline)
    assert_refused(pipeline, remembered, SlotLost, "is gone")
    with open_servers(pipeline) as servers:
        inside = read_moment(servers.source).wal_lsn
        resnapshot(pipeline, Wish([]))
        [open_one] = read_lost(servers.source, servers.names)
        assert open_one.hides(inside)
        assert open_one.until is None, "tables are still being read"
        assert [table.swept for table in wait_snapshot(pipeline, seconds=120).tables] == [15]
        [lost] = read_lost(servers.source, servers.names)
        assert lost.since == open_one.since < inside < (lost.until or 0) <= read_moment(servers.source).wal_lsn
        assert 0 < lost.since_us < (lost.until_us or 0) <= time.time() * 1e6
    assert_well(source, pipeline, remembered)


def test_a_database_restored_without_our_tables(source: SourceDatabase, pipeline: Pipeline) -> None:
    """From a dump, into the same cluster: each verb named another one, in a circle, and none the way out."""
    stop_connector(pipeline)
    with source.connect("superuser") as root:
        root.execute("SELECT pg_drop_replication_slot(%s)", [pipeline.source.slot])
        root.execute("DROP SCHEMA headwater CASCADE")
    for verb in (plan_pipeline, apply, lambda known: resnapshot(known, Wish([]))):
        with pytest.raises(SourceChanged, match="our own tables are gone") as found:
            verb(pipeline)
        assert "headwater recapture FILE" in found.value.fix


def test_fault_06_a_slot_made_again_by_somebody(source: SourceDatabase, pipeline: Pipeline) -> None:
    remembered = check_source(pipeline, None)
    stop_connector(pipeline)
    change(source, "in the gap")
    with source.connect("superuser") as root:
        root.execute("SELECT pg_drop_replication_slot(%s)", [pipeline.source.slot])
        root.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [pipeline.source.slot])
    change(source, "after the gap")
    before = len(source.records(pipeline.topic("public.t")))
    assert_refused(pipeline, remembered, LogGap, "stands at")
    start_connector(pipeline)
    assert_refused(pipeline, remembered, LogGap, "stands at")
    assert len(source.records(pipeline.topic("public.t"))) == before
    read_all_again(pipeline)
    assert_well(source, pipeline, remembered)


def test_fault_06_a_slot_replaced_under_a_running_connector(source: SourceDatabase, pipeline: Pipeline) -> None:
    """The worst moment: the connector reconnects at once, and finds a slot."""
    remembered = check_source(pipeline, None)
    slot = pipeline.source.slot
    with source.connect("superuser") as root, source.connect() as writer:
        with root.transaction():
            root.execute("LOCK TABLE pg_catalog.pg_authid")  # nobody logs in meanwhile
            root.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [slot]
            )
            free = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            assert eventually(lambda: root.execute(free, [slot]).fetchone() == (False,))
            root.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            writer.execute("UPDATE t SET v = 'in the gap' WHERE id <= 100")
            writer.execute("DELETE FROM t WHERE id = 200")
        root.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    with open_servers(pipeline) as servers:
        assert eventually(lambda: bool((status := servers.connect.status(servers.connector)) and status.failed), 90)
    with pytest.raises((LogGap, SlotLost)):
        check_source(pipeline, remembered)
    read_all_again(pipeline)
    assert_well(source, pipeline, remembered)


def test_a_transaction_that_is_open_while_the_slot_is_replaced_is_complete(
    source: SourceDatabase, pipeline: Pipeline
) -> None:
    stop_connector(pipeline)
    with source.connect("superuser") as root:
        root.execute("SELECT pg_drop_replication_slot(%s)", [pipeline.source.slot])
    with source.connect() as first, first.transaction():
        first.execute("UPDATE t SET v = 'open' WHERE id <= 10")
        healing = threading.Thread(target=read_all_again, args=(pipeline,))
        healing.start()
        time.sleep(3)
        first.execute("DELETE FROM t WHERE id = 11")
    healing.join()
    assert_well(source, pipeline, None)


def test_a_gap_that_is_being_closed_can_be_interrupted_anywhere(
    source: SourceDatabase, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step of it the same command starts over or goes on."""
    from connectors import resnapshot as module
    from connectors.rest import ConnectClient

    class Killed(Exception):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    stop_connector(pipeline)
    change(source, "in the gap")
    with source.connect("superuser") as root:
        root.execute("SELECT pg_drop_replication_slot(%s)", [pipeline.source.slot])
    for place, name in (
        (module, "make_slot_anew"),
        (module, "drop_slot"),
        (ConnectClient, "alter_offset"),
        (ConnectClient, "resume"),
        (module, "request"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, die)
            with pytest.raises(Killed):
                resnapshot(pipeline, Wish([]))
    assert [table.swept for table in read_all_again(pipeline).tables] == [15]
    assert_well(source, pipeline, None)


# -- no false alarm ----------------------------------------------------------------------------------------------------


def test_no_false_alarm_under_load_while_everything_is_killed(
    server: OwnPostgres, source: SourceDatabase, pipeline: Pipeline, local_stack: Servers
) -> None:
    stop, alarms, checks = threading.Event(), [], [0]

    def watch() -> None:
        remembered = check_source(pipeline, None)
        while not stop.is_set():
            try:
                remembered = check_source(pipeline, remembered)
                checks[0] += 1
            except HeadwaterError as error:
                alarms.append(str(error))
                return

    def write(number: int) -> None:
        at = number
        while not stop.is_set():
            try:
                with source.connect() as connection:
                    while not stop.is_set():
                        with connection.transaction():  # two at a time: their records interleave in the log
                            at += 7
                            connection.execute("UPDATE t SET v = %s WHERE id = %s", [f"w{at}", at % ROWS + 1])
                            time.sleep(0.002)
                            connection.execute(
                                "UPDATE t SET v = %s WHERE id = %s", [f"w{at}", (at + number) % ROWS + 1]
                            )
            except Exception:
                time.sleep(0.2)  # deadlock, or the server is down

    threads = [threading.Thread(target=watch), *(threading.Thread(target=write, args=(n,)) for n in (1, 2))]
    for thread in threads:
        thread.start()
    try:
        with open_servers(pipeline) as servers:
            for _ in range(3):
                time.sleep(3)
                servers.connect.restart(servers.connector)
        time.sleep(3)
        local_stack.kill("connect")
        time.sleep(1)
        local_stack.up(["connect"])
        time.sleep(5)
        server.kill()
        time.sleep(1)
        server.start(**SMALL_LOG)
        time.sleep(8)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert alarms == []
    assert checks[0] > 20
    apply(pipeline)
    assert_well(source, pipeline, None)


def test_servers_that_are_down_are_no_gap(server: OwnPostgres, source: SourceDatabase, pipeline: Pipeline) -> None:
    remembered = check_source(pipeline, None)
    deaf = pipeline.model_copy(update={"connect": pipeline.connect.model_copy(update={"url": "http://127.0.0.1:9"})})
    seen = check_source(deaf, remembered)
    assert seen is not None and remembered is not None
    assert (seen.offset_lsn, seen.witness) == (remembered.offset_lsn, remembered.witness + 1)
    server.stop()
    try:
        assert check_source(pipeline, remembered) is remembered
        assert check_source(pipeline, None) is None
    finally:
        server.start(**SMALL_LOG)
    assert eventually(lambda: check_source(pipeline, remembered) is not remembered)


# -- another history ---------------------------------------------------------------------------------------------------


def begin_again(source: SourceDatabase, pipeline: Pipeline) -> None:
    """The way out: another capture, into new topics."""
    drop(pipeline, topics=True)
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    assert_well(source, pipeline, None)


def test_fault_07_a_database_restored_from_an_older_copy(
    server: OwnPostgres, source: SourceDatabase, pipeline: Pipeline
) -> None:
    server.stop()
    server.copy("backup")
    server.start(**SMALL_LOG)
    change(source, "after the backup")
    assert eventually(lambda: equal(source, pipeline), 60)
    remembered = check_source(pipeline, check_source(pipeline, None))
    stop_connector(pipeline)
    server.stop()
    server.put_back("backup")
    server.start(**SMALL_LOG)
    assert_refused(pipeline, remembered, SourceChanged, "restored from an older copy")
    with pytest.raises(SourceChanged, match="has read up to"):
        check_source(pipeline, None)
    with pytest.raises(SourceChanged, match="has read up to"):
        apply(pipeline)
    # New work makes the log as long as it was: now only the witness knows.
    assert remembered is not None
    source.execute("CREATE TABLE filler (v text)")
    source.execute("INSERT INTO filler SELECT md5(i::text) FROM generate_series(1, 20000) i")
    for _ in range(3):  # being asked does not wipe the evidence
        with pytest.raises(SourceChanged, match="does not know what was written into it"):
            check_source(pipeline, remembered)
    begin_again(source, pipeline)
    assert check_source(pipeline, remembered) is not None, "another installation voids what was remembered"


def test_fault_07_another_database_at_the_same_address(
    server: OwnPostgres, source: SourceDatabase, pipeline: Pipeline
) -> None:
    remembered = check_source(pipeline, None)
    assert remembered is not None
    ours = server.cluster
    server.stop()
    server.make("other")
    server.start(**SMALL_LOG)
    try:
        source.create()
        source.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'other')")
        assert_refused(pipeline, remembered, SourceChanged, "another Postgres cluster")
        with pytest.raises(SourceChanged, match="was made for the Postgres cluster"):
            plan_pipeline(pipeline)
        with pytest.raises(SourceChanged):
            apply(pipeline)
        with pytest.raises(HeadwaterError):
            resnapshot(pipeline, Wish([]))
        begin_again(source, pipeline)
        drop(pipeline, topics=True)
    finally:
        server.stop()
        server.cluster = ours
        server.start(**SMALL_LOG)


def test_fault_07_another_timeline(server: OwnPostgres, source: SourceDatabase, pipeline: Pipeline) -> None:
    remembered = check_source(pipeline, None)
    assert remembered is not None
    server.stop()
    server.promote_later()
    server.start(**SMALL_LOG, restore_command="/bin/false")
    assert eventually(lambda: not source.rows("SELECT pg_is_in_recovery()")[0][0], 60)
    assert_refused(pipeline, remembered, SourceChanged, f"timeline {remembered.timeline + 1}")
    begin_again(source, pipeline)
