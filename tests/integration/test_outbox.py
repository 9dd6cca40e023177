"""Events of an outbox, end to end: routed once and in order, whatever is killed, and one document of each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.outboxed import OLD, TYPES, Application, Event, Outboxed
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.alone]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outboxed]:
    """Captured and followed."""
    stack = servers()
    stack.up()
    made = Outboxed(stack, tmp_path_factory.mktemp("outboxed"))
    with made.running():
        yield made


@pytest.fixture(scope="module")
def events(pipeline: Outboxed) -> list[Event]:
    """What an application has committed, while Connect and the runner were killed."""
    with Application(pipeline.conninfo) as application:
        time.sleep(1)
        pipeline.stack.kill("connect")
        pipeline.stack.up()
        time.sleep(2)
        pipeline.kill()
        pipeline.launch()
        time.sleep(3)
    assert isinstance(application, Application)
    return application.events


def test_each_event_is_in_its_topic_once_and_in_the_order_of_its_aggregate(
    pipeline: Outboxed, events: list[Event]
) -> None:
    count = len(events) + 1
    pipeline.settled(lambda: sum(len(pipeline.records(topic)) for topic in pipeline.topics()), count)
    found: dict[tuple[str, str], list[str]] = {}
    for topic in pipeline.topics():
        for _, key, value in pipeline.records(topic):
            row = value["after"]
            assert json.loads(key) == {"aggregateid": row["aggregateid"]}
            assert topic.removeprefix(f"{pipeline.name}-events").lstrip(".") in (row["aggregatetype"], "")
            assert (topic == f"{pipeline.name}-events") == (row["aggregatetype"] not in TYPES)
            found.setdefault((row["aggregatetype"], row["aggregateid"]), []).append(row["id"])
    wanted: dict[tuple[str, str], list[str]] = {("order", "old"): [OLD]}
    for one in events:
        wanted.setdefault((one["aggregatetype"], one["aggregateid"]), []).append(one["id"])
    assert len(wanted) > 10
    assert found == wanted


def test_each_event_is_one_document_in_every_sink(pipeline: Outboxed, events: list[Event]) -> None:
    old = {"id": OLD, "aggregatetype": "order", "aggregateid": "old", "type": "kept", "payload": {"n": 0}}
    every = {one["id"]: one for one in [*events, old]}
    paid = [one for one in events if (one["type"], one["aggregatetype"]) == ("paid", "order")]
    sold = {one["id"]: {"aggregateid": one["aggregateid"], "n": one["payload"]["n"]} for one in paid}
    assert pipeline.settled(lambda: pipeline.in_redis("event"), every) == every
    assert pipeline.settled(lambda: pipeline.in_redis("sale"), sold) == sold
    assert pipeline.settled(lambda: pipeline.in_elasticsearch("sale"), sold) == sold
    assert pipeline.settled(lambda: pipeline.in_table().keys(), every.keys()) == every.keys()
    for key, row in pipeline.in_table().items():
        assert json.loads(row["payload"]) == every[key]["payload"]
        assert (row["aggregateid"], row["type"]) == (every[key]["aggregateid"], every[key]["type"])
    assert pipeline.dead_letters() == []
