"""A topic that is read to its ends, for a repair and for a trace, while the log goes on: no broker is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as CoreError
from confluent_kafka import TopicPartition

from cdc.errors import KafkaUnavailable
from cdc.log import client, parts
from cdc.log.client import Kafka
from cdc.log.parts import TopicReader
from cdc.pipeline import Pipeline, loads
from cdc.records.debezium_json import Decoder
from cdc.view import View
from operations.records import backwards
from operations.records.newest import newest_records
from tests.support.entry_cases import SPEC, TABLE, event
from tests.support.plain_file import plain_file

TOPIC = "p.public.t"


class Log:
    """One partition: what it holds by offset, where it begins, and what happens to it between the look and the fetch.

    Attributes:
        more: what is written meanwhile.
        gone: offsets of records that compaction has removed.
        errors: given by each poll from then on, in place of records.
    """

    def __init__(self, values: list[tuple[bytes, bytes | None]]) -> None:
        self.values, self.begin, self.moved_to, self.errors = values, 0, 0, list[CoreError]()
        self.more, self.gone = list[tuple[bytes, bytes | None]](), set[int]()


class Reading:
    """What a ``Consumer`` of that log does."""

    log: Log

    def __init__(self, settings: dict[str, Any]) -> None:
        self.reset, self.at = settings.get("auto.offset.reset", "latest"), 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, _place: TopicPartition, _timeout: float) -> tuple[int, int]:
        return self.log.begin, len(self.log.values)

    def assign(self, places: list[TopicPartition]) -> None:
        self.log.begin = max(self.log.begin, self.log.moved_to)
        self.log.values += self.log.more
        for place in places:
            self.at = place.offset

    def consume(self, count: int, _timeout: float) -> list[Any]:
        if self.log.errors:
            return [message(error=error) for error in self.log.errors]
        if self.at < self.log.begin:
            self.at = self.log.begin if self.reset == "earliest" else len(self.log.values)
        there = [n for n in range(self.at, len(self.log.values)) if n not in self.log.gone][:count]
        found = [message(n, *self.log.values[n]) for n in there]
        self.at = there[-1] + 1 if there else self.at
        return found or [message(self.at, error=CoreError(CoreError._PARTITION_EOF))]

    def close(self) -> None: ...


def message(offset: int = 0, key: bytes | None = None, value: bytes | None = None, error: Any = None) -> Any:
    given = {"offset": offset, "partition": 0, "key": key, "value": value, "error": error, "timestamp": (1, 5_000)}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in given.items()})


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """Ten rows, each once."""
    Reading.log = Log([event(n, "as it was", 100 + n) for n in range(10)])
    monkeypatch.setattr(client, "Consumer", Reading)
    monkeypatch.setattr(parts, "POLL_SECONDS", 0.0)
    yield Reading.log
    del Reading.log


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loads(plain_file(more=f"engine: {{state_dir: {tmp_path}}}"), "p.yaml", {})


def repaired(pipeline: Pipeline, *keys: int) -> dict[str, int]:
    found = newest_records(pipeline, SPEC, View.identity(TABLE), [str(key) for key in keys])
    return {key: newest.record.offset for key, newest in found.items()}


def traced(pipeline: Pipeline, key: int) -> int | None:
    found = backwards.newest_record(pipeline, Decoder(TABLE), View.identity(TABLE), str(key), 10.0)
    assert found.whole and (found.record is None or found.written_at == 5.0)
    return None if found.record is None else found.record.offset


def test_a_beginning_that_moves_before_the_fetch_takes_away_what_is_gone_alone(
    pipeline: Pipeline, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from the end then, the log seemed to have none of the rows."""
    monkeypatch.setattr(backwards, "FIRST_STEP", 8)  # from offset 2 on: no longer there when it is fetched
    log.moved_to = 4
    assert traced(pipeline, 7) == 7 and log.begin == 4
    log.begin = 0
    assert repaired(pipeline, 3, 4, 9) == {"4": 4, "9": 9}


def test_what_comes_behind_the_noted_ends_is_left_for_the_next_time(pipeline: Pipeline, log: Log) -> None:
    log.more, log.gone = [event(3, "newer", 200)], {9}  # no record tells that it is the last one
    assert repaired(pipeline, 3) == {"3": 3}
    log.values = log.values[:10]
    assert traced(pipeline, 3) == 3


def test_steps_back_from_the_end_meet_each_record_once(
    pipeline: Pipeline, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backwards, "FIRST_STEP", 1)
    assert [traced(pipeline, key) for key in (9, 8, 0, 77)] == [9, 8, 0, None]
    with TopicReader(Kafka(pipeline), TOPIC) as reader:
        assert [one.offset() for piece in reader.pieces({0: (2, 5)}) for one in piece] == [2, 3, 4]


def test_errors_that_go_on_are_silence_and_named(pipeline: Pipeline, log: Log) -> None:
    """librdkafka tries again by itself; errors counted as an answer, the reader waited for ever."""
    log.errors = [CoreError(CoreError._TRANSPORT)]
    began = time.monotonic()
    with (
        TopicReader(Kafka(pipeline), TOPIC, silent_seconds=0.2) as reader,
        pytest.raises(KafkaUnavailable, match=r"gave nothing for 0 s: .*transport"),
    ):
        for _ in reader.pieces(reader.bounds()):
            assert time.monotonic() - began < 5
