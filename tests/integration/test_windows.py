"""Windows are what plain Python makes of the same events, however batches are cut and whatever is killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from spark.checkpoint import committed_offsets
from tests.support.servers import servers
from tests.support.sinks import held, subject_on
from tests.support.timed import VIEWS
from tests.support.windowed import Happened, plainly

pytestmark = [pytest.mark.stack, pytest.mark.sampled(turn=1)]
SNAPSHOT_LSN, EVENTS, PARTITIONS, KILLS = 1_000, 3_000, 3, 2
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


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
        payload: dict[str, Any] = {"user": f"u{chance.randint(0, 40)}"}
        if chance.random() < 0.9:
            payload["amount"] = f"{chance.randint(-5_000, 5_000) / 100:.2f}" if chance.random() > 0.002 else "much"
        event = {"id": str(uuid.UUID(int=number)), "aggregatetype": "account", "aggregateid": about}
        event |= {"type": chance.choice(["viewed", "größer", "noise"]), "payload": json.dumps(payload), "at": at}
        found.append(Happened(hash(about) % PARTITIONS, event, again=False, committed=now))
        if chance.random() < 0.02:
            earlier = chance.choice(found)
            found.append(earlier._replace(again=True, committed=now))
    return found


@pytest.fixture
def topic() -> Iterator[tuple[str, str, list[Happened]]]:
    """(brokers, topic, its history)."""
    servers().up(["kafka"])
    brokers, name = servers().endpoints.kafka, f"hwtest-{uuid.uuid4().hex[:8]}"
    admin, made = AdminClient({"bootstrap.servers": brokers}), history(random.randrange(1 << 30))
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
    yield brokers, name, made
    for future in admin.delete_topics(names).values():
        future.result(30)


@pytest.mark.parametrize("kind", VIEWS)
def test_windows_equal_plain_python_whatever_is_killed(topic: tuple[str, str, Any], kind: str, tmp_path: Path) -> None:
    brokers, name, made = topic
    wanted = plainly(VIEWS[kind], made)
    view = VIEWS[kind].name
    with subject_on(servers(), "redis") as subject:
        sink = subject.config() | {"targets": {view: {}}}
        said = {"folder": str(tmp_path), "kafka": brokers, "topic": name, "records": len(made), "sink": sink}
        said |= {"conf": {"spark.sql.shuffle.partitions": "2"}, "max_offsets": 400, "snapshot_lsn": SNAPSHOT_LSN - 1}
        kills = 0
        while (code := run(said | {"view": kind}, tmp_path, view, kill=kills < KILLS)) != 0:
            assert code == -9, (tmp_path / "out").read_text()[-3000:]
            kills += 1
        assert kills > 0, "nothing was killed"
        documents = [
            orjson.loads(document) for _, document in held(subject.open(targets={view: {}}), view).values() if document
        ]
    found = {key_of(kind, document): document for document in documents}
    assert found.keys() == wanted.keys()
    for key, document in found.items():
        compare(wanted[key], document)
    assert len(wanted) > 100
    if kind == "corrected":
        assert any(document["late"] for document in documents)


def key_of(kind: str, document: dict[str, Any]) -> tuple[Any, ...]:
    view = VIEWS[kind]
    start = moment(document["window_start"])
    return document.get("grouping", ",".join(view.groupings[0])), tuple(document[name] for name in view.by), start


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def compare(wanted: dict[str, Any], document: dict[str, Any]) -> None:
    """Exactly, but for what is approximate: that within its bound."""
    assert moment(document["window_end"]) == wanted["end"]
    for name in ("n", "amounts", "word", "late"):
        assert document[name] == wanted[name], (name, wanted, document)
    assert moment(document["latest"]) == wanted["latest"]
    for name, digits in (("total", 2), ("least", 2), ("mean", 6)):
        assert document[name] == (None if wanted[name] is None else f"{wanted[name]:.{digits}f}"), (name, wanted)
    assert abs(document["users"] - wanted["users"]) <= max(1, wanted["users"] * 0.05)
    values = wanted["values"]
    if values:
        assert (
            values[int(len(values) * 0.85) - 1]
            <= document["p90"]
            <= values[min(len(values) - 1, int(len(values) * 0.95))]
        )


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
