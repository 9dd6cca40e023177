"""What windows, folds and matches cost beside plain Spark code that does only that.

``python -m benchmarks.run streams``: one topic of events, for each operator our flow and a plain PySpark job over the
same records, each in a process of its own, one after the other, into the same Redis; events/s from the start of the
query until the last record is committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.results import Measurement
from tests.support.local import ready

COMMAND = "python -m benchmarks.run streams"
EVENTS, PARTITIONS, GROUPS, BATCH = 1_200_000, 2, 200, 50_000
OPERATORS = ("window", "fold", "match")
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def measure() -> list[Measurement]:
    """Each operator, and its peer right after it."""
    ends = ready().endpoints
    with _topic(ends.kafka) as topic:
        said = {"kafka": ends.kafka, "redis": ends.redis_cache_url, "topic": topic, "events": EVENTS, "batch": BATCH}
        return [_beside(operator, said) for operator in OPERATORS]


def _beside(operator: str, said: dict[str, Any]) -> Measurement:
    ours, plain = (_run({**said, "operator": operator, "side": side}) for side in ("ours", "plain"))
    return Measurement(
        f"stream_{operator}_vs_plain_spark",
        round(ours, 1),
        "events/s",
        EVENTS,
        peer="plain Spark",
        peer_value=round(plain, 1),
        ratio=round(ours / plain, 3),
        command=COMMAND,
    )


def _run(said: dict[str, Any]) -> float:
    """Events a second."""
    with tempfile.TemporaryDirectory(prefix="headwater-streams-") as folder:
        root = Path(__file__).parents[1]
        argv = [sys.executable, "-m", "benchmarks.streams_work", json.dumps({**said, "folder": folder})]
        done = subprocess.run(
            argv, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{said['operator']} {said['side']}: {done.stderr[-3000:]}")
        seconds = float(done.stdout.strip().splitlines()[-1])
        print(f"{said['operator']} {said['side']}: {seconds:.1f} s", flush=True)
    return EVENTS / seconds


@contextmanager
def _topic(brokers: str) -> Iterator[str]:
    """Events in their topic: of some accounts, every second one a click that belongs to the search before it."""
    name, admin = f"hwbench-{uuid.uuid4().hex[:8]}", AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 50})
    for number in range(EVENTS):
        key, value = _event(number)
        while True:
            try:
                producer.produce(name, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.5)
    producer.flush(120)
    yield name
    for future in admin.delete_topics([name]).values():
        future.result(30)


def _event(number: int) -> tuple[bytes, bytes]:
    at = BEGIN + timedelta(milliseconds=10 * number - (number * 7919) % 3_000)
    about, search = f"a{(number // 2) % GROUPS}", number // 2
    row = {"id": str(uuid.UUID(int=number)), "aggregatetype": "page", "aggregateid": about}
    row |= {"type": ("searched", "clicked")[number % 2 if search % 2 else 0]}
    row |= {"payload": json.dumps({"amount": f"{number % 1000}.50", "search": search, "user": number % 5000})}
    row |= {"at": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    source = {"version": "3.6", "connector": "postgresql", "name": "shop", "ts_ms": int(at.timestamp() * 1000) + 5_000}
    source |= {"snapshot": "false", "db": "shop", "sequence": f'[null,"{number + 10}"]', "schema": "public"}
    source |= {"table": "outbox", "txId": number, "lsn": number + 10}
    value = {"before": None, "after": row, "source": source, "op": "c", "ts_ms": int(at.timestamp() * 1000)}
    return orjson.dumps({"aggregateid": about}), orjson.dumps(value)
