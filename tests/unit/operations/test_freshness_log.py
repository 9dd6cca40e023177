"""What an entry of the log leaves out, which ends it takes, and of when a look at the source is."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.pipeline import loads
from cdc.token import History
from connectors.captured.captured import Captured
from connectors.database.sightings import Seen, Sighting
from connectors.database.write_tokens import Standing
from connectors.snapshots.signals import Listening
from operations.freshness import log
from operations.freshness.log import SourceLog
from tests.support.lone_cache import FILE

TABLE, TOPIC = "public.t", "p.public.t"
CAPTURED = Sighting(5, ("id",), "default", True, 1, "1", 1)


class Brokers:
    """One topic, of whose five records a reader of committed ones sees three."""

    admin, bootstrap, heard = None, "", None

    def impatient(self, _seconds: float) -> Brokers:
        return self

    def partitions(self, topics: Any) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    def ends(self, counts: Mapping[str, int], *, written: bool = False) -> dict[str, dict[int, int]]:
        return {topic: {0: 5 if written else 3} for topic in counts}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceLog:
    """One table, whose rows are all in the log; Postgres is not asked."""
    captured = Captured(TABLE, "done", None, datetime.now(UTC), identity=CAPTURED)
    monkeypatch.setattr(log, "read_captured", lambda *_: {TABLE: captured})
    monkeypatch.setattr(log, "look_at", lambda *_: Seen({TABLE: CAPTURED}, {5: CAPTURED}))
    monkeypatch.setattr(log, "ids_of", lambda _admin, topics, _bootstrap, heard: dict.fromkeys(topics, "A"))
    monkeypatch.setattr(SourceLog, "_asked", lambda _: nullcontext())
    made = SourceLog(loads(FILE.format(folder=tmp_path), "p.yaml", {}))
    made._kafka = cast(Any, Brokers())
    return made


def test_an_entry_goes_as_far_as_the_log_is_written(source: SourceLog) -> None:
    """What is acknowledged may wait for its transaction's marker: committed records alone end before it."""
    entry = source.entry(9, [TOPIC])
    assert (entry.offsets, entry.silent, entry.ids) == ({TOPIC: {0: 5}}, {}, {TOPIC: "A"})


def test_an_entry_is_silent_of_a_table_whose_change_nobody_has_noted_yet(
    source: SourceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` notes it within seconds, if it is there: until then the slot has confirmed what is not in the topic."""
    monkeypatch.setattr(log, "look_at", lambda *_: Seen({}, {}))
    entry = source.entry(9, [TOPIC])
    assert (entry.offsets, entry.silent) == ({}, {TOPIC: f"changes of table {TABLE} are missing in its topic"})


def test_a_look_is_of_before_the_source_was_asked(source: SourceLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while it answers may not be in the answer."""
    now = [1_000.0]

    def asked(answer: Any) -> Any:
        now[0] += 100
        return answer

    monkeypatch.setattr(log, "time", SimpleNamespace(time=lambda: now[0]))
    monkeypatch.setattr(log, "read_history", lambda *_: asked(History(1, 1, "a", "b", 1)))
    monkeypatch.setattr(log, "read_standing", lambda *_: asked(Standing({}, 9, 5)))
    assert source.look(()).at == 1_000.0 and now == [1_200.0]


def test_who_asks_again_while_a_table_is_read_reads_debeziums_notifications_on(
    source: SourceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that stand in the topic were read every two seconds, with a billion rows 122,000 of them."""
    listened, closed = list[Any](), list[None]()
    captured = {TABLE: Captured(TABLE, "requested", "one", datetime.now(UTC), identity=CAPTURED)}
    monkeypatch.setattr(log, "read_captured", lambda *_: captured)
    monkeypatch.setattr(log, "open_servers", lambda _: nullcontext())
    monkeypatch.setattr(log, "unfinished", lambda _servers, listening: listened.append(listening) or {TABLE})
    monkeypatch.setattr(log, "SNAPSHOT_SECONDS", -1.0)
    monkeypatch.setattr(Listening, "close", lambda _: closed.append(None))
    assert source.reading() == source.reading() == [TABLE]
    assert listened == [source._listening] * 2 and not closed
    captured[TABLE] = Captured(TABLE, "done", None, datetime.now(UTC), identity=CAPTURED)
    assert source.reading() == [] and closed == [None], "it is not kept open for nothing"
