"""A row in a topic with aborted transactions, as a Kafka Connect that is killed leaves them, on a real broker: their
values are found and go, and say nothing of how the row ends."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Producer

from cdc.catalogue import Catalogue
from cdc.log.client import Kafka, Topic
from cdc.pipeline import Pipeline
from deploy.local.endpoints import Endpoints
from operations.erase.compaction import compact
from operations.erase.log import InLog, row_in_log, still_there
from operations.erase.note import Note
from operations.erase.subject import Subject
from tests.support.erase_cases import PERSONS, pipeline

pytestmark = pytest.mark.stack

KEY, OTHER = b'{"id":7}', b'{"id":8}'
VALUE = b'{"after":{"id":7,"name":"Ann"}}'


class Log:
    """The table's topic of one row.

    Args:
        made: its pipeline.
    """

    def __init__(self, made: Pipeline) -> None:
        self.kafka, self.subject = Kafka(made), Subject(made, cast(Catalogue, None), PERSONS, "7", print)
        self.topic = self.subject.topic

    def write(self, key: bytes, value: bytes | None, *, commit: bool) -> None:
        """One record, in a transaction of its own."""
        producer = Producer({**self.kafka.settings, "transactional.id": self.topic, "linger.ms": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(self.topic, key=key, value=value, partition=0)
        assert producer.flush(30) == 0, "an aborted record has to come to the broker, too"
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    def look(self) -> InLog:
        return row_in_log(self.subject, self.kafka)


@pytest.fixture
def log(stack: Endpoints, tmp_path: Path) -> Iterator[Log]:
    raw = pipeline(tmp_path).model_dump(exclude_unset=True)
    raw |= {"name": f"t{secrets.token_hex(4)}", "kafka": {"bootstrap": stack.kafka}}
    made = Log(Pipeline.model_validate(raw))
    made.kafka.create(Topic(made.topic, 1, 1, {"cleanup.policy": "compact"}))
    yield made
    made.kafka.delete([made.topic])


def test_values_that_were_never_committed_are_found_and_go(log: Log, tmp_path: Path) -> None:
    log.write(OTHER, VALUE, commit=True)
    log.write(KEY, VALUE, commit=False)
    log.write(KEY, None, commit=True)
    found = log.look()
    assert (found.count, found.deleted, found.keys) == (1, True, {0: KEY})
    assert still_there(log.kafka, found) == 1
    note = Note(log.subject.pipeline)
    compact(log.kafka, note, log.topic, found.keys, lambda: still_there(log.kafka, found), lambda: None, print, 120)
    assert still_there(log.kafka, found) == log.look().count == 0
    assert log.look().deleted and not list(tmp_path.rglob("erasing.json"))


def test_what_was_never_committed_does_not_say_how_a_row_ends(log: Log) -> None:
    log.write(KEY, VALUE, commit=True)
    log.write(KEY, None, commit=False)
    found = log.look()
    assert (found.count, found.deleted) == (1, False), "a sink would keep it"
    log.write(KEY, None, commit=True)
    log.write(KEY, VALUE, commit=False)
    found = log.look()
    assert (found.count, found.deleted) == (2, True)


def test_a_value_that_was_never_committed_behind_the_tombstone_alone_is_no_row(log: Log) -> None:
    """Where compaction has taken all that was before it the delete was said to be missing, each time again."""
    log.write(KEY, None, commit=True)
    log.write(KEY, VALUE, commit=False)
    found = log.look()
    assert (found.count, found.deleted) == (1, True)
