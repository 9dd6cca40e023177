"""What is true of a micro-batch must not hang on how it is cut: a flow reads the same records in Arrow batches of 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.servers import servers
from tests.support.sinks import held, subject_on

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

# The view of tests.support.flows.
VIEW = "item"


def event(key: int, value: str | None, lsn: int, op: str = "u") -> tuple[bytes, bytes]:
    source = {"schema": "public", "table": "item", "lsn": lsn, "ts_ms": 1, "sequence": f'[null,"{lsn}"]'}
    after = None if op == "d" else {"id": key, "v": value}
    return orjson.dumps({"id": key}), orjson.dumps({"op": op, "source": source, "before": None, "after": after})


def tombstone(key: int) -> tuple[bytes, None]:
    return orjson.dumps({"id": key}), None


BROKEN = 15
# Row 1 is made and ends by a tombstone whose delete was compacted away; row 2 comes back after one; row 3 is deleted
# as usual; row 4 stays; row 5's update is read in another Arrow batch than its create, and is older than that.
RECORDS: list[tuple[bytes, bytes | None]] = [
    event(1, "made", 10, "c"),
    event(4, "stays", 11, "c"),
    event(2, "made", 12, "c"),
    event(3, "made", 13, "c"),
    tombstone(1),
    tombstone(2),
    event(2, "again", 20, "c"),
    event(3, None, 21, "d"),
    tombstone(3),
    event(5, "newest", 30),
    event(4, "stays", 31),
    event(5, "older", 25),
    *((orjson.dumps({"id": 100 + n}), b"no json") for n in range(BROKEN)),
]


@pytest.fixture(scope="module")
def topic() -> Iterator[tuple[str, str]]:
    """(brokers, topic) with RECORDS in it; the letters' topic beside it."""
    servers().up(["kafka"])
    brokers, name = servers().endpoints.kafka, f"hwtest-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": brokers})
    names = [name, f"{name}-letters"]
    for future in admin.create_topics([NewTopic(one, 1, 1) for one in names]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": brokers})
    for key, value in RECORDS:
        producer.produce(name, key=key, value=value)
    assert producer.flush(30) == 0
    yield brokers, name
    for future in admin.delete_topics(names).values():
        future.result(30)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, topic: tuple[str, str]) -> Iterator[dict[str, Any]]:
    """What both flows counted, and what their targets hold."""
    folder, (brokers, name) = tmp_path_factory.mktemp("flows"), topic
    with subject_on(servers(), "redis") as subject:
        spec = {
            "folder": str(folder),
            "kafka": brokers,
            "topic": name,
            "records": len(RECORDS),
            "conf": {"spark.sql.execution.arrow.maxRecordsPerBatch": "2"},
            "sink": subject.config() | {"targets": {VIEW: {}}},
            # It fails for a row that is all null: there must be none.
            "fields": {"length": "length(v) + CAST(coalesce(CAST(id AS string), 'none') AS int) - id"},
            "where": "v <> 'never'",
        }
        argv = [sys.executable, "-m", "tests.support.flows", json.dumps(spec)]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        ran = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-3000:]
        told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        documents = held(subject.open(targets={VIEW: {}}), VIEW)
        told["cache"]["documents"] = {key: orjson.loads(document) for key, (_, document) in documents.items()}
        yield told


def letters(topic: tuple[str, str]) -> set[bytes]:
    """The keys of all dead letters that there are by now."""
    settings = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": topic[0], **settings})
    consumer.subscribe([f"{topic[1]}-letters"])
    keys: set[bytes] = set()
    try:
        while message := consumer.poll(10 if not keys else 1):
            assert message.error() is None
            keys.add(message.key() or b"")
    finally:
        consumer.close()
    return keys


def test_a_create_and_its_lone_tombstone_in_two_arrow_batches_leave_no_row(found: dict[str, Any]) -> None:
    assert found["warehouse"]["batches"] == 1, "all records must be in one micro-batch, or nothing is shown"
    assert found["warehouse"]["rows"] == [2, 4, 5]


def test_nor_a_document_of_a_view_with_spark_sql(found: dict[str, Any]) -> None:
    assert found["cache"]["documents"] == {
        "2": {"id": 2, "v": "again", "length": 5},
        "4": {"id": 4, "v": "stays", "length": 5},
        "5": {"id": 5, "v": "newest", "length": 6},
    }


@pytest.mark.parametrize("flow", ["warehouse", "cache"])
def test_letters_are_counted_also_where_only_entries_pass_through_spark_sql(
    found: dict[str, Any], topic: tuple[str, str], flow: str
) -> None:
    totals = found[flow]["totals"]
    assert (totals["records"], totals["rejected"]) == (len(RECORDS), BROKEN)
    ended = sum(b'"op":"d"' in (value or b"").replace(b" ", b"") for _, value in RECORDS)
    assert totals["deleted"] == ended > 0 or flow != "warehouse"
    assert sum(key.startswith(flow.encode()) for key in letters(topic)) == BROKEN
