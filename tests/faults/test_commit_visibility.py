"""A transaction is in the log before it can be seen: what is read in between is older than what the log says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import pytest
from confluent_kafka import Producer

from cdc.pipeline import Pipeline
from connectors.apply import apply
from connectors.database.visibility import read_visible
from connectors.debezium import pattern
from connectors.resnapshot import Wish, resnapshot
from connectors.servers import open_servers
from connectors.snapshots.missed_deletes import sweep_missed
from connectors.snapshots.snapshot import wait_snapshot
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


@contextmanager
def hidden(source: SourceDatabase, statement: LiteralString) -> Iterator[None]:
    """What a statement does is in the log, and nobody can see it; at the end everyone can."""
    rows: LiteralString = "SELECT * FROM big ORDER BY id"
    before = source.rows(rows)
    with source.connect() as writer, no_standby_answers(source):
        writer.execute("SET synchronous_commit = on")
        thread = threading.Thread(target=writer.execute, args=(statement,))
        thread.start()
        yield
        assert thread.is_alive(), "it could be seen: nothing was tried"
    thread.join(30)
    assert source.rows(rows) != before


@contextmanager
def hidden_commit(source: SourceDatabase) -> Iterator[None]:
    """Row 5 is deleted and row 6 is new in the log, and nobody can see it; at the end everyone can."""
    both: LiteralString = "WITH gone AS (DELETE FROM big WHERE id = 5) UPDATE big SET v = 'new' WHERE id = 6"
    with hidden(source, both):
        yield
        assert dict(source.rows("SELECT id, v FROM big"))[6] == "old", "it could be seen: nothing was tried"


def in_topic(source: SourceDatabase, topic: str) -> dict[int, str]:
    return {row["id"]: row["v"] for row in source.latest(topic).values() if row}


@contextmanager
def captured(local_stack: Servers) -> Iterator[tuple[SourceDatabase, Pipeline]]:
    """A table of a hundred rows. Its owner, who is the test and `apply`, waits for a standby if it asks for it alone;
    the connector is as it always is."""
    with source_database(local_stack.endpoints) as source:
        with source.connect("superuser") as root:
            root.execute(f"ALTER ROLE {source.owner} SET synchronous_commit = local".encode())
        source.execute("CREATE TABLE big (id int PRIMARY KEY, v text)")
        source.execute("INSERT INTO big SELECT i, 'old' FROM generate_series(1, 100) i")
        pipeline = source.pipeline("public.big")
        apply(pipeline)
        assert wait_snapshot(pipeline, seconds=120).done
        yield source, pipeline


def test_what_is_in_the_log_and_can_not_be_seen_yet_is_not_taken_back_by_reading_again(local_stack: Servers) -> None:
    with captured(local_stack) as (source, pipeline):
        topic = pipeline.topic("public.big")
        with hidden_commit(source):
            assert eventually(lambda: in_topic(source, topic).get(6) == "new")
            resnapshot(pipeline, Wish(("public.big",), None, sweep=False))
            assert not wait_snapshot(pipeline, seconds=8).done
            source.execute("INSERT INTO big VALUES (101, 'meanwhile')")
            assert eventually(lambda: 101 in in_topic(source, topic)), "the log is gone on with"
        assert wait_snapshot(pipeline, seconds=240).done
        wanted = dict(source.rows("SELECT id, v FROM big"))
        assert wanted[6] == "new" and 5 not in wanted
        assert in_topic(source, topic) == wanted


def test_what_the_log_has_before_the_first_watermark_takes_its_rows_out_of_the_chunk(local_stack: Servers) -> None:
    """The connector finds the wish first, reads the table, and only then what was in the log and could not be seen."""
    with captured(local_stack) as (source, pipeline), open_servers(pipeline) as servers:
        topic, signal = pipeline.topic("public.big"), servers.names.qualified(servers.names.signal)
        data = json.dumps({"type": "INCREMENTAL", "data-collections": [pattern(["public.big"])]})
        servers.connect.stop(servers.connector)
        servers.connect.wait_stopped(servers.connector)
        with source.connect("superuser") as root:
            root.execute(f"INSERT INTO {signal} VALUES ('mine', 'execute-snapshot', %s)".encode(), [data])
        with hidden_commit(source):
            servers.connect.resume(servers.connector)
            assert eventually(lambda: read_again(source, topic), 60)
        wanted = dict(source.rows("SELECT id, v FROM big"))
        assert eventually(lambda: in_topic(source, topic) == wanted), in_topic(source, topic)


def test_a_sweep_deletes_no_row_that_is_in_the_log_and_can_not_be_seen_yet(local_stack: Servers) -> None:
    """It was deleted at its own position, and no change of it follows: gone from each sink that is ever built."""
    with captured(local_stack) as (source, pipeline), open_servers(pipeline) as servers:
        topic = pipeline.topic("public.big")
        source.execute("INSERT INTO big VALUES (300, 'seen')")
        assert eventually(lambda: 300 in in_topic(source, topic))
        source.execute("DELETE FROM big WHERE id = 300")
        assert eventually(lambda: 300 not in in_topic(source, topic))
        value = next(value for key, value in source.records(topic) if key == {"id": 300} and value)
        producer = Producer({**servers.kafka.settings, "partitioner": "murmur2_random"})
        producer.produce(topic, key=b'{"id":300}', value=json.dumps(value))  # as if nobody had told of its delete
        assert producer.flush(10) == 0
        with hidden(source, "INSERT INTO big VALUES (200, 'hidden')"):
            assert eventually(lambda: 200 in in_topic(source, topic))
            assert sweep_missed(servers, ["public.big"]) == {"public.big": 1}
            assert not source.rows("SELECT FROM big WHERE id = 200"), "it could be seen: nothing was tried"
        wanted = dict(source.rows("SELECT id, v FROM big"))
        assert wanted[200] == "hidden"
        assert in_topic(source, topic) == wanted


def test_the_newest_transaction_of_all_is_known_to_be_hidden(local_stack: Servers) -> None:
    """A snapshot of Postgres's names none that is newer than the last one that has ended."""
    waiting: LiteralString = (
        "SELECT backend_xid::text::bigint FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = %s"
    )
    with captured(local_stack) as (source, pipeline), open_servers(pipeline) as servers:
        servers.connect.stop(servers.connector)  # nobody else writes
        servers.connect.wait_stopped(servers.connector)
        with hidden(source, "INSERT INTO big VALUES (200, 'hidden')"), source.connect("superuser") as root:
            assert eventually(lambda: root.execute(waiting, [source.name]).fetchone() is not None)
            [(transaction,)] = root.execute(waiting, [source.name]).fetchall()
            servers.source.execute("SET synchronous_commit = on")
            visible = read_visible(servers.source)  # and who asks waits for no standby
            assert transaction in visible.under_way and not visible.has(transaction, visible.end)
        later = read_visible(servers.source)
        assert later.has(transaction, later.end)


def read_again(source: SourceDatabase, topic: str) -> bool:
    """Whether the last row of the table has come out of a chunk."""
    return any(
        value and value["source"]["snapshot"] == "incremental" and key and key["id"] == 100
        for key, value in source.records(topic)
    )
