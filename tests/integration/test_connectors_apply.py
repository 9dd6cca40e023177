"""plan, apply and drop against real Postgres, Kafka and Debezium, with roles that may do no more than they must."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from cdc.errors import ConnectError, KafkaError, SourceChanged, SourceError, SourceUnavailable
from cdc.pipeline import Pipeline
from connectors.actions import Action
from connectors.advisory_lock import alone
from connectors.apply import apply, plan_pipeline
from connectors.captured.captured import read_captured
from connectors.captured.changed import find_changed
from connectors.connector import wait_ready
from connectors.database.slot import read_slot
from connectors.debezium import connector_name, marker_topic
from connectors.drop import drop, plan_drop_pipeline
from connectors.ledger import read_entry
from connectors.names import Names
from connectors.postgres import connect
from connectors.preflight import Level, preflight
from connectors.resnapshot import Wish, resnapshot
from connectors.rest import ConnectClient
from connectors.servers import open_servers
from connectors.snapshots.snapshot import Progress, wait_snapshot
from tests.support.source import SourceDatabase, eventually

pytestmark = [pytest.mark.stack, pytest.mark.sampled]

TABLES = ("public.item", "public.tag")


@pytest.fixture
def applied(source: SourceDatabase) -> Iterator[Pipeline]:
    """A captured database of two small tables, snapshot done."""
    source.execute(
        "CREATE TABLE item (id int PRIMARY KEY, name text, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE tag (id int PRIMARY KEY)",
        "INSERT INTO item (id, name) SELECT i, 'name ' || i FROM generate_series(1, 500) i",
    )
    pipeline = source.pipeline(*TABLES)
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    yield pipeline


def test_of_two_at_once_one_waits_for_the_other(source: SourceDatabase) -> None:
    """One of them found what the other was making: `publication … already exists`, 33 of 56 steps done."""
    source.execute("CREATE TABLE item (id int PRIMARY KEY)", "CREATE TABLE tag (id int PRIMARY KEY)")
    pipeline = source.pipeline(*TABLES)
    with ThreadPoolExecutor(2) as pool:
        results = [one.result() for one in [pool.submit(apply, pipeline) for _ in range(2)]]
    first, second = sorted(results, key=lambda one: not one.actions)
    assert first.fresh
    assert not second.actions
    assert not plan_pipeline(pipeline)
    with source.connect() as other, source.connect() as third, alone(other, "x", "another"):
        with alone(third, "y", "nobody", 0):
            pass
        with (
            pytest.raises(SourceUnavailable, match=rf"another is at work \(from .*, backend {other.info.backend_pid} "),
            alone(third, "x", "another", 0),
        ):
            pass
    with source.connect() as third, alone(third, "x", "nobody", 0):
        row = third.execute("SHOW tcp_keepalives_idle").fetchone()
        assert row == ("30",), "a machine that is gone would keep its lock for two hours"


def test_a_helper_schema_that_somebody_else_has_made_is_not_taken_for_ours(source: SourceDatabase) -> None:
    """Its tables had our names, and so apply wrote into them: their triggers ran with the rights of the owner."""
    source.execute("CREATE TABLE item (id int PRIMARY KEY)", f'GRANT CREATE ON DATABASE "{source.name}" TO PUBLIC')
    other, pipeline = source.replicator, source.pipeline("public.item")
    names = Names.of(pipeline)
    with source.connect(other) as connection:
        for statement in (
            "CREATE SCHEMA headwater CREATE TABLE seen (who text)",
            f"CREATE TABLE headwater.{names.heartbeat} (id int PRIMARY KEY, beat bigint, at timestamptz)",
            "CREATE FUNCTION headwater.evil() RETURNS bool LANGUAGE plpgsql AS"
            " 'BEGIN INSERT INTO headwater.seen VALUES (current_user); RETURN true; END'",
            # To read it is enough: a view's functions run as who reads it.
            f"CREATE VIEW headwater.{names.captured} AS SELECT ''::text AS table_name, 'done'::text AS snapshot,"
            " ''::text AS signal_id, now() AS changed_at, NULL::text AS condition, false AS sweep, NULL::jsonb AS"
            " identity, NULL::jsonb AS gap, NULL::timestamptz AS left_at, NULL::jsonb AS begins WHERE headwater.evil()",
            "GRANT ALL ON SCHEMA headwater TO PUBLIC",
            "GRANT ALL ON ALL TABLES IN SCHEMA headwater TO PUBLIC",
        ):
            connection.execute(statement)
        told = (
            f"schema headwater, table headwater.{names.captured}, table headwater.{names.heartbeat} belong to {other},"
            f" as whom {source.owner} may not act"
        )
        for verb in (plan_pipeline, apply, lambda one: resnapshot(one, Wish(())), lambda one: drop(one, topics=True)):
            with pytest.raises(SourceError, match=told) as refused:
                verb(pipeline)
        assert f"GRANT {other} TO {source.owner}" in refused.value.fix
        assert f"ALTER SCHEMA headwater OWNER TO {source.owner}" in refused.value.fix
        assert connection.execute("SELECT * FROM headwater.seen").fetchall() == []
        [may] = [answer for answer in preflight(pipeline) if answer.check.name == "rights"]
        assert told in "".join(one.message for one in may.findings if one.level == Level.ERROR)
    with source.connect("superuser") as connection:
        connection.execute("DROP SCHEMA headwater CASCADE")
        connection.execute(f'CREATE SCHEMA headwater; GRANT ALL ON SCHEMA headwater TO "{source.owner}"')
    assert plan_pipeline(pipeline), "who could do all of it anyway may have made it"
    with source.connect("superuser") as connection:
        connection.execute(f'ALTER SCHEMA headwater OWNER TO "{other}"')
        with pytest.raises(SourceError, match=f"schema headwater belongs to {other}, as whom"):
            plan_pipeline(pipeline)
        connection.execute(f'GRANT "{other}" TO "{source.owner}"')
    assert plan_pipeline(pipeline)


def kinds(actions: list[Action]) -> list[str]:
    return [f"{action.kind} {action.name}" for action in actions]


def test_snapshot_then_streaming_with_least_privilege(source: SourceDatabase, applied: Pipeline) -> None:
    with source.connect("superuser") as connection:
        row = connection.execute(
            "SELECT rolsuper, rolreplication FROM pg_roles WHERE rolname = %s", [source.replicator]
        ).fetchone()
        assert row == (False, True)
        row = connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", [source.owner]).fetchone()
        assert row == (False,)
    topic = applied.topic("public.item")
    assert len(source.latest(topic)) == 500
    source.execute("INSERT INTO item VALUES (501, 'new')", "UPDATE item SET name = 'changed' WHERE id = 1")
    source.execute("DELETE FROM item WHERE id = 2", "UPDATE item SET id = 1000 WHERE id = 3")
    assert eventually(lambda: '{"id": 1000}' in source.latest(topic))
    latest = source.latest(topic)
    assert latest['{"id": 501}'] == {"id": 501, "name": "new"}  # and no generated column
    assert latest['{"id": 1}'] == {"id": 1, "name": "changed"}
    assert latest['{"id": 2}'] is None
    assert latest['{"id": 3}'] is None


def test_marker_bears_the_snapshots_position(source: SourceDatabase, applied: Pipeline) -> None:
    [(_, marker)] = source.records(marker_topic(applied), partitions=1)
    [*_, (_, row)] = source.records(applied.topic("public.item"))
    assert marker is not None
    assert row is not None
    assert marker["source"]["lsn"] == row["source"]["lsn"]


def test_a_second_pipeline_of_one_name_takes_nothing_from_the_first(source: SourceDatabase, applied: Pipeline) -> None:
    other = f"{source.name}_other"
    with source.connect("superuser") as connection:
        connection.execute(f"CREATE DATABASE {other} OWNER {source.owner}")
    try:
        with source.connect(database=other) as connection:
            connection.execute("CREATE TABLE item (id int PRIMARY KEY)")
        there = applied.source.model_copy(update={"database": other, "tables": ("public.item",)})
        theirs = applied.model_copy(update={"source": there})
        with pytest.raises(SourceChanged, match=f"captures database {source.name} already, and the file names {other}"):
            apply(theirs)
        with source.connect(database=other) as connection:
            assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'headwater'").fetchone() is None
        assert plan_pipeline(applied) == []
    finally:
        with source.connect("superuser") as connection:
            connection.execute(f"DROP DATABASE {other}")


def test_applying_again_changes_nothing(applied: Pipeline) -> None:
    assert plan_pipeline(applied) == []
    assert apply(applied).actions == []


def test_heartbeat_moves_the_slot_while_the_tables_are_idle(source: SourceDatabase, applied: Pipeline) -> None:
    """FAULTS 1: other tables are busy, ours are not; the WAL must not pile up."""
    with connect(applied.source) as connection:
        first = read_slot(connection, applied.source.slot)
        source.execute("CREATE TABLE busy (id int)", "INSERT INTO busy SELECT generate_series(1, 20000)")
        written = source.rows("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0]

        def moved() -> bool:
            slot = read_slot(connection, applied.source.slot)
            return slot is not None and (slot.confirmed_lsn or 0) >= written

        assert first is not None
        assert eventually(moved, 30)


def test_ledger_covers_what_was_committed_before_it(source: SourceDatabase, applied: Pipeline) -> None:
    source.execute("INSERT INTO tag VALUES (1)")
    committed = source.rows("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0]
    with open_servers(applied) as servers:
        assert eventually(lambda: read_entry(servers, TABLES).lsn >= committed, 30)
        entry = read_entry(servers, TABLES)
    assert len(source.records(applied.topic("public.tag"))) == 1
    assert sum(entry.offsets[applied.topic("public.tag")].values()) >= 1


def test_added_table_alone_is_read_by_an_incremental_snapshot(source: SourceDatabase, applied: Pipeline) -> None:
    source.execute("CREATE TABLE late (a int, b text, v text, PRIMARY KEY (b, a))")
    source.execute("INSERT INTO late SELECT i, 'k' || i % 7, 'old' FROM generate_series(1, 20000) i")
    before = len(source.records(applied.topic("public.item")))
    wider = source.pipeline(*TABLES, "public.late")
    stop = threading.Event()
    writer = threading.Thread(target=_write, args=(source, stop))
    writer.start()
    try:
        result = apply(wider)
        seen: list[Progress] = []
        assert wait_snapshot(wider, seen.append, seconds=120).done
    finally:
        stop.set()
        writer.join()
    assert not result.fresh
    assert [t.table for t in seen[-1].tables] == ["public.late"]
    rows = {(a, b): v for a, b, v in source.rows("SELECT a, b, v FROM late")}

    def equal() -> bool:
        latest = source.latest(wider.topic("public.late"))
        return {(r["a"], r["b"]): r["v"] for r in latest.values() if r is not None} == rows

    assert eventually(equal, 30)
    assert len(source.records(applied.topic("public.item"))) == before
    assert plan_pipeline(wider) == []


def _write(source: SourceDatabase, stop: threading.Event) -> None:
    """Changes rows of ``late`` while it is read: FAULTS 23."""
    with source.connect() as connection:
        number = 0
        while not stop.wait(0.01):
            number += 37
            key = number % 20000 + 1
            connection.execute("UPDATE late SET v = %s WHERE a = %s", [f"new {number}", key])
            connection.execute("DELETE FROM late WHERE a = %s", [(key * 7) % 20000 + 1])


def test_removed_table_leaves_publication_and_triggers_but_keeps_its_topic(
    source: SourceDatabase, applied: Pipeline
) -> None:
    narrower = source.pipeline("public.item")
    assert "publication" in {action.kind for action in plan_pipeline(narrower)}
    apply(narrower)
    assert plan_pipeline(narrower) == []
    published = source.rows("SELECT tablename FROM pg_publication_tables WHERE schemaname = 'public'")
    assert published == [("item",)]
    source.execute("TRUNCATE tag")  # no longer refused
    dropped = next(action.name for action in plan_drop_pipeline(narrower, topics=True) if action.kind == "topic")
    assert applied.topic("public.tag") in dropped.split(", "), "the file no longer names it; its topic is ours"


def test_a_table_that_left_and_comes_back_is_what_it_is_now(source: SourceDatabase, applied: Pipeline) -> None:
    """What was deleted in between is in no log. It had to be captured under another prefix, with everything else."""
    source.execute("INSERT INTO tag SELECT generate_series(1, 5)")
    apply(source.pipeline("public.item"))
    source.execute("DELETE FROM tag WHERE id = 2", "INSERT INTO tag VALUES (6)", "UPDATE tag SET id = 7 WHERE id = 3")
    detail = [action.detail for action in plan_pipeline(applied) if action.name == "public.tag"]
    assert any("was not captured for a while" in one for one in detail)
    apply(applied)
    assert wait_snapshot(applied, seconds=90).done
    assert tags(source, applied) == {1, 4, 5, 6, 7} and plan_pipeline(applied) == []
    source.execute("DELETE FROM tag WHERE id = 1")
    assert eventually(lambda: tags(source, applied) == {4, 5, 6, 7})


def test_a_table_that_is_gone_is_let_go_by_who_says_so(source: SourceDatabase, applied: Pipeline) -> None:
    """`run` captured another table that was new, and by the way forgot that this one's changes were missing."""
    source.execute("INSERT INTO tag SELECT generate_series(1, 5)")
    whole = source.pipeline("public.*")
    apply(whole)
    source.execute("ALTER TABLE tag RENAME TO hidden", "DELETE FROM hidden WHERE id = 2")
    assert "no longer captured" in str(plan_pipeline(whole))
    apply(whole, adds_only=True)
    with open_servers(whole) as servers:
        listed = read_captured(servers.setup, servers.names)
        assert {"public.tag", "public.hidden"} <= listed.keys()
        changed = find_changed(servers.setup, servers.names, whole.source.publication)
    assert "was renamed to public.hidden" in changed["public.tag"].what
    source.execute("ALTER TABLE hidden RENAME TO tag")
    apply(whole)
    assert wait_snapshot(whole, seconds=90).done
    assert tags(source, whole) == {1, 3, 4, 5} and plan_pipeline(whole) == []


def tags(source: SourceDatabase, pipeline: Pipeline) -> set[int]:
    latest = source.latest(pipeline.topic("public.tag"))
    return {row["id"] for row in latest.values() if row is not None}


def test_changed_settings_are_planned_and_applied(source: SourceDatabase, applied: Pipeline) -> None:
    changed = source.pipeline(
        *TABLES,
        kafka={"tombstone_retention_hours": 24},
        source={"snapshot_fetch_size": 99},
        policy={"truncate": "propagate"},
    )
    plan = plan_pipeline(changed)
    topic = next(action for action in plan if action.name == applied.topic("public.item"))
    assert (topic.before, topic.after) == ({"delete.retention.ms": "604800000"}, {"delete.retention.ms": "86400000"})
    connector = next(action for action in plan if action.kind == "connector")
    assert connector.after == {"snapshot.fetch.size": "99", "incremental.snapshot.chunk.size": "256"}
    assert any(action.kind == "trigger" for action in plan)
    assert source.password not in str([action.to_dict() for action in plan])
    apply(changed)
    assert plan_pipeline(changed) == []
    source.execute("INSERT INTO tag VALUES (77)")
    assert eventually(lambda: '{"id": 77}' in source.latest(applied.topic("public.tag")))


def test_stopped_or_failed_connector_is_started_again(source: SourceDatabase, applied: Pipeline) -> None:
    client = ConnectClient(applied.connect)
    name = connector_name(applied)
    client.stop(name)
    client.wait_stopped(name)
    assert kinds(plan_pipeline(applied)) == [f"connector {name}"]
    apply(applied)
    status = client.status(name)
    assert status is not None
    assert status.running


def test_connector_deleted_by_hand_goes_on_where_it_was(source: SourceDatabase, applied: Pipeline) -> None:
    client = ConnectClient(applied.connect)
    client.delete(connector_name(applied))
    source.execute("INSERT INTO tag VALUES (1)")
    (slot,) = [answer for answer in preflight(applied) if answer.check.name == "slot"]
    assert ["apply" in finding.fix for finding in slot.findings] == [True]  # and not to drop it
    apply(applied)
    assert eventually(lambda: '{"id": 1}' in source.latest(applied.topic("public.tag")))
    assert len(source.records(applied.topic("public.item"))) == 500  # not read a second time


def test_connector_and_slot_made_anew_by_hand_are_mended_as_told(source: SourceDatabase, applied: Pipeline) -> None:
    """`resnapshot --all`, which the refusal names, once said that nothing is captured yet, and named `apply`."""
    ConnectClient(applied.connect).delete(connector_name(applied))
    with source.connect(source.replicator) as connection:
        active = "SELECT FROM pg_replication_slots WHERE active AND database = current_database()"
        assert eventually(lambda: not source.rows(active))
        connection.execute("SELECT pg_drop_replication_slot(%s)", [applied.source.slot])
        source.execute("INSERT INTO tag VALUES (5)")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [applied.source.slot])
    for _ in range(2):
        with pytest.raises(SourceError, match="past") as caught:
            apply(applied)
        assert "resnapshot" in (caught.value.fix or "")
    resnapshot(applied, Wish(()))
    assert eventually(lambda: '{"id": 5}' in source.latest(applied.topic("public.tag")))


def test_dropped_slot_is_refused(source: SourceDatabase, applied: Pipeline) -> None:
    """FAULTS 6: also when somebody has created a new one under the same name."""
    client = ConnectClient(applied.connect)
    client.stop(connector_name(applied))
    client.wait_stopped(connector_name(applied))
    with source.connect(source.replicator) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", [applied.source.slot])
        with pytest.raises(SourceError, match="is gone"):
            apply(applied)
        source.execute("INSERT INTO tag VALUES (5)")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [applied.source.slot])
        with pytest.raises(SourceError, match="past"):
            plan_pipeline(applied)


def test_no_name_is_changed_under_a_connector(source: SourceDatabase, applied: Pipeline) -> None:
    """`apply` called a slot gone that had another name in the file, and the way out made a second one beside it."""
    verbs: list[Callable[[Pipeline], object]] = [plan_pipeline, apply, drop, lambda one: resnapshot(one, Wish([]))]
    for part, key in (("source", "slot"), ("source", "publication"), ("source", "schema"), ("kafka", "topic_prefix")):
        named = {"schema_" if key == "schema" else key: "other"}
        settings = getattr(applied, part).model_copy(update=named)
        renamed = applied.model_copy(update={part: settings})
        for verb in verbs:
            with pytest.raises(SourceChanged, match=rf"{part}\.{key}: .*, and the file names other"):
                verb(renamed)
        (slot,) = [answer for answer in preflight(renamed) if answer.check.name == "slot"]
        assert [finding.level for finding in slot.findings] == [Level.ERROR]
    assert plan_pipeline(applied) == []
    assert source.rows("SELECT slot_name, active FROM pg_replication_slots WHERE database = current_database()") == [
        (applied.source.slot, True)
    ]


def test_foreign_slot_is_neither_used_nor_dropped(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = source.pipeline("public.t", source={"slot": f"{source.name}_other"})
    with source.connect(source.replicator) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [pipeline.source.slot])
        with pytest.raises(SourceError, match="knows no connector that has read from it"):
            apply(pipeline)
        with pytest.raises(SourceError, match="not this pipeline's"):
            plan_drop_pipeline(pipeline)
        connection.execute("SELECT pg_drop_replication_slot(%s)", [pipeline.source.slot])


def test_drop_leaves_nothing_behind_and_apply_starts_anew(source: SourceDatabase, applied: Pipeline) -> None:
    with source.connect(source.replicator) as lingering:  # as of a task that does not end
        lingering.execute("SET application_name = 'Debezium General'")
        drop(applied)
        with pytest.raises(psycopg.OperationalError):
            lingering.execute("SELECT 1")
    with pytest.raises(KafkaError, match="of an earlier capture"):
        apply(applied)
    drop(applied, topics=True)
    assert plan_drop_pipeline(applied, topics=True) == []
    assert drop(applied, topics=True) == []
    left = source.rows(
        "SELECT count(*) FROM pg_publication UNION ALL SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater'"
    )
    assert left == [(0,), (0,)]
    assert source.rows(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{applied.source.slot}'") == [(0,)]
    assert source.rows("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'headwater%'") == [(0,)]
    apply(applied)
    assert wait_snapshot(applied, seconds=90).done
    assert len(source.latest(applied.topic("public.item"))) == 500


def test_missing_table_is_named_before_anything_is_made(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE flights (id int PRIMARY KEY)")
    with pytest.raises(SourceError, match=r"no table public\.flihgts .*did you mean public\.flights") as error:
        apply(source.pipeline("public.flihgts"))
    assert error.value.means == "nothing was read or changed"
    assert source.rows("SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater'") == [(0,)]


def test_one_role_for_everything_needs_no_grants(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with source.connect("superuser") as connection:
        connection.execute(f'ALTER ROLE "{source.owner}" REPLICATION')
    pipeline = source.pipeline("public.t", source={"user": source.owner, "setup_user": None, "setup_password": None})
    assert "grant" not in {action.kind for action in apply(pipeline).actions}
    assert wait_snapshot(pipeline, seconds=90).done
    assert source.latest(pipeline.topic("public.t")) == {'{"id": 1}': {"id": 1}}


def test_setup_role_that_owns_nothing_is_told_what_it_lacks(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    parts = {"setup_user": source.replicator, "setup_password": source.password}
    with pytest.raises(SourceError, match="permission denied") as error:
        apply(source.pipeline("public.t", source=parts))
    assert "setup_user" in error.value.fix
    assert "no step is done" in error.value.means


def test_refused_configuration_is_told_and_mended(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    broken = source.pipeline("public.t", connect={"options": {"max.batch.size": "many"}})
    with pytest.raises(ConnectError, match=r"max\.batch\.size"):
        apply(broken)
    mended = source.pipeline("public.t")
    apply(mended)
    assert wait_snapshot(mended, seconds=90).done


def test_running_connector_that_streams_nothing_is_found_out(source: SourceDatabase, applied: Pipeline) -> None:
    """Debezium tries again and again, and Connect says RUNNING all the while."""
    with source.connect("superuser") as connection:
        connection.execute(f'ALTER ROLE "{source.replicator}" NOREPLICATION')
        try:
            with open_servers(applied) as servers:
                servers.connect.restart(servers.connector)
                assert eventually(lambda: not _streams(source, applied))
                with pytest.raises(ConnectError, match=r"says RUNNING, but slot .* is not used"):
                    wait_ready(servers, slot_seconds=5)
        finally:
            connection.execute(f'ALTER ROLE "{source.replicator}" REPLICATION')
    source.execute("INSERT INTO tag VALUES (1)")
    assert eventually(lambda: '{"id": 1}' in source.latest(applied.topic("public.tag")), 90)


def _streams(source: SourceDatabase, applied: Pipeline) -> bool:
    return source.rows(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{applied.source.slot}'") == [
        (True,)
    ]


def test_row_over_the_limit_stops_the_connector_and_is_not_skipped(source: SourceDatabase) -> None:
    """FAULTS 30: a clear failure, and the row arrives once the limit is raised."""
    source.execute("CREATE TABLE doc (id int PRIMARY KEY, body text)", "INSERT INTO doc VALUES (1, 'small')")
    pipeline = source.pipeline("public.doc", kafka={"max_message_bytes": 100_000})
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    source.execute("INSERT INTO doc VALUES (2, repeat('x', 99000))")
    assert eventually(lambda: '{"id": 2}' in source.latest(pipeline.topic("public.doc")))
    source.execute("INSERT INTO doc VALUES (3, repeat('y', 200000))", "INSERT INTO doc VALUES (4, 'after')")
    client = ConnectClient(pipeline.connect)
    name = connector_name(pipeline)
    with pytest.raises(ConnectError, match=r"has failed: .*RecordTooLarge") as error:
        client.wait(name, "fail", lambda status: False, 120)
    assert "nothing is lost" in error.value.means and "raise it in the file" in error.value.what
    with pytest.raises(ConnectError, match="has failed"):
        wait_snapshot(source.pipeline("public.doc", kafka={"max_message_bytes": 100_000}), seconds=5)
    assert '{"id": 4}' not in source.latest(pipeline.topic("public.doc"))
    larger = source.pipeline("public.doc", kafka={"max_message_bytes": 1_000_000})
    assert [action.before for action in plan_pipeline(pipeline)] == ["FAILED"]
    apply(larger)
    assert eventually(lambda: '{"id": 4}' in source.latest(pipeline.topic("public.doc")))
    row = source.latest(pipeline.topic("public.doc"))['{"id": 3}']
    assert row is not None
    assert len(row["body"]) == 200_000
    assert plan_pipeline(larger) == []


@pytest.mark.slow
def test_a_row_larger_than_a_producers_memory_by_default_arrives(source: SourceDatabase) -> None:
    """Kafka's producer refuses what is larger than its 32 MiB, whatever a request may hold."""
    source.execute("CREATE TABLE doc (id int PRIMARY KEY, body text)", "INSERT INTO doc VALUES (1, 'small')")
    pipeline = source.pipeline("public.doc", kafka={"max_message_bytes": 40 * 2**20})
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    source.execute(f"INSERT INTO doc VALUES (2, repeat('x', {34 * 2**20}))")
    assert eventually(lambda: '{"id": 2}' in source.latest(pipeline.topic("public.doc")), 90)
    row = source.latest(pipeline.topic("public.doc"))['{"id": 2}']
    assert row is not None and len(row["body"]) == 34 * 2**20
