"""Snapshots that are disturbed: killed half-way, written into, forgotten."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from confluent_kafka import TopicPartition
from psycopg import sql

from cdc.errors import ConnectError, SourceError
from connectors import plan
from connectors.apply import apply, plan_pipeline
from connectors.captured.captured import mark, read_captured
from connectors.debezium import marker_topic
from connectors.names import Names
from connectors.revival import Revival
from connectors.servers import Servers, open_servers
from connectors.snapshots.requests import hear
from connectors.snapshots.snapshot import Progress, unfinished, wait_snapshot
from tests.support.source import SourceDatabase, eventually

pytestmark = pytest.mark.stack


def keep_writing(source: SourceDatabase, stop: threading.Event, rows: int) -> None:
    """Transactions over two rows that are open for a while, deletes and inserts, as a busy application does."""
    with source.connect() as connection:
        number = 0
        while not stop.is_set():
            number += 101
            a, b = number % rows + 1, (number * 7) % rows + 1
            with connection.transaction():
                connection.execute("UPDATE big SET v = %s WHERE id = %s", [f"a{number}", a])
                time.sleep(0.02)
                connection.execute("UPDATE big SET v = %s WHERE id = %s", [f"b{number}", b])
            connection.execute("DELETE FROM big WHERE id = %s", [number // 101])  # rows that a snapshot reads first
            connection.execute("INSERT INTO big VALUES (%s, %s)", [1_000_000 + number, "new"])


def equal(source: SourceDatabase, topic: str) -> bool:
    latest = {row["id"]: row["v"] for row in source.latest(topic).values() if row is not None}
    return latest == dict(source.rows("SELECT id, v FROM big"))


@pytest.mark.sampled
def test_snapshot_restarted_half_way_under_load_ends_exact(source: SourceDatabase) -> None:
    """FAULTS 21 and 23: Debezium reads again, at a later position, and says nothing of rows deleted in between."""
    rows = 150_000  # long enough for the restart to come before the end, at 10,000 to 30,000 rows a second
    source.execute("CREATE TABLE big (id int PRIMARY KEY, v text)")
    source.execute(f"INSERT INTO big SELECT i, 'old' FROM generate_series(1, {rows}) i")
    pipeline = source.pipeline("public.big", source={"snapshot_fetch_size": 100})
    topic = pipeline.topic("public.big")
    stop = threading.Event()
    writer = threading.Thread(target=keep_writing, args=(source, stop, rows))
    writer.start()
    try:
        apply(pipeline)
        with open_servers(pipeline) as servers:
            assert eventually(lambda: sum(servers.kafka.ends({topic: 2})[topic].values()) > 5000, 60)
            servers.connect.restart(servers.connector)
            assert unfinished(servers) == {"public.big"}
            assert not hear(servers).forgotten
        seen: list[Progress] = []
        assert wait_snapshot(pipeline, seen.append, seconds=120).done
    finally:
        stop.set()
        writer.join()
    records = source.records(topic)
    [first, last] = [value["source"]["lsn"] for _, value in source.records(marker_topic(pipeline), 1) if value]
    assert first < last
    # Ours say what was before, which the connector leaves out: rows that would have been there for ever.
    ours = [value for _, value in records if value and value["op"] == "d" and "before" in value]
    assert {value["source"]["lsn"] for value in ours} == {last}
    assert eventually(lambda: equal(source, topic), 60)
    assert [t.table for t in seen[-1].tables] == ["public.big"]
    assert plan_pipeline(pipeline) == []
    # Nobody has waited for its end, and a week has gone by: who began it how often is forgotten.
    with open_servers(pipeline) as servers:
        said = TopicPartition(pipeline.notification_topic, 0, -1)
        servers.kafka.admin.delete_records([said])[said].result()
        mark(servers.setup, Names.of(pipeline), ["public.big"], "initial", None)
        heard = hear(servers)
        assert (heard.attempts, heard.forgotten) == (0, True)
        assert unfinished(servers) == {"public.big"}, "complete, and never swept"
        [action] = plan_pipeline(pipeline)
        assert "interrupted" in action.detail
        apply(pipeline)
        assert unfinished(servers) == set()
    assert equal(source, topic)


@pytest.mark.sampled
def test_lost_signal_is_noticed_and_sent_again(source: SourceDatabase) -> None:
    """FAULTS 22: Debezium notes a signal as read before its snapshot has begun; a crash in between loses it."""
    source.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE big (id int PRIMARY KEY, v text)")
    source.execute("INSERT INTO big SELECT i, 'x' FROM generate_series(1, 100) i")
    apply(source.pipeline("public.t"))
    assert wait_snapshot(source.pipelines[-1], seconds=90).done
    pipeline = source.pipeline("public.t", "public.big")
    names = Names.of(pipeline)
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    with open_servers(pipeline) as servers:
        # As if the signal had been lost: asked for long ago, and no notification knows of it.
        mark(servers.setup, names, ["public.big"], "requested", "never-seen")
        age = sql.SQL("UPDATE {} SET changed_at = now() - interval '1 hour' WHERE snapshot = 'requested'")
        servers.setup.execute(age.format(names.identifier(names.captured)))
        assert unfinished(servers) == {"public.big"}
    [action] = plan_pipeline(pipeline)
    assert (action.kind, action.name) == ("snapshot", "public.big")
    before = len(source.records(pipeline.topic("public.big")))
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    assert len(source.records(pipeline.topic("public.big"))) == before + 100
    with open_servers(pipeline) as servers:
        assert read_captured(servers.setup, names)["public.big"].state == "done"


def test_waiting_before_applying_is_told(source: SourceDatabase) -> None:
    with pytest.raises(SourceError, match="nothing is captured yet"):
        wait_snapshot(source.pipeline("public.t"))


@pytest.mark.parametrize("way", ["by itself", "apply", "by hand"])
def test_a_snapshot_that_failed_before_its_first_record_begins_anew(
    source: SourceDatabase, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Connect may keep an empty offset then, which Debezium, started again, takes for the end of the snapshot."""
    source.execute('CREATE TABLE t (id int PRIMARY KEY, "Twin" int, twin int)', "INSERT INTO t VALUES (1, 1, 1)")
    pipeline = source.pipeline("public.t")
    with monkeypatch.context() as patch, contextlib.suppress(ConnectError):  # it may fail while apply waits for it
        patch.setattr(plan, "refuse_unfit", lambda servers: None)  # stands for a cause that no check knows
        apply(pipeline)
    with open_servers(pipeline) as servers:
        keep_empty_offset(servers)
        with pytest.raises(ConnectError, match="differ only by case"):
            wait_snapshot(pipeline, seconds=120)
        source.execute("ALTER TABLE t DROP COLUMN twin")
        if way == "by itself":
            assert "started again" in (Revival(pipeline, lambda: None).look() or "")
        elif way == "by hand":
            servers.connect.restart(servers.connector)
            with pytest.raises(ConnectError, match=r"skipped the initial snapshot of public\.t"):
                wait_snapshot(pipeline, seconds=120)
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=120).done
    assert [key for key, _ in source.records(pipeline.topic("public.t"))] == [{"id": 1}]
    assert plan_pipeline(pipeline) == []


def keep_empty_offset(servers: Servers) -> None:
    """As Connect does when it has taken Debezium's first notification, and no record, before the task ends."""
    connect, name = servers.connect, servers.connector
    with pytest.raises(ConnectError, match="differ only by case"):
        wait_snapshot(servers.pipeline, seconds=120)
    connect.stop(name)
    connect.wait_stopped(name)
    place = {"server": servers.pipeline.kafka.topic_prefix}
    connect.request("PATCH", f"/connectors/{name}/offsets", {"offsets": [{"partition": place, "offset": {}}]})
    connect.resume(name)
