"""A fold is what plain Python makes of the same events, however batches are cut and whenever its process is killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from spark.disk.checkpoint import committed_offsets
from tests.support.folds import held_in, view_of
from tests.support.servers import servers
from tests.support.sinks import held, subject_on

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]
VIEW, SNAPSHOT_LSN, EVENTS, KILLS = "account", 1_000, 3_000, 3
Event = dict[str, Any]


def history(seed: int) -> list[tuple[Event, str, int]]:
    """(event, operation, LSN) by commits: rows that a snapshot read, streamed ones, some that were read once more."""
    chance = random.Random(seed)
    found: list[tuple[Event, str, int]] = []
    for number in range(EVENTS):
        what = chance.choices(["opened", "paid", "größer", "ended"], [2, 6, 1, 1])[0]
        payload = json.dumps({"amount": f"{chance.randint(-5_000, 5_000) / 100:.2f}"})
        if what == "paid" and chance.random() < 0.002:
            payload = json.dumps({"amount": "much"})  # nothing that a step can add
        # Some have one event: of these no later batch makes good what one of before has lost.
        about = f"a{chance.randint(0, 60)} {chance.choice('äb')}" if number % 10 else f"once {number}"
        event = {"id": str(uuid.UUID(int=number)), "aggregatetype": "account", "aggregateid": about, "type": what}
        read = number < EVENTS // 10
        lsn = SNAPSHOT_LSN if read else SNAPSHOT_LSN + number
        found.append((event | {"payload": payload}, "r" if read else "c", lsn))
        if not read and chance.random() < 0.02:
            found.append((chance.choice(found)[0], "r", SNAPSHOT_LSN + number))
        if not read and chance.random() < 0.02:  # kept rows of an outbox that was captured later, and perhaps more
            kept = f"kept {chance.randint(0, 30)}"
            event |= {"id": str(uuid.UUID(int=EVENTS + number)), "aggregateid": kept, "payload": payload}
            found.append((event, chance.choices(["r", "c"], [3, 1])[0], SNAPSHOT_LSN + number))
    return found


def plainly(events: Sequence[tuple[Event, str, int]]) -> tuple[dict[str, Any], set[str]]:
    """Documents by aggregate, and the aggregates that can't be folded."""
    states: dict[str, Any] = {}
    broken: set[str] = set()
    for event, op, lsn in events:
        about = event["aggregateid"]
        if op == "r" and lsn > SNAPSHOT_LSN:
            continue  # read once more, in no order that means something
        before = states.get(about) or {"n": 0, "total": Decimal(0), "words": [None]}
        states.setdefault(about, None)
        if about in broken:
            continue
        if event["type"] == "ended":
            states[about] = None
            continue
        amount = json.loads(event["payload"])["amount"]
        if amount == "much":
            broken.add(about)
            states[about] = None
            continue
        words = [*before["words"], event["type"]][-3:]
        states[about] = {"n": before["n"] + 1, "total": before["total"] + Decimal(amount), "words": words}
    return {key: state for key, state in states.items() if state is not None}, broken


@pytest.fixture
def topic() -> Iterator[tuple[str, str, list[tuple[Event, str, int]]]]:
    """(brokers, topic, its history)."""
    servers().up(["kafka"])
    brokers, name = servers().endpoints.kafka, f"hwtest-{uuid.uuid4().hex[:8]}"
    admin, made = AdminClient({"bootstrap.servers": brokers}), history(random.randrange(1 << 30))
    names = [name, f"{name}-letters"]
    for future in admin.create_topics([NewTopic(name, 2, 1), NewTopic(names[1], 1, 1)]).values():
        future.result(30)
    # Tried again without it, a request of a topic that has just been made comes behind the next one.
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
    for event, op, lsn in made:
        source = {"schema": "public", "table": "outbox", "lsn": lsn, "ts_ms": 1, "sequence": f'[null,"{lsn}"]'}
        source["snapshot"] = "false" if op == "c" else "true" if lsn == SNAPSHOT_LSN else "incremental"
        value = orjson.dumps({"op": op, "source": source, "after": event})
        producer.produce(name, key=orjson.dumps({"aggregateid": event["aggregateid"]}), value=value)
    assert producer.flush(30) == 0
    yield brokers, name, made
    for future in admin.delete_topics(names).values():
        future.result(30)


@pytest.mark.parametrize("kind", ["redis", "iceberg"])
def test_a_fold_equals_plain_python_whatever_is_killed(topic: tuple[str, str, Any], kind: str, tmp_path: Path) -> None:
    brokers, name, made = topic
    wanted, broken = plainly(made)
    with subject_on(servers(), "redis") as subject:
        sink = subject.config() | {"targets": {VIEW: {}}} if kind == "redis" else {}
        said = {"folder": str(tmp_path), "kafka": brokers, "topic": name, "records": len(made), "sink": sink}
        said |= {"conf": {"spark.sql.shuffle.partitions": "2"}, "snapshot_lsn": SNAPSHOT_LSN}
        said["max_offsets"] = 150 if sink else 600  # a commit of a table takes a second
        kills = 0
        while (code := run(said, tmp_path, kill=bool(sink) and kills < KILLS)) != 0:
            assert code == -9, (tmp_path / "out").read_text()[-3000:]
            kills += 1
        assert kills > 0 if sink else kills == 2, f"killed {kills} times"
        if kind == "redis":
            there = held(subject.open(targets={VIEW: {}}), VIEW)
            found = {key: orjson.loads(document) for key, (_, document) in there.items()}
        else:
            found = held_in(tmp_path, view_of(name))
    told = {
        key: {"account": key, "n": state["n"], "total": f"{state['total']:.2f}", "words": state["words"]}
        for key, state in wanted.items()
    }
    assert found == told
    assert broken or len(wanted) > 50


def run(said: dict[str, Any], folder: Path, *, kill: bool) -> int:
    """Run the flow's process to its end, or until it is killed in the middle of its batches."""
    argv = [sys.executable, "-m", "tests.support.folds", json.dumps(said)]
    root = Path(__file__).parents[2]
    with (folder / "out").open("w") as out:
        process = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(root)}, cwd=root, stdout=out, stderr=out)
        before = committed_offsets(folder / "g1" / VIEW / "checkpoint")[0]
        while kill and process.poll() is None:
            if committed_offsets(folder / "g1" / VIEW / "checkpoint")[0] >= before + 3:
                time.sleep(random.random() * 0.3)
                process.kill()
            time.sleep(0.01)
        return process.wait(300)
