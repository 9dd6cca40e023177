"""Queries that are documents of another view: put, changed and removed as they are, on real servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis
import requests
from click.testing import CliRunner

from cdc.errors import ConfigError
from console.cli.queries import command
from console.http.server import serving
from operations.push import webhook
from operations.push.health import push_report
from operations.push.webhooks import Webhooks
from operations.standing.sending import sending_of
from tests.support.sent_matches import Process
from tests.support.servers import servers
from tests.support.sinks import VIEW, client_of, subject_on
from tests.support.source import eventually
from tests.support.standing import SAVED, StandingWorld

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

BIG, WORD = {"range": {"n": {"gte": 10}}}, {"match": {"t": "blue"}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StandingWorld]:
    with (
        subject_on(servers(), "redis") as cache,
        subject_on(servers(), "opensearch") as search,
        closing(StandingWorld(cache, search, tmp_path, more=", saved: {view: saved}")) as made,
    ):
        yield made


@contextmanager
def following(world: StandingWorld) -> Iterator[list[str]]:
    said: list[str] = []
    with Webhooks(lambda: (world.pipeline, {"cache"}), said.append, sending_of):
        yield said


def stands(world: StandingWorld) -> dict[str, tuple[str, object]]:
    return {one["name"]: (one["state"], one["query"]) for one in world.listed()}


def test_a_row_puts_changes_and_removes_a_query_and_one_that_is_none_holds_nothing_back(world: StandingWorld) -> None:
    world.save(1, big=BIG, word=json.dumps(WORD), wrong={"terrm": {"n": 1}})  # jsonb, text, and no query
    with following(world) as said:
        assert eventually(lambda: len(stands(world)) == 3 and stands(world)["wrong"][0] == "refused")
        assert stands(world) == {"big": ("pending", BIG), "word": ("pending", WORD), "wrong": ("refused", None)}
        [why] = [one["refused"] for one in world.listed() if one["name"] == "wrong"]
        assert "unknown query [terrm]" in why
        with closing(world.matching()) as matching:
            world.write(1, a={"n": 11, "t": "blue"}, b={"n": 1, "t": "blue"})
            matching.until_idle()
            assert world.snapshot() == {"a": {"big", "word"}, "b": {"word"}}
            # Changed, mended and removed; one that was a query is none any more: nothing stands under its name.
            world.save(2, big={"range": {"n": {"lt": 10}}}, wrong={"term": {"n": 11}}, word=None)
            world.save(3, late={"match_all": {}}, big="no JSON")
            world.save(4, **{"a name": BIG})
            assert eventually(lambda: "late" in stands(world) and "a name" in stands(world))
            assert {name: state for name, (state, _) in stands(world).items()} == {
                "wrong": "pending", "late": "pending", "big": "refused", "a name": "refused"
            }  # fmt: skip
            matching.until_idle()
            assert world.snapshot() == {"a": {"wrong", "late"}, "b": {"late"}}
        for by_hand in (lambda: world.put("mine", match_all={}), lambda: world.remove("late")):
            with pytest.raises(ConfigError, match="are the documents of view saved"):
                by_hand()
        with serving([world.file], "127.0.0.1", 0, said.append):
            url = f"{said[-1].rpartition(' ')[2]}/v1/queries/{VIEW}"
            answer = requests.put(f"{url}/mine", json={"match_all": {}}, timeout=10)
            assert answer.status_code == 400 and "documents of view saved" in answer.json()["error"]["what"], (
                answer.text
            )
            listed = {one["name"]: one["state"] for one in requests.get(url, timeout=10).json()["queries"]}
            assert listed["big"] == "refused" and listed["wrong"] == "active"
        assert eventually(lambda: push_report(world.pipeline)[0]["lag_entries"] == 0)
    [report] = push_report(world.pipeline)
    assert (report["name"], report["view"], report["sends"], report["to"]) == (
        f"queries.{VIEW}", SAVED, "queries", "search"
    )  # fmt: skip
    shown = CliRunner().invoke(command, ["list", str(world.file), VIEW])
    assert "refused  big  query big is no JSON" in shown.stdout, shown.stdout


def test_a_row_costs_its_own_query_and_a_lost_place_costs_only_what_differs(world: StandingWorld) -> None:
    world.save(1, **{f"q{number}": {"range": {"n": {"gte": number}}} for number in range(40)})
    with following(world):
        assert eventually(lambda: len(stands(world)) == 40)
        before = {one["name"]: one["revision"] for one in world.listed()}
        world.save(2, q7={"term": {"n": 7}})
        assert eventually(lambda: stands(world)["q7"][1] == {"term": {"n": 7}})
    changed = {one["name"] for one in world.listed() if one["revision"] != before[one["name"]]}
    assert changed == {"q7"}
    # The cache is lost, and filled again with one more, one less and one that is another.
    with redis.Redis.from_url(world.cache.url) as client:
        for key in client.scan_iter(f"*{world.cache.name}:*"):
            client.delete(key)
    world.sink = world.generation(1)
    known = {one["name"]: one["revision"] for one in world.listed()}
    rows = {f"q{number}": {"range": {"n": {"gte": number}}} for number in range(40) if number != 3}
    rows |= {"q7": {"term": {"n": 7}}, "q8": {"term": {"n": 8}}, "more": {"term": {"n": 9}}}
    world.save(3, **rows)
    with following(world):
        assert eventually(lambda: "q3" not in stands(world) and "more" in stands(world))
    now = {one["name"]: one["revision"] for one in world.listed()}
    assert {name for name in now if now[name] != known.get(name)} == {"q8", "more"}


def test_what_the_search_server_has_lost_or_another_index_takes_is_put_when_somebody_begins(
    world: StandingWorld,
) -> None:
    world.save(1, big=BIG, later={"term": {"price": 1}})  # a field that the index has not
    with following(world):
        assert eventually(lambda: stands(world).get("later", ("",))[0] == "refused" and "big" in stands(world))
    with client_of(world.search) as server:
        [lost] = server.indices.get(index=f"{world.search.name}*queries*", expand_wildcards="all").body
        server.indices.delete(index=lost)
    world.properties = {**world.properties, "price": {"type": "long"}}
    world.index(2).promote(VIEW, 1)
    assert world.states() == {"later": "refused"}
    with following(world):
        assert eventually(lambda: world.states() == {"big": "pending", "later": "pending"})


def test_a_server_that_takes_nothing_now_is_waited_for_and_refuses_no_row(world: StandingWorld) -> None:
    world.save(1, big=BIG)
    with following(world) as said, client_of(world.search) as server:
        assert eventually(lambda: "big" in stands(world))
        [judge] = server.indices.get(index=f"{world.search.name}*percolator*", expand_wildcards="all").body
        server.indices.put_settings(index=judge, settings={"index.blocks.write": True})  # as when a disk is full
        world.save(2, big=WORD)
        assert eventually(lambda: push_report(world.pipeline)[0]["state"] == "failing")
        assert stands(world) == {"big": ("pending", BIG)} and "blocked" in said[0]
        server.indices.put_settings(index=judge, settings={"index.blocks.write": None})
        assert eventually(lambda: stands(world) == {"big": ("pending", WORD)})


def test_the_one_who_follows_is_killed_and_rows_change_meanwhile(world: StandingWorld) -> None:
    process = Process(world)
    try:
        for version in range(1, 40):
            rows = {f"q{version % 7}": {"term": {"n": version}}, f"q{(version + 3) % 7}": None}
            world.save(version, **rows)
            if version % 13 == 0:
                assert eventually(lambda: len(stands(world)) > 0)
                process.kill()
                process.start()
        process.kill()
        world.save(50, **{f"q{number}": {"term": {"n": number}} for number in (0, 2)}, q1=None, last={"oops": {}})
        truth = {"q0": {"term": {"n": 0}}, "q2": {"term": {"n": 2}}, "last": None}
        truth |= {name: found for name, found in world.saved().items() if name not in truth}
        process.start()
        # What is not there any more goes last, once all that is was seen.
        assert eventually(lambda: {name: query for name, (_, query) in stands(world).items()} == truth), stands(world)
    finally:
        process.kill()


def put_slowly(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Who puts a query first sleeps before he does: (set as he falls asleep, to be set to wake him)."""
    from operations.standing.register import Following

    asleep, awake = threading.Event(), threading.Event()
    put = Following.put

    def slow(self: Following, name: str, wanted: bytes) -> None:
        if not asleep.is_set():
            asleep.set()
            awake.wait(60)
        put(self, name, wanted)

    monkeypatch.setattr(Following, "put", slow)
    return asleep, awake


def test_who_was_silent_for_longer_than_the_lease_writes_nothing_over(
    world: StandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between the look at what stands and the write: the other one's query stays."""
    monkeypatch.setattr(webhook, "LEASE_SECONDS", 1.0)
    asleep, awake = put_slowly(monkeypatch)
    world.save(1, big={"term": {"n": 1}})
    with following(world):
        assert asleep.wait(60)
        world.save(2, big={"term": {"n": 2}})
        with following(world):
            assert eventually(lambda: stands(world).get("big", ("", None))[1] == {"term": {"n": 2}})
            awake.set()
            assert not eventually(lambda: stands(world)["big"][1] != {"term": {"n": 2}}, seconds=0.5)


def test_another_column_waits_for_who_puts_what_the_former_one_has(
    world: StandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He went on through his batch, and what the other column says was written over until the row changed again."""
    asleep, awake = put_slowly(monkeypatch)
    files = [world.pipeline]
    names = [f"q{number}" for number in range(6)]
    rows = {name: {"query": {"term": {"n": 1}}, "other": {"term": {"n": 2}}} for name in names}
    world._write(SAVED, 1, rows)
    with Webhooks(lambda: (files[-1], {"cache"}), print, sending_of):
        assert asleep.wait(60)
        world.file.write_text(world.file.read_text().replace("{view: saved}", "{view: saved, query: other}"))
        files.append(world.pipeline)
        wanted = {name: ("pending", {"term": {"n": 2}}) for name in names}
        eventually(lambda: stands(world) == wanted, seconds=3)  # there was somebody who had put them all by now
        awake.set()
        assert eventually(lambda: stands(world) == wanted)
        assert not eventually(lambda: stands(world) != wanted, seconds=3)
