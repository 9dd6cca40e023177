"""The example of events in time: documents equal plain SQL over the outbox, and what `verify` makes of the log."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from redis import Redis

from examples.events import load as events
from tests.support.joined import Joined
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled]

IN_REDIS = ("views_by_hour", "session", "guessing")
IN_SEARCH = ("delays", "search")
# Before these no event of an order is still to come, in any partition.
OVER = events.START + timedelta(minutes=events.MINUTES - 60)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """The example, running."""
    stack = servers()
    stack.up()
    made = Joined(stack, tmp_path_factory.mktemp("events"), loaders=[events])
    with made.running():
        yield made


@pytest.fixture(scope="module")
def truth(example: Joined) -> dict[str, dict[str, Any]]:
    """view -> name -> document."""
    return example.truth(Path(events.__file__).with_name("truth.sql").read_text(encoding="utf-8"))


def plain(value: Any) -> Any:
    """Moments as such, whoever has written them."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str) and value[4:5] == "-" and "T" in value:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone(UTC).isoformat()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def told(documents: dict[str, Any]) -> list[str]:
    """All of a view's documents, without how many events came late."""
    return sorted(
        repr(sorted(plain({name: value for name, value in one.items() if name != "late"}).items()))
        for one in documents.values()
    )


@pytest.mark.parametrize("view", [*IN_REDIS, *IN_SEARCH])
def test_what_is_kept_is_what_sql_says(example: Joined, truth: dict[str, dict[str, Any]], view: str) -> None:
    read = example.in_redis if view in IN_REDIS else example.in_elasticsearch
    wanted = told(truth[view])
    assert example.settled(lambda: told(read(view)), wanted) == wanted
    late = sum(one["late"] for one in read(view).values())
    assert (late > 0) == (view == "delays")


def test_absence_is_found_once_the_time_is_over(example: Joined, truth: dict[str, dict[str, Any]]) -> None:
    wanted = truth["unpaid"]
    over = {key for key, one in wanted.items() if datetime.fromisoformat(one["at"]) < OVER}
    found = example.settled(lambda: over <= example.in_redis("unpaid").keys(), wanted=True)
    assert found and over
    for key, document in example.in_redis("unpaid").items():
        assert plain({name: value for name, value in document.items() if name != "late"}) == plain(wanted[key])


@pytest.fixture(scope="module")
def redis(example: Joined) -> Iterator[Redis]:
    """The cache, to be meddled with."""
    with Redis.from_url(example.stack.endpoints.redis_cache_url) as client:
        yield client


def verified(example: Joined, *options: str) -> dict[str, dict[str, Any]]:
    """View -> what `verify --json` says of it."""
    report = json.loads(example.run("verify", "--json", "--wait", "60", *options, ok=(0, 2)))
    assert all(sink["error"] is None for sink in report["sinks"]), report
    found = {view["view"].removeprefix(f"{example.name}_"): view for sink in report["sinks"] for view in sink["views"]}
    assert report["equal"] == (not any(view["differences"] for view in found.values()))
    return found


def test_verify_computes_them_a_second_time(example: Joined, truth: dict[str, dict[str, Any]]) -> None:
    found = verified(example)
    assert found.keys() == {*IN_REDIS, *IN_SEARCH, "unpaid"}
    for name, view in found.items():
        assert (view["differences"], view["undecided"]) == (0, 0), view
        # What is not over by the clocks of all partitions may be told by a heartbeat, or not yet.
        assert view["doubtful"] == 0 or name == "unpaid", view
        assert name == "unpaid" or view["expected"] == view["compared"] == len(truth[name]) > 0
    assert found["views_by_hour"]["within"] == 2 * found["views_by_hour"]["compared"]
    assert found["session"]["within"] == found["search"]["within"] == 0
    sampled = verified(example, "--sample", "20", "--sink", "events_cache")["views_by_hour"]
    assert (sampled["compared"], sampled["within"], sampled["differences"]) == (20, 40, 0)
    key = next(iter(example.in_redis("views_by_hour")))
    view = ("--view", example.view("views_by_hour"), "--expected", "--json")
    explained = json.loads(example.run("explain", "events_cache", key, *view))["expected"]
    assert explained["equal"] and "(within)" in explained["document"]["people"]


@contextmanager
def ordering(example: Joined) -> Iterator[None]:
    """Orders as they happen, some of them paid, as long as the block lasts."""
    over = threading.Event()

    def write() -> None:
        chance = random.Random(1)
        with psycopg.connect(example.conninfo, autocommit=True) as connection:
            while not over.wait(0.05):
                values = (f"n{chance.randint(1, 40)}", chance.choice(("ordered", "paid")), chance.randint(0, 90))
                connection.execute(
                    "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, at) VALUES (gen_random_uuid(), "
                    "'order', %s, %s, '{}', now() - %s * interval '1 second')",
                    values,
                )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def test_verify_accuses_nobody_while_events_come(example: Joined) -> None:
    with ordering(example):
        time.sleep(3)
        found = verified(example, "--sink", "events_cache")
    assert not any(view["differences"] for view in found.values()), found


def test_verify_names_what_was_meddled_with(example: Joined, redis: Redis) -> None:
    def meddled(view: str, where: Any, change: Any) -> str:
        """The id of the first document that is so, which is changed."""
        key, document = next((key, one) for key, one in sorted(example.in_redis(view).items()) if where(one))
        redis.set(f"{example.name}:{example.view(view)}:{key}", json.dumps(change(document)), keepttl=True)
        return key

    counted = meddled("views_by_hour", lambda one: one["ip"], lambda one: one | {"views": one["views"] + 1})
    sketched = meddled("views_by_hour", lambda one: one["page"], lambda one: one | {"people": 1_000})
    near = meddled("views_by_hour", lambda one: one["grouping"] == "", lambda one: one | {"people": one["people"] + 1})
    ghost = next(iter(example.in_redis("guessing")))
    redis.delete(f"{example.name}:{example.view('guessing')}:{ghost}")
    alone = meddled("unpaid", lambda one: True, lambda one: one | {"total": "0.00"})
    found = verified(example, "--sink", "events_cache", "--repair")
    cube = found["views_by_hour"]
    assert cube["columns"] == {counted: ["views"], sketched: ["people"]} and near not in cube["changed"]
    assert (cube["differences"], cube["caught_up"], cube["repaired"]) == (2, True, 0)
    assert {one["key"] for one in cube["not_repaired"]} == {counted, sketched}
    assert all("rebuild" in one["why"] for one in cube["not_repaired"])
    assert (found["guessing"]["missing"], found["unpaid"]["columns"]) == ([ghost], {alone: ["total"]})


def test_what_the_log_has_lost_is_doubtful_and_no_difference(example: Joined) -> None:
    admin = AdminClient({"bootstrap.servers": example.stack.endpoints.kafka})
    topic = next(name for name in admin.list_topics().topics if name.startswith(example.name) and "login" in name)
    for done in admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values():
        done.result(30)
    found = verified(example, "--sink", "events_cache")
    assert all(view["caught_up"] in (None, True) for view in found.values()), found
    guessing = found["guessing"]
    assert guessing["doubtful"] >= len(guessing["doubted"]) > 0
    assert (guessing["differences"], guessing["caught_up"]) == (0, True)
