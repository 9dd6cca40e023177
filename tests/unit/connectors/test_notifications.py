"""Debezium's notifications, of which there is one for each chunk of a table: read on, and not anew at each question."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import KafkaUnavailable
from cdc.log.client import PARTITION_EOF
from connectors.captured.captured import Captured
from connectors.snapshots import requests, signals, snapshot
from connectors.snapshots.signals import Heard, Listening, Notifications
from connectors.snapshots.snapshot import Waiting

PIPELINE: Any = SimpleNamespace(source=SimpleNamespace(reader=lambda: None), notification_topic="n")
CHUNK = {"type": "IN_PROGRESS", "id": "one", "additional_data": {"current_collection_in_progress": "s.t"}}


class Topic:
    """The topic, its brokers, and who reads it.

    Attributes:
        id: Kafka's id of it.
        notes: what stands in it.
        slow: seconds before each message in which none comes; away: none comes at all.
        opened: how many have read it from its beginning.
        polled: how often one was asked for.
    """

    def __init__(self) -> None:
        self.id, self.notes, self.slow, self.away, self.opened, self.polled = "A", list[Any](), 0.0, False, 0, 0
        self.admin, self.bootstrap, self.heard = None, "", None

    def ends(self, topics: Mapping[str, int]) -> dict[str, dict[int, int]]:
        assert topics == {"n": 1}
        return {"n": {0: len(self.notes)}}

    def consumer(self) -> Any:
        self.opened += 1
        at, told = 0, False

        def poll(seconds: float) -> Any:
            nonlocal at, told
            self.polled += 1
            if self.away or (at == len(self.notes) and told):  # of the end it is told once
                time.sleep(min(seconds, 0.01))
                return None
            if self.slow and self.polled % 2:
                time.sleep(self.slow)
                return None
            if at == len(self.notes):
                told = True
                eof = SimpleNamespace(code=lambda: PARTITION_EOF)
                return SimpleNamespace(error=lambda: eof, offset=lambda: at)
            told, here = False, at
            at += 1
            value = json.dumps(self.notes[here])
            return SimpleNamespace(error=lambda: None, offset=lambda: here, value=lambda: value)

        return SimpleNamespace(assign=lambda _: None, poll=poll, close=lambda: None)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    made = Topic()
    monkeypatch.setattr(signals, "encoding_of", lambda _: SimpleNamespace(loads=json.loads))
    monkeypatch.setattr(signals, "ids_of", lambda *_, **__: {"n": made.id})
    return made


def test_they_are_read_as_long_as_they_come(topic: Topic) -> None:
    """A billion rows are 122,000 of them: past 15 s they could not be read in time, ever again."""
    topic.notes, topic.slow = [CHUNK] * 20, 0.02
    assert Notifications(cast(Any, topic), PIPELINE).catch_up(0.1).chunks == 20
    topic.away = True
    with pytest.raises(KafkaUnavailable, match="in time"):
        Notifications(cast(Any, topic), PIPELINE).catch_up(0.1)


def test_who_asks_again_reads_on(topic: Topic) -> None:
    listening = Listening(cast(Any, topic), PIPELINE)
    topic.notes = [CHUNK] * 5
    assert listening.opened().catch_up(0.5).chunks == 5
    before = topic.polled
    assert listening.opened().catch_up(0.5).chunks == 5 and topic.polled == before
    topic.notes += [CHUNK] * 2
    assert listening.opened().catch_up(0.5).chunks == 7 and topic.polled <= before + 3
    assert topic.opened == 1
    listening.close()
    assert listening.opened().catch_up(0.5).chunks == 7 and topic.opened == 2


def test_what_was_read_before_it_stood_still_stays_read(topic: Topic) -> None:
    listening = Listening(cast(Any, topic), PIPELINE)
    topic.notes = [CHUNK] * 5
    listening.opened().read(0.02)
    topic.away = True
    topic.notes.append(CHUNK)
    with pytest.raises(KafkaUnavailable):
        listening.opened().catch_up(0.05)
    topic.away = False
    assert listening.opened().catch_up(0.5).chunks == 6 and topic.opened == 1


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(topic: Topic) -> None:
    """It may have passed the place of the old one, and what its first records say be missed."""
    listening = Listening(cast(Any, topic), PIPELINE)
    topic.notes = [CHUNK] * 2
    listening.opened().catch_up(0.5)
    topic.id, topic.notes = "B", [CHUNK] * 3
    assert listening.opened().catch_up(0.5).chunks == 3 and topic.opened == 2


def test_a_wait_that_looks_for_lost_requests_hears_what_it_reads_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(statuses={"one": {"s.t": "SUCCEEDED"}})
    old = datetime.now(UTC) - timedelta(seconds=2 * requests.LOST_SECONDS)
    entries = {name: Captured(name, "requested", "one", old) for name in ("s.t", "s.u")}
    running: Any = SimpleNamespace(in_incremental_snapshot=False, status=SimpleNamespace(running=True))
    asked = list[Mapping[str, Any]]()
    monkeypatch.setattr(snapshot, "read_connector", lambda *_: running)
    monkeypatch.setattr(snapshot, "request", lambda _servers, tables: asked.append(tables))
    monkeypatch.setattr(requests, "hear", lambda _: pytest.fail("all of them were read anew"))
    servers: Any = SimpleNamespace(connect=None, connector="c")
    notifications: Any = SimpleNamespace(catch_up=lambda: heard)
    Waiting(servers, notifications, lambda _: None)._ask_again(entries)
    assert asked == [{"s.u": None}]
