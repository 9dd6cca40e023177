"""Which records are about some documents: told by the bytes of their keys, where these are written in one way only, and
of events by their rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cdc.records.encoding import JSON
from cdc.view import View
from operations.records import newest
from operations.records.newest import Asked, Record, routed_elsewhere
from tests.support.timed import EVENTS

BEYOND = [str(1 << 63), str(-(1 << 63) - 1), "007"]


@pytest.mark.parametrize("number", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_the_records_of_every_number_that_a_key_can_be_are_found(number: int) -> None:
    """Of one that is passed over a repair says that the log does not have the row."""
    column = SimpleNamespace(name="id", array=False, base_type="int8")
    table = SimpleNamespace(primary_key=("id",), by_name={"id": column})
    view: Any = SimpleNamespace(topics=(), key=("id",), table=table)
    asked = Asked(cast(Any, None), view, "t", [str(number), *BEYOND])
    for key, ours in ((f'{{"id":{number}}}', True), ('{"id":5}', False), ('{"id":7}', False)):
        assert asked(SimpleNamespace(key=key.encode(), value=b"")) is ours  # type: ignore[arg-type]


def test_an_event_is_elsewhere_where_only_the_topic_of_all_other_types_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was read again is in both, and one that never came in neither: these the view must have."""
    read: list[str] = []
    topics = {"shop-events": ("old", "again", "other"), "shop-events.order": ("again", "new"), "shop-events.b": ()}

    def pieces(_pipeline: object, topic: str) -> list[list[Record]]:
        read.append(topic)
        rows = [{"id": one, "aggregatetype": "order", "aggregateid": "7"} for one in topics[topic]]
        values = [orjson.dumps({"op": "c", "after": row}) for row in rows] + [b"no JSON"]
        return [[Record(b"{}", value, topic, 0, offset) for offset, value in enumerate(values)]]

    monkeypatch.setattr(newest, "_pieces", pieces)
    monkeypatch.setattr(newest, "encoding_of", lambda _: JSON)
    pipeline: Any = SimpleNamespace(events_topic="shop-events", source=SimpleNamespace(reader=lambda: None))
    view = View("v", EVENTS, ("id",), (), topics=("shop-events.b", "shop-events.order"), event_types=("order", "b"))
    assert routed_elsewhere(pipeline, view, ["old", "again", "new", "lost"]) == {"old"}
    assert sorted(read) == sorted(topics)
    read.clear()
    assert routed_elsewhere(pipeline, view, ["new", "lost"]) == set()
    assert read == ["shop-events"], "where none of them is there, nothing else is read"
