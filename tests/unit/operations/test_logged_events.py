"""The events of the log for the second opinion: each once, of however many attempts the initial snapshot was made."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.resolve.views import resolve_view
from cdc.stateful import StatefulView
from operations import logged_events
from operations.logged_events import Log
from tests.unit.spark.test_fold import CATALOGUE, file, record


class Brokers:
    """Kafka with one topic of one partition."""

    def __init__(self, _: object) -> None: ...

    def describe(self, topics: Any) -> dict[str, Any]:
        return {topic: SimpleNamespace(name=topic, partitions=1, config={}) for topic in topics}

    def ends(self, partitions: dict[str, int], *, first: bool = False) -> dict[str, dict[int, int]]:
        return {topic: {0: 0 if first else 100} for topic in partitions}


@pytest.mark.parametrize(("marker", "counted"), [(20, [20, 21]), (None, [10, 20, 21])])
def test_of_an_interrupted_snapshot_the_last_attempt_s_rows_count(
    monkeypatch: pytest.MonkeyPatch, marker: int | None, counted: list[int]
) -> None:
    told = [record("a", "r", 10, "first"), record("a", "r", 20, "last"), record("a", "c", 21)]

    def records(_kafka: object, _topic: str, _part: int) -> Iterator[Any]:
        for one in [*told, record("a", "r", 30, "incremental")]:
            yield SimpleNamespace(value=lambda one=one: one.value, offset=lambda one=one: one.offset)

    monkeypatch.setattr(logged_events, "Kafka", Brokers)
    monkeypatch.setattr(logged_events, "records", records)
    monkeypatch.setattr(logged_events, "read_position", lambda *_: marker)
    view = resolve_view(file(), CATALOGUE, "v")
    assert isinstance(view, StatefulView)
    events = [*Log(file(), view, None)()]
    assert [event.offset for event in events if not event.again] == counted
    assert [event.offset for event in events if event.again] == [30]
