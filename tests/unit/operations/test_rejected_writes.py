"""Letters for who waits for a write: those that can be of it, and each record of theirs is fetched once."""

from __future__ import annotations

import time
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cdc.errors import KafkaUnavailable
from cdc.letters.book import Book
from cdc.letters.deadletter import DeadLetter
from cdc.log.letter_log import Raw
from cdc.pipeline import Pipeline
from operations.letters import waiting
from operations.letters.waiting import REMEMBERED_SECONDS, RejectedWrites
from operations.letters.writes import FRESH_SECONDS


class Log:
    """A letters' topic, and the records that letters are of: their offset is their transaction."""

    def __init__(self) -> None:
        self.book, self.fetched, self.silent_at, self.since_ms = Book(), list[int](), -1, 0

    def follow(self) -> Book:
        return self.book

    def raws(self, places: Collection[tuple[str, int, int]]) -> dict[tuple[str, int, int], Raw]:
        found = {}
        for place in sorted(places):
            if place[2] == self.silent_at:
                raise KafkaUnavailable("nothing for 30 s")
            self.fetched.append(place[2])
            found[place] = Raw(None, orjson.dumps({"source": {"txId": place[2]}}))
        return found

    def take(self, number: int, age: float, **more: Any) -> None:
        at_ms = int((time.time() - age) * 1000)
        one = DeadLetter("search", "v", str(number), 8, "no", None, "t", 0, number, at_ms, generation=1, **more)
        self.book.take(one.record_key(), one.to_json(), number)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()

    def opened(_pipeline: Any, *, since_ms: int = 0) -> Log:
        made.since_ms = since_ms
        return made

    monkeypatch.setattr(waiting, "LetterLog", opened)
    monkeypatch.setattr(waiting, "encoding_of", lambda _reader: orjson)
    monkeypatch.setattr(waiting, "transaction_of", lambda source: source["txId"])
    return made


def asked() -> RejectedWrites:
    return RejectedWrites(cast(Pipeline, SimpleNamespace(source=SimpleNamespace(reader=lambda: None))))


def told(writes: RejectedWrites) -> dict[str, int | None]:
    return {one.key: of for one, of in writes.told("search", [1])}


def test_letters_that_are_of_no_live_write_are_not_read_fetched_or_kept(log: Log) -> None:
    """50,000 of a mapping conflict weeks ago made every wait on every sink time out, for minutes after each start."""
    for number in range(1, 200):
        log.take(number, REMEMBERED_SECONDS + number)
    log.take(200, 30)
    log.take(201, FRESH_SECONDS)
    writes = asked()
    assert abs(log.since_ms / 1000 - (time.time() - REMEMBERED_SECONDS)) < 60, "the topic is read from there"
    assert told(writes) == {"200": 200, "201": 201}
    assert log.fetched == [200, 201] and len(log.book) == 2
    assert told(writes) == {"200": 200, "201": 201} and log.fetched == [200, 201]


def test_what_was_learned_before_a_broker_fell_silent_is_not_asked_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PAGE", 4)
    for number in range(20):
        log.take(number, 5)
    log.take(99, 5, tx_id=7)
    writes, log.silent_at = asked(), 18
    with pytest.raises(KafkaUnavailable):
        told(writes)
    log.silent_at, log.fetched = -1, []
    assert told(writes) == {**{str(number): number for number in range(20)}, "99": 7}
    assert log.fetched == [16, 17, 18, 19]
