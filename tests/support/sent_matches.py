"""Who is sent matches: a process of its own that judges and sends until it is killed, and what a topic has got."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from cdc.log.client import PARTITION_EOF, Kafka
from cdc.pipeline import Pipeline
from operations.push.writing import ID
from tests.support.standing import StandingWorld

# As `run` does it beside its flows; it does not keep the next one waiting.
PROCESS = """
import os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from cdc.pipeline import load
from operations.push import webhook
from operations.push.webhooks import Webhooks
from operations.push.writing import Writing
from operations.standing.sending import sending_of
from operations.standing.watch import matching
webhook.LEASE_SECONDS = 1.0
left, carry = int(sys.argv[2]), Writing.carry
def carried(self, batch, *args):
    global left
    done, left = carry(self, batch, *args), left - any(one.name == "match" for one in batch.events)
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
Writing.carry = carried
pipeline = load(Path(sys.argv[1]))
with matching(SimpleNamespace(pipeline=pipeline, only=(), paused={})):
    with Webhooks(lambda: (pipeline, {"cache"}), print, sending_of):
        time.sleep(300)
"""


class Process:
    """One that may be killed, and started again."""

    def __init__(self, world: StandingWorld) -> None:
        self._world = world
        self.start()

    def start(self, writes: int = -1) -> None:
        """Args: after so many batches of matches that a topic has taken it kills itself, before that is noted."""
        self._process = subprocess.Popen([sys.executable, "-c", PROCESS, str(self._world.file), str(writes)])

    @property
    def ended(self) -> bool:
        """Whether it has been killed."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Idempotent."""
        self._process.kill()
        self._process.wait()


class Written(NamedTuple):
    """A record of a topic."""

    partition: int
    id: str
    key: str
    value: dict[str, Any]


def written(pipeline: Pipeline, topic: str) -> list[Written]:
    """All that a topic has, partition by partition."""
    kafka = Kafka(pipeline)
    there = kafka.describe([topic]).get(topic)
    found: list[Written] = []
    consumer = kafka.consumer()
    try:
        for part in range(there.partitions if there else 0):
            consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING)])
            while True:
                one = consumer.poll(10)
                assert one is not None, f"topic {topic} could not be read"
                if (error := one.error()) is not None:
                    assert error.code() == PARTITION_EOF, error
                    break
                headers = dict(one.headers() or ())
                found.append(Written(part, headers[ID].decode(), one.key().decode(), json.loads(one.value())))
    finally:
        consumer.close()
    return found


def once(records: Iterable[Written]) -> list[Written]:
    """Without repetitions, as a consumer drops them that knows the ids it has taken, of each partition."""
    return list({(one.partition, one.id): one for one in records}.values())


def matches_of(events: Iterable[tuple[str, Any]]) -> dict[str, set[str]]:
    """Who matches what, by what somebody was sent: names and data of events, in their order."""
    state: dict[str, set[str]] = {}
    for name, data in events:
        if name == "reset":
            state = {}
        elif name == "snapshot":
            for one in data.get("documents", [data]):
                state[one["key"]] = set(one["queries"])
        elif name == "match":
            known = state.setdefault(data["key"], set())
            for query, op in data["queries"].items():
                assert (op == "entered") == (query not in known), (data, known)
                known.discard(query) if op == "left" else known.add(query)
    return {key: names for key, names in state.items() if names}


def shown(records: list[Written]) -> list[tuple[str, Any]]:
    return [(one.value["event"], one.value["data"]) for one in records]


def in_topic(records: list[Written]) -> dict[str, set[str]]:
    """Who matches what by a topic: a document is in one partition, and each partition is told of a reset."""
    parts = ([one for one in once(records) if one.partition == part] for part in {one.partition for one in records})
    return {key: names for part in parts for key, names in matches_of(shown(part)).items()}
