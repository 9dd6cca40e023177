"""Topics that are the only copy of what they hold: `drop --topics` says what goes with them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import KafkaError
from cdc.log.client import Topic
from connectors import drop as dropping
from connectors.drop import deleted_for_good, plan_drop
from connectors.names import Names
from connectors.only_copies import only_copies
from connectors.topics import FOR_EVER, LAG, data_topics, plan_topics
from tests.support.connector_cases import catalogue, pipeline

TABLES = ["public.flights", "public.planes", "public.outbox"]
OUTBOX = {"table": "public.outbox", "types": ["order"]}
PARTS = {"source": {"tables": TABLES, "outbox": OUTBOX}}
EVENTS = ("flights-events", "flights-events.order")


def there(names: Collection[str]) -> dict[str, Topic]:
    """All of them; of the planes all versions are kept, as no view of the file asks for."""
    return {
        name: Topic(name, 2, 1, {LAG: FOR_EVER if name == "flights.public.planes" else "1"})
        for name in names
        if name != "flights.public.outbox"
    }


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Any:
    loaded = pipeline(**PARTS)
    for nothing in ("connector", "slot", "publication"):
        monkeypatch.setattr(dropping, f"read_{nothing}", lambda *_: None)
    for none in ("captured", "left"):
        monkeypatch.setattr(dropping, f"read_{none}", lambda *_: [])
    rows = SimpleNamespace(fetchall=list)
    setup = SimpleNamespace(execute=lambda sql, *_: rows if "pg_class c JOIN pg_namespace" in sql else iter(()))
    made = SimpleNamespace(
        pipeline=loaded, names=Names.of(loaded), setup=setup, source=None, connect=None, connector="c"
    )
    held = {"flights-events": 3, "flights-events.order": 1, "flights.public.planes": 2}

    def ends(topics: dict[str, int], *, written: bool) -> dict[str, dict[int, int]]:
        assert written, "also of transactions that are under way"
        return {name: {part: held[name] * part for part in range(count)} for name, count in topics.items()}

    made.kafka = SimpleNamespace(describe=there, ends=ends, held=held)
    monkeypatch.setattr(dropping, "open_servers", lambda _: nullcontext(made))
    return made


def test_what_goes_for_good_is_said_of_its_topics_alone(servers: Any) -> None:
    others, events, versions = plan_drop(servers, topics=True)
    assert others.detail == "delete" and "flights.public.flights" in others.names
    assert events.names == EVENTS and events.detail == (
        "delete: events go for good, but for those whose rows are still in the outbox"
    )
    assert versions.names == ("flights.public.planes",) and "(`as_of`) goes for good" in versions.detail
    assert {action.kind for action in (others, events, versions)} == {"topic"}
    assert [action.detail for action in plan_drop(servers, topics=False)] == ["delete"]


def test_each_topic_is_deleted_once(servers: Any) -> None:
    deleted = list[str]()
    servers.kafka.delete, servers.kafka.delete_group = deleted.extend, lambda _: None
    planned = plan_drop(servers, topics=True)
    for action in planned:
        action.run(servers)
    assert sorted(deleted) == sorted(name for action in planned for name in action.names)
    assert len(set(deleted)) == len(deleted) > 5


def test_what_is_asked_before_anything_is_dropped(servers: Any) -> None:
    assert deleted_for_good(servers.pipeline) == dict.fromkeys(EVENTS, "events") | {"flights.public.planes": "versions"}
    assert only_copies(pipeline(), there(EVENTS)) == {}, "a file without an outbox has none"


def test_of_a_topic_that_never_held_a_record_nothing_goes(servers: Any) -> None:
    """A recapture was refused to who has declared an outbox and not used it yet."""
    servers.kafka.held.update(dict.fromkeys(EVENTS, 0))
    assert deleted_for_good(servers.pipeline) == {"flights.public.planes": "versions"}
    others, versions = plan_drop(servers, topics=True)
    assert {*EVENTS} <= {*others.names} and versions.names == ("flights.public.planes",)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("flights-events.order", "Events go with it for good"),
        ("flights.public.planes", "What its rows were before (`as_of`) goes with it for good"),
        ("flights.public.flights", ""),
    ],
)
def test_who_is_told_to_delete_a_topic_is_told_what_goes_with_it(name: str, lost: str) -> None:
    loaded, key = pipeline(**PARTS), (Column("id", "integer", "int4"),)
    tables = catalogue(*(Table("public", one.removeprefix("public."), key, ("id",)) for one in TABLES))
    wanted = data_topics(loaded, tables)
    actual = {topic.name: topic for topic in wanted} | there(["flights.public.planes"])
    with pytest.raises(KafkaError, match="has 7 partitions") as error:
        plan_topics(wanted, {**actual, name: replace(actual[name], partitions=7)})
    assert "copy the" in error.value.fix if lost else "copy" not in error.value.fix
    assert lost in error.value.fix
