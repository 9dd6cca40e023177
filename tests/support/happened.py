"""A log of events with times, in a topic of its own, and flows over it that are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.timed import TimedView
from spark.disk.checkpoint import committed_offsets
from tests.support.folds import held_in
from tests.support.servers import servers
from tests.support.sinks import held, subject_on
from tests.support.windowed import Happened

SNAPSHOT_LSN, EVENTS, PARTITIONS, KILLS = 1_000, 3_000, 3, 2
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
# The last event of each partition, of which nothing is kept, brings all clocks to here.
CLOSED = BEGIN + timedelta(days=30)


def history(seed: int) -> list[Happened]:
    """A log of two days: some events out of order, some very late, some of a clock that runs ahead, some read again."""
    chance = random.Random(seed)
    found: list[Happened] = []
    for number in range(EVENTS):
        now = BEGIN + timedelta(minutes=number)
        behind = chance.choices([0, chance.randint(0, 600), chance.randint(600, 20_000), 200_000], [60, 30, 8, 2])[0]
        at: datetime | None = now - timedelta(seconds=behind)
        if chance.random() < 0.01:
            at = None if chance.random() < 0.5 else now + timedelta(days=400)
        about = f"a{chance.randint(0, 12)} {chance.choice('ä|')}"
        # Of these two texts Java takes another one for the greater than Spark SQL.
        payload: dict[str, Any] = {"user": f"u{chance.randint(0, 40)}", "sign": chance.choice(("\ufb00", "\U0001f600"))}
        if chance.random() < 0.9:
            payload["amount"] = f"{chance.randint(-5_000, 5_000) / 100:.2f}" if chance.random() > 0.002 else "much"
        event = {"id": str(uuid.UUID(int=number)), "aggregatetype": "account", "aggregateid": about}
        event |= {"type": chance.choice(["viewed", "größer", "noise"]), "payload": json.dumps(payload), "at": at}
        found.append(Happened(hash(about) % PARTITIONS, event, again=False, committed=now))
        if chance.random() < 0.02:
            earlier = chance.choice(found)
            found.append(earlier._replace(again=True, committed=now))
    for partition in range(PARTITIONS):
        event = {"id": str(uuid.UUID(int=EVENTS + partition)), "aggregatetype": "account", "aggregateid": "closing"}
        event |= {"type": "noise", "payload": "{}", "at": CLOSED}
        found.append(Happened(partition, event, again=False, committed=CLOSED))
    return found


class Log(NamedTuple):
    """A topic and what is in it."""

    brokers: str
    topic: str
    made: list[Happened]


@contextmanager
def topic_of(made: list[Happened]) -> Iterator[Log]:
    """A topic with this history."""
    servers().up(["kafka"])
    brokers, name = servers().endpoints.kafka, f"hwtest-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": brokers})
    names = [name, f"{name}-letters"]
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1), NewTopic(names[1], 1, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
    for number, (partition, event, again, committed) in enumerate(made):
        lsn = SNAPSHOT_LSN + number
        source = {"schema": "public", "table": "outbox", "lsn": lsn, "sequence": f'[null,"{lsn}"]'}
        source |= {"ts_ms": int(committed.timestamp() * 1000), "snapshot": "incremental" if again else "false"}
        row = event | {"at": event["at"] and event["at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        value = orjson.dumps({"op": "r" if again else "c", "source": source, "after": row})
        key = orjson.dumps({"aggregateid": event["aggregateid"]})
        producer.produce(name, key=key, value=value, partition=partition)
    assert producer.flush(30) == 0
    yield Log(brokers, name, made)
    for future in admin.delete_topics(names).values():
        future.result(30)


def kept(log: Log, kind: str, view: TimedView, which: str, folder: Path, sink: str) -> dict[str, dict[str, Any]]:
    """The documents of a view of tests/support/timed.py whose process was killed some times: id -> document."""
    if sink == "iceberg":
        followed(log, {}, (kind, view.name, which), folder)
        return held_in(folder, view)
    with subject_on(servers(), sink) as subject:
        targets: dict[str, Any] = {view.name: {}}
        followed(log, subject.config() | {"targets": targets}, (kind, view.name, which), folder)
        found = held(subject.open(targets=targets), view.name)
        return {key: orjson.loads(document) for key, (_, document) in found.items() if document}


def followed(log: Log, sink: dict[str, Any], names: tuple[str, str, str], folder: Path) -> None:
    """Run a view's flow to the log's end, killing it some times; arguments as ``kept``, no sink for a warehouse."""
    kind, view, which = names
    said = {"folder": str(folder), "kafka": log.brokers, "topic": log.topic, "records": len(log.made), "sink": sink}
    said |= {"conf": {"spark.sql.shuffle.partitions": "2"}, "max_offsets": 400 if sink else 1_200}
    said |= {"snapshot_lsn": SNAPSHOT_LSN - 1, "kind": kind, "view": which}
    kills = 0
    while (code := run(said, folder, view, kill=bool(sink) and kills < KILLS)) != 0:
        assert code == -9, (folder / "out").read_text()[-3000:]
        kills += 1
    assert kills > 0 if sink else kills == 2, f"killed {kills} times"


def run(said: dict[str, Any], folder: Path, view: str, *, kill: bool) -> int:
    """Run the flow's process to its end, or until it is killed in the middle of its batches."""
    argv = [sys.executable, "-m", "tests.support.timed", json.dumps(said)]
    root = Path(__file__).parents[2]
    with (folder / "out").open("w") as out:
        process = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(root)}, cwd=root, stdout=out, stderr=out)
        before = committed_offsets(folder / "g1" / view / "checkpoint")[0]
        while kill and process.poll() is None:
            if committed_offsets(folder / "g1" / view / "checkpoint")[0] >= before + 2:
                time.sleep(random.random() * 0.3)
                process.kill()
            time.sleep(0.01)
        return process.wait(300)
