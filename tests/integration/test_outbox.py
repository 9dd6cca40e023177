"""Events of an outbox, end to end: routed once and in order, whatever is killed, and one document of each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.outboxed import OLD, PREFIX, TYPES, Application, Event, Outboxed
from tests.support.servers import servers

ADDED = "00000000-0000-0000-0000-000000000002"
# What is no event: no JSON, none of an object, without an aggregate, of no column, of another type, half a character.
WRONG = (
    "not JSON",
    "[1, 2]",
    '{"id": "x", "aggregatetype": "order"}',
    '{"id": "x", "aggregatetype": "order", "aggregateid": "1", "unheard": 1}',
    '{"id": true, "aggregatetype": "order", "aggregateid": "1"}',
    '{"id": "x", "aggregatetype": "order", "aggregateid": "\\ud800"}',
)

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.alone, pytest.mark.sampled(part=0)]


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
    assert pipeline.settled(lambda: pipeline.in_elasticsearch("sale"), sold) == sold
    assert pipeline.settled(lambda: pipeline.in_table().keys(), every.keys()) == every.keys()
    for key, row in pipeline.in_table().items():
        assert json.loads(row["payload"]) == every[key]["payload"]
        assert (row["aggregateid"], row["type"]) == (every[key]["aggregateid"], every[key]["type"])
    assert pipeline.dead_letters() == []


def test_what_postgres_still_has_is_compared_and_what_it_has_deleted_stays(
    pipeline: Outboxed, events: list[Event]
) -> None:
    kept = pipeline.count("SELECT count(*) FROM outbox")
    assert 0 < kept < len(events) / 2
    assert pipeline.count("SELECT count(*) FROM outbox WHERE aggregatetype <> 'order'") > 0
    report = pipeline.assert_equal()
    views = {view["view"]: view for sink in report["sinks"] for view in sink["views"]}
    assert (views["outbox"]["expected"], views["outbox"]["compared"]) == (kept, len(events) + 1)
    sold = pipeline.count("SELECT count(*) FROM outbox WHERE aggregatetype = 'order' AND type = 'paid'")
    assert 0 < sold == views[pipeline.view("sale")]["expected"], "rows of other types are no documents of this view"


def test_an_aggregate_is_what_its_events_make_of_it(pipeline: Outboxed, events: list[Event]) -> None:
    """Folded by Spark, whatever was killed, as by a loop."""
    wanted: dict[str, dict[str, object]] = {"old": {"placed": 0, "paid": 0, "last": 0}}
    for one in (one for one in events if one["aggregatetype"] == "order"):
        state = wanted.setdefault(one["aggregateid"], {"placed": 0, "paid": 0, "last": None})
        state[one["type"]] += 1
        state["last"] = one["payload"]["n"]
    told = {key: {"about": key, **state} for key, state in wanted.items()}
    assert pipeline.settled(lambda: pipeline.in_redis("state"), told) == told


def test_verify_folds_the_log_once_more_and_finds_what_is_not_so(pipeline: Outboxed, events: list[Event]) -> None:
    pipeline.readable(allowed=True)
    sound = verified(pipeline)
    assert (sound["differences"], sound["compared"]) == (0, len({one["aggregateid"] for one in events}) + 1)
    with redis.Redis.from_url(pipeline.stack.endpoints.redis_cache_url) as client:
        key = f"{pipeline.name}:{pipeline.view('state')}:old"
        before = client.get(key)
        assert before is not None
        client.set(key, json.dumps({"about": "old", "placed": 9, "paid": 0, "last": 0}))
        found = verified(pipeline)
        client.set(key, before)
    assert (found["changed"], found["missing"], found["extra"]) == (["old"], [], [])


def verified(pipeline: Outboxed) -> dict[str, Any]:
    """What verify says of the folded view."""
    report = json.loads(pipeline.run("verify", "--sink", "cache", "--wait", "60", "--json", ok=(0, 2)))
    (found,) = (view for view in report["sinks"][0]["views"] if view["view"] == pipeline.view("state"))
    return dict(found)


def test_a_message_that_is_no_event_is_a_dead_letter_and_stops_nothing(pipeline: Outboxed, events: list[Event]) -> None:
    assert events
    before = len(pipeline.records(f"{pipeline.name}-events"))
    for one in WRONG:
        pipeline.execute("SELECT pg_logical_emit_message(true, %s, %s)", PREFIX, one)
    pipeline.execute("SELECT pg_logical_emit_message(true, 'somebody else', 'no event of ours')")
    # A number in a text column has the digits that Postgres prints, and no exponent.
    good = {"id": ADDED, "aggregatetype": "order", "aggregateid": "1", "type": 1e-07, "payload": None}
    wanted = good | {"type": "0.0000001"}
    pipeline.execute("SELECT pg_logical_emit_message(false, %s, %s)", PREFIX, json.dumps(good))
    assert pipeline.settled(lambda: pipeline.in_redis("event").get(ADDED), wanted) == wanted

    def letters() -> int:
        said = [one for one in pipeline.dead_letters() if "is a message that is no event" in one["reason"]]
        return len({one["offset"] for one in said if one["sink"] == "cache"})

    assert pipeline.settled(letters, len(WRONG)) == len(WRONG)
    assert len(pipeline.records(f"{pipeline.name}-events")) == before + len(WRONG)


def test_a_column_more_is_in_the_events_from_then_on(pipeline: Outboxed, events: list[Event]) -> None:
    assert events
    pipeline.execute("ALTER TABLE outbox ADD COLUMN actor text")
    key = "00000000-0000-0000-0000-000000000003"
    values = "VALUES (%s, 'order', '1', 'paid', '{\"n\": 7}', now(), 'Zoë')"
    pipeline.execute(f"WITH one AS (INSERT INTO outbox {values} RETURNING id) SELECT FROM one", key)
    pipeline.execute("DELETE FROM outbox WHERE id = %s", key)
    assert pipeline.settled(lambda: pipeline.in_table().get(key, {}).get("actor"), "Zoë") == "Zoë"
    wanted = {"aggregateid": "1", "n": 7}
    assert pipeline.settled(lambda: pipeline.in_elasticsearch("sale").get(key), wanted) == wanted


def test_a_sink_that_is_made_again_from_the_log_holds_the_same(pipeline: Outboxed, events: list[Event]) -> None:
    assert pipeline.settled(lambda: len(pipeline.in_redis("event")) >= len(events), wanted=True)
    before, states = pipeline.in_redis("event"), pipeline.in_redis("state")
    pipeline.stop()
    pipeline.run("drop", "--sink", "cache", "--yes")
    assert pipeline.in_redis("event") == {}
    pipeline.start("--sink", "cache")
    assert pipeline.in_redis("event") == before
    assert pipeline.settled(lambda: pipeline.in_redis("state"), states) == states
