"""The WAL that a real slot keeps: it moves while others write, who holds it is named, and it is given up by policy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import SlotLost, SourceChanged
from cdc.pipeline import Pipeline
from connectors.apply import apply, plan_pipeline
from connectors.database.slot import read_slot
from connectors.gaps.source_gaps import check_source
from connectors.names import Names
from connectors.postgres import connect, replication_command
from connectors.preflight import preflight
from connectors.resnapshot import Wish, resnapshot
from connectors.servers import open_servers
from connectors.snapshots.snapshot import wait_snapshot
from connectors.wal import pins
from connectors.wal.look import look
from connectors.wal.release import release
from operations.run import source_watch
from operations.run.source_watch import SourceWatch
from operations.state.wal import judged, read_release
from operations.status.source import SourceState, line
from tests.support.source import SourceDatabase, eventually

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def applied(shared_source: SourceDatabase, state: Path) -> Iterator[Pipeline]:
    shared_source.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, 'v' FROM generate_series(1, 100) i",
        "CREATE TABLE busy (v text)",
    )
    raw = shared_source.pipeline("public.t")
    pipeline = within(raw, state)
    shared_source.pipelines[:] = [pipeline]
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    yield pipeline


def within(pipeline: Pipeline, state: Path, **policy: Any) -> Pipeline:
    """The same pipeline with another policy."""
    engine = pipeline.engine.model_copy(update={"state_dir": str(state)})
    return pipeline.model_copy(update={"engine": engine, "policy": pipeline.policy.model_copy(update=policy)})


def found(pipeline: Pipeline, check: str) -> str:
    """What one preflight check says."""
    [answer] = [answer for answer in preflight(pipeline) if answer.check.name == check]
    return "\n".join([answer.state, *(f"{f.level.value}: {f.message} ({f.fix})" for f in answer.findings)])


def failover(pipeline: Pipeline) -> bool | None:
    with connect(pipeline.source) as connection:
        slot = read_slot(connection, pipeline.source.slot)
    return slot.failover if slot else None


def test_a_busy_table_that_is_not_captured_does_not_keep_the_slot(
    shared_source: SourceDatabase, applied: Pipeline
) -> None:
    """The heartbeat's row is what lets the slot pass what is none of its business; 30 MB here, and all of them go."""
    for _ in range(3):
        shared_source.execute("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 20000)")
    written = shared_source.rows("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0]
    kept = f"SELECT restart_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = '{applied.source.slot}'"

    def passed() -> bool:
        return bool(shared_source.rows(kept)[0][0] >= written)

    assert not passed(), "it was written and read at once: too little for this test"
    assert eventually(passed, 60)


def test_who_holds_the_slot_is_named(
    shared_source: SourceDatabase, applied: Pipeline, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "LONG_SECONDS", 0.5)
    tight = within(applied, state, wal_budget=1)
    with shared_source.connect() as application:
        application.autocommit = False
        pid = application.info.backend_pid
        application.execute("SET application_name = 'billing'")
        application.execute("INSERT INTO busy VALUES ('hunter2')")
        time.sleep(1)

        def pinned(pipeline: Pipeline) -> list[dict[str, Any]]:
            with connect(pipeline.source) as connection:
                budget = judged(pipeline, look(connection, pipeline.source.slot)).to_dict()
            return [pin for pin in budget["pinned_by"] if pin["pid"] == pid]

        # A role that may not see the session does not guess how old it is; once much is kept, any may be the one.
        assert pinned(applied) == []
        [hidden] = pinned(tight)
        assert (hidden["seconds"], hidden["query"]) == (None, None)
        told = found(applied, "transactions")  # the owner, whose session it is, sees it
        assert told.startswith("warning") and f"(billing, pid {pid}, idle in transaction), open for" in told
        with shared_source.connect("superuser") as root:
            root.execute(f"GRANT pg_read_all_stats TO {shared_source.replicator}")
        [seen] = pinned(applied)
        assert seen["user"] == shared_source.owner and seen["application"] == "billing" and seen["seconds"] >= 1
        assert seen["query"] == "INSERT INTO busy VALUES ( …"
        report = SourceState(applied).report()
        assert f"pg_terminate_backend({pid})" in line(report)
        assert "hunter2" not in str(report)
        application.rollback()
        assert pinned(applied) == []


def test_the_slot_is_a_failover_slot_and_apply_makes_it_one(shared_source: SourceDatabase, applied: Pipeline) -> None:
    assert failover(applied) is True, "as Debezium has made it"
    with open_servers(applied) as servers:
        servers.connect.stop(servers.connector)
        servers.connect.wait_stopped(servers.connector)
        slot = applied.source.slot
        assert eventually(lambda: not getattr(read_slot(servers.source, slot), "active", False))
        replication_command(applied.source, f'ALTER_REPLICATION_SLOT "{slot}" (FAILOVER false)')
        servers.connect.resume(servers.connector)
        servers.connect.wait_running(servers.connector)
    [action] = plan_pipeline(applied)
    assert (action.kind, action.after) == ("slot", {"failover": True})
    apply(applied)
    assert failover(applied) is True and plan_pipeline(applied) == []


@pytest.mark.sampled
def test_a_timeline_that_nobody_has_followed_is_not_read(shared_source: SourceDatabase, applied: Pipeline) -> None:
    """As on a promoted standby, but for the server: what is noted is another timeline than the one that it is on."""
    witness = Names.of(applied).qualified(Names.of(applied).witness)
    noted = shared_source.rows(f"SELECT count FROM {witness} WHERE runner = 'timeline'")[0][0]
    topic, why = applied.topic("public.t"), f"is on timeline {noted}, and timeline 99 is what was followed"
    before = len(shared_source.records(topic))
    shared_source.execute(f"UPDATE {witness} SET count = 99 WHERE runner = 'timeline'")
    try:
        with open_servers(applied) as servers:
            servers.connect.restart(servers.connector)
            slot = applied.source.slot
            assert eventually(lambda: not getattr(read_slot(servers.source, slot), "active", True))
            shared_source.execute("UPDATE t SET v = v WHERE id = 50")
            time.sleep(12)  # Debezium tries again every ten seconds
            assert not getattr(read_slot(servers.source, slot), "active", True)
        assert len(shared_source.records(topic)) == before
        for verb in (apply, plan_pipeline, lambda one: resnapshot(one, Wish([])), lambda one: check_source(one, None)):
            with pytest.raises(SourceChanged, match=why):
                verb(applied)
        assert why in found(applied, "slot")
        assert why in SourceState(applied).report()["error"]
    finally:
        shared_source.execute(f"UPDATE {witness} SET count = {noted} WHERE runner = 'timeline'")
    apply(applied)
    assert eventually(lambda: len(shared_source.records(topic)) == before + 1)


def keep(source: SourceDatabase) -> Any:
    """A session that holds the slot, and two MiB of WAL after it."""
    holder = source.connect()
    holder.autocommit = False
    holder.execute("INSERT INTO busy VALUES ('first')")
    source.execute("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 4000)")
    return holder


def gone(pipeline: Pipeline) -> bool:
    with connect(pipeline.source) as connection:
        return read_slot(connection, pipeline.source.slot) is None


def test_a_slot_over_its_budget_is_given_up_and_one_command_mends_it(
    shared_source: SourceDatabase, applied: Pipeline, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_watch, "WAL_SECONDS", 0.5)
    monkeypatch.setattr(source_watch, "TABLE_SECONDS", 0.5)
    patient = within(applied, state, wal_budget=1 << 20)
    small = within(applied, state, wal_budget=1 << 20, wal_at_limit="release")
    holder = keep(shared_source)
    try:
        with SourceWatch(patient) as watch:
            assert eventually(lambda: bool(watch.news), 20)
            time.sleep(3)
            assert watch.error is None and not gone(applied), "alert"
            assert [line[:11] for line in watch.news if "makes Postgres keep" in line] == ["alarm: slot"]
        with SourceWatch(small) as watch:
            assert eventually(lambda: watch.error is not None, 60)
        assert isinstance(watch.error, SlotLost)
        assert "was given up at" in watch.error.what and "headwater resnapshot FILE --all" in watch.error.fix
    finally:
        holder.close()
    assert gone(applied)
    with open_servers(applied) as servers:
        status = servers.connect.status(servers.connector)
        assert status is not None and status.connector == "STOPPED"
    # Whoever comes next is told the same, and does not go on.
    assert "was given up at" in SourceState(applied).report()["error"]
    with pytest.raises(SlotLost, match="was given up at"), SourceWatch(small):
        pass
    with pytest.raises(SlotLost):
        apply(applied)
    shared_source.execute("DELETE FROM t WHERE id <= 10", "UPDATE t SET v = 'missed' WHERE id > 90")
    resnapshot(applied, Wish([]))
    assert wait_snapshot(applied, seconds=120).done
    rows = {f'{{"id": {n}}}': {"id": n, "v": "missed" if n > 90 else "v"} for n in range(11, 101)}
    rows |= {f'{{"id": {n}}}': None for n in range(1, 11)}
    assert eventually(lambda: shared_source.latest(applied.topic("public.t")) == rows)
    with SourceWatch(applied):
        assert eventually(lambda: read_release(applied) is None, 20)
    assert plan_pipeline(applied) == []


@pytest.mark.sampled
def test_a_slot_is_given_up_also_when_kafka_connect_does_not_answer(
    shared_source: SourceDatabase, applied: Pipeline, state: Path
) -> None:
    """Somebody reads from it, and nobody can be asked to stop: the session is ended, and Debezium makes no new slot."""
    deaf = applied.model_copy(update={"connect": applied.connect.model_copy(update={"url": "http://127.0.0.1:9"})})
    holder = keep(shared_source)
    try:
        with connect(applied.source) as connection:
            assert eventually(lambda: bool(getattr(read_slot(connection, applied.source.slot), "active", False)))
        assert not release(deaf, 1 << 40), "it keeps less than that"
        assert release(deaf, 1 << 20)
    finally:
        holder.close()
    with open_servers(applied) as servers:
        assert eventually(lambda: bool((s := servers.connect.status(servers.connector)) and s.failed), 90)
    assert gone(applied)
    assert release(deaf, 1 << 20), "again"
