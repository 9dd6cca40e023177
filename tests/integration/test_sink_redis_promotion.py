"""Redis: a promotion that is cut anywhere, what readers see meanwhile, who waits, and what the pointer survives."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from headwater_client.cache import FOLLOW, Cache

from cdc.errors import SinkRefused, SinkUnavailable
from sinks.contract import WRITTEN, Item
from sinks.redis import RedisSink, promotion
from sinks.redis.names import Names
from tests.support.servers import servers
from tests.support.sinks import VIEW, Subject, doc, held, subject_on

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

# Several pages of keys that only the old generation has, that both have, and that only the new one has.
OLD = {str(n): (5, doc(n, "old")) for n in range(900)}
NEW = {str(n): (5, doc(n, "new")) for n in range(600, 1500)}


class Cut(Exception):
    """Stands for the promoter's end."""


class Stage:
    """Two filled generations and the ways to look at them."""

    def __init__(self, subject: Subject, client: redis.Redis) -> None:
        self.subject, self.client = subject, client
        self.name = f"{subject.name}:{VIEW}"
        self.first, self.second = self.opened(), self.opened(2)
        for sink, documents in ((self.first, OLD), (self.second, NEW)):
            sink.setup()
            batch = [Item(key, version, document) for key, (version, document) in documents.items()]
            assert set(sink.write(VIEW, batch)) == {WRITTEN}
        self.cache = Cache(client, VIEW, f"{subject.name}:")

    def opened(self, generation: int = 1, **over: Any) -> RedisSink:
        sink = self.subject.open(generation, **over)
        assert isinstance(sink, RedisSink)
        return sink

    def plain(self, key: str) -> Any:
        return self.client.get(f"{self.name}:{key}")

    def cut_at(self, wanted: str, place: int = 1, generation: int = 2) -> None:
        """Promote until a step has come for the ``place``-th time."""
        left = [place]

        def step(name: str) -> None:
            if name == wanted:
                left[0] -= 1
                if left[0] == 0:
                    raise Cut

        with pytest.raises(Cut):
            names = Names(f"{self.subject.name}:", VIEW, generation)
            promotion.promote(self.client, names, "test", 3 - generation, False, step)

    def check_readers(self, exact: dict[str, tuple[int, bytes]]) -> None:
        """Who follows the pointer sees exactly one generation; a plain GET one of the two, key by key."""
        keys = [str(n) for n in range(1500)]
        assert self.cache.get_many(keys) == {key: document for key, (_, document) in exact.items()}
        for key in keys[::7]:
            followed = self.client.eval(FOLLOW, 1, f"{self.name}@live", self.name, key)
            assert followed == [self.cache.get(key)] == [exact.get(key, (0, None))[1]]
            assert self.plain(key) in (OLD.get(key, (0, None))[1], NEW.get(key, (0, None))[1])

    def check_ended(self, generation: int) -> None:
        documents = OLD if generation == 1 else NEW
        self.check_readers(documents)
        assert {key: self.plain(str(key)) for key in range(1500) if self.plain(str(key))} == {
            int(key): document for key, (_, document) in documents.items()
        }
        assert (held(self.first), held(self.second)) == (OLD, NEW)
        assert self.first.living(VIEW) == generation
        assert set(self.client.hgetall(f"{self.name}@live")) == {b"generation", b"plain", b"lease:1", b"lease:2"}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with subject_on(servers(), "redis") as subject, redis.Redis.from_url(subject.url) as client:
        yield Stage(subject, client)


STEPS = [("begun", 1), ("clearing", 2), ("cleared", 1), ("swapping", 1), ("swapping", 3), ("swapped", 1)]


@pytest.mark.parametrize(("step", "place"), STEPS)
def test_a_promotion_that_was_cut_is_finished_by_promoting_again(stage: Stage, step: str, place: int) -> None:
    stage.check_readers(OLD)
    stage.cut_at(step, place)
    stage.check_readers(NEW)
    stage.second.promote(VIEW, 1)
    stage.check_ended(2)


@pytest.mark.parametrize(("step", "place"), STEPS)
def test_a_promotion_that_was_cut_may_be_taken_back(stage: Stage, step: str, place: int) -> None:
    stage.cut_at(step, place)
    stage.first.promote(VIEW, 2)
    stage.check_ended(1)


@pytest.mark.parametrize(("step", "place"), STEPS)
def test_going_back_may_be_cut_too(stage: Stage, step: str, place: int) -> None:
    stage.second.promote(VIEW, 1)
    stage.check_ended(2)
    stage.cut_at(step, min(place, 2), generation=1)
    stage.check_readers(OLD)
    stage.first.promote(VIEW, 2)
    stage.check_ended(1)


def test_writers_wait_while_keys_are_renamed_and_readers_of_a_generation_come_again(stage: Stage) -> None:
    stage.cut_at("swapping")
    answers: dict[int, Any] = {}

    def write(generation: int) -> None:
        answers[generation] = stage.opened(generation).write(VIEW, [Item("7", 9, doc(generation)), Item("8", 9, None)])

    writers = [threading.Thread(target=write, args=(generation,), daemon=True) for generation in (1, 2)]
    for writer in writers:
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
    assert any("renaming" in reason for reason in stage.subject.waits)
    with pytest.raises(SinkUnavailable, match="renamed"):
        list(stage.second.scan(VIEW))
    with pytest.raises(SinkUnavailable, match="renamed"):
        stage.first.get(VIEW, ["7"])
    third = stage.opened(3)
    third.setup()
    assert third.write(VIEW, [Item("7", 1, doc(3))]) == [WRITTEN], "a third one has nothing to wait for"
    stage.second.promote(VIEW, 1)
    for writer in writers:
        writer.join(30)
    assert answers == {1: [WRITTEN] * 2, 2: [WRITTEN] * 2}
    assert stage.plain("7") == stage.second.get(VIEW, ["7"])["7"].document == doc(2)
    assert stage.first.get(VIEW, ["7", "8"]) == {"7": ("7", 9, doc(1))}


def test_a_scan_that_a_promotion_overtakes_is_an_error_not_a_short_answer(stage: Stage) -> None:
    for sink in (stage.first, stage.second):
        rows = sink.scan(VIEW)
        next(rows)
        stage.second.promote(VIEW, 1)
        with pytest.raises(SinkUnavailable, match="renamed"):
            list(rows)
        stage.first.promote(VIEW, 2)


@pytest.mark.parametrize("step", ["clearing", "swapping"])
@pytest.mark.parametrize("again", [False, True])
def test_a_promoter_that_wakes_up_late_does_nothing(stage: Stage, step: str, again: bool) -> None:
    """One promoter is stopped between two pages; another finishes its work and goes back, and perhaps is at the same
    step of the next promotion when the first wakes up."""
    woken: list[str] = []

    def sleepy(name: str) -> None:
        woken.append(name)
        if name == step and woken.count(name) == 1:
            stage.second.promote(VIEW, 1)
            stage.check_ended(2)
            stage.first.promote(VIEW, 2)
            if again:
                stage.cut_at(step)

    names = Names(f"{stage.subject.name}:", VIEW, 2)
    promotion.finish(stage.client, names)  # nothing has begun, so nothing is done
    with pytest.raises(Cut):
        promotion.promote(stage.client, names, "test", 1, False, _cut)
    promotion.finish(stage.client, names, sleepy)
    assert woken.count(step) == 1
    if again:
        stage.check_readers(NEW)
        assert stage.client.hexists(f"{stage.name}@live", "moving")
        stage.second.promote(VIEW, 1)
    stage.check_ended(2 if again else 1)


@pytest.mark.parametrize("step", ["begun", "clearing", "cleared", "swapping", "swapped"])
def test_a_promotion_that_wakes_up_late_undoes_no_rollback(stage: Stage, step: str) -> None:
    """The whole of it begins again after the renames, and readers saw its generation's forerunner, as at its begin."""
    woken: list[str] = []

    def sleepy(name: str) -> None:
        woken.append(name)
        if name == step and woken.count(name) == 1:
            stage.second.promote(VIEW, 1)
            stage.first.promote(VIEW, 2)

    with pytest.raises(SinkRefused, match="see generation 1, not 2"):
        promotion.promote(stage.client, Names(f"{stage.subject.name}:", VIEW, 2), "test", 1, False, sleepy)
    stage.check_ended(1)


def _cut(name: str) -> None:
    if name == "begun":
        raise Cut


def test_several_promoters_at_once_end_like_one(stage: Stage) -> None:
    sinks = [stage.opened(2) for _ in range(4)]
    failed: list[BaseException] = []

    def promote(sink: RedisSink) -> None:
        try:
            sink.promote(VIEW, 1)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=promote, args=(sink,), daemon=True) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    stage.check_ended(2)


def test_a_promoter_killed_at_any_moment_leaves_what_another_can_finish(stage: Stage) -> None:
    script = (
        "import json, sys; from sinks.factory import open_sink; "
        "sink = open_sink(json.loads(sys.argv[1])); print('ready', flush=True); sys.stdin.readline(); "
        f"sink.promote({VIEW!r}, int(sys.argv[2]))"
    )
    living, cut = 1, 0
    for turn in range(6):
        new, old = 3 - living, living
        argv = [sys.executable, "-c", script, json.dumps(stage.subject.config(new)), str(old)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin and process.stdout
        with process:
            process.stdout.readline()
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(0.004 * (turn + 1))
            process.send_signal(signal.SIGKILL)
        cut += stage.client.hexists(f"{stage.name}@live", "moving")
        (stage.second if new == 2 else stage.first).promote(VIEW, old)
        stage.check_ended(new)
        living = new
    assert cut, "none of the promotions was cut in the middle; the times want adjusting"


def test_expiry_survives_a_promotion(stage: Stage) -> None:
    lasting = stage.opened(2, ttl_seconds=1000)
    lasting.write(VIEW, [Item("1499", 6, doc(1)), Item("777", 6, doc(1))])
    stage.second.promote(VIEW, 1)
    for key in ("1499", "777"):
        assert 900 < stage.client.ttl(f"{stage.name}:{key}") <= 1000
    assert stage.client.ttl(f"{stage.name}:1498") == -1
    stage.first.promote(VIEW, 2)
    assert 900 < stage.client.ttl(f"{stage.name}@2:777") <= 1000


def test_fences_stay_with_their_generation(stage: Stage) -> None:
    stage.second.write(VIEW, [Item("700", 20, None)])
    stage.second.promote(VIEW, 1)
    assert [answer.outcome.value for answer in stage.second.write(VIEW, [Item("700", 15, doc(1))])] == ["stale"]
    assert stage.plain("700") is None
    assert stage.first.write(VIEW, [Item("700", 15, doc(1, "old"))]) == [WRITTEN]
    assert stage.plain("700") is None


def test_drop_after_a_cut_promotion_removes_one_and_keeps_the_other(stage: Stage) -> None:
    stage.cut_at("swapping")
    stage.first.drop(VIEW)
    assert held(stage.second) == NEW
    assert set(stage.client.scan_iter(match=f"hw:v:{{{stage.name}:*", count=1000)) == set()
    stage.second.drop(VIEW)
    assert list(stage.client.scan_iter(match=f"*{stage.subject.name}*", count=1000)) == []


@pytest.mark.parametrize("generation", [1, 2])
def test_a_server_that_has_forgotten_a_generation_takes_none_of_its_writes(stage: Stage, generation: int) -> None:
    """What does not change again would be missing for ever, and nobody would notice."""
    sink = stage.opened(generation, token=7)
    sink.setup()
    assert sink.there(VIEW)
    stage.client.delete(f"{stage.name}@live")
    assert not sink.there(VIEW)
    with pytest.raises(SinkRefused, match=f"has lost generation {generation}") as caught:
        sink.write(VIEW, [Item("1", 9, doc(1))])
    assert "rebuild FILE tested --auto" in str(caught.value)
    sink.setup()  # whoever begins anew claims it first
    assert sink.write(VIEW, [Item("1", 9, doc(1))]) == [WRITTEN]
    assert sink.claimed(VIEW) == 7


def test_what_was_seen_when_the_pointer_was_lost_goes_with_its_own_generation(stage: Stage) -> None:
    """Its documents were put aside as those of generation 1, which nobody retires, drops or erases any more."""
    stage.second.promote(VIEW, 1)
    stage.first.drop(VIEW)
    stage.client.delete(f"{stage.name}@live")  # evicted, say
    third = stage.opened(3)
    third.setup()
    assert third.write(VIEW, [Item("7", 1, doc(3)), Item("700", 1, doc(3))]) == [WRITTEN] * 2
    third.promote(VIEW, 2)
    assert stage.cache.get_many(["7", "700", "701"]) == {"7": doc(3), "700": doc(3)}
    assert stage.plain("701") is None
    stage.second.drop(VIEW)
    left = set(stage.client.scan_iter(match=f"{stage.name}*", count=1000))
    assert left == {f"{stage.name}{what}".encode() for what in (":7", ":700", "@live")}


def test_a_number_left_with_a_generation_tells_of_an_older_state(stage: Stage) -> None:
    second = stage.opened(2, token=7)
    assert isinstance(second, RedisSink)
    assert second.beat(VIEW, 5) == 0
    assert second.beat(VIEW, 6) == 5
    stage.client.hset(f"{stage.name}@live", "beat:2", "5")  # as a server that was restored has it
    assert second.beat(VIEW, 7) == 5
    assert second.beat(VIEW, 3) == 7  # somebody whose clock is behind
    assert second.beat(VIEW, 8) == 7
    assert [second.beat(VIEW, 20, before=9), second.beat(VIEW, 21, before=9)] == [8, 8]  # what was lost stays so
    second.empty(VIEW)
    assert second.beat(VIEW, 8) == 8  # a fill that begins anew is no loss
    assert isinstance(stage.first, RedisSink) and stage.first.beat(VIEW, 1) == 0  # each generation has its own
    stage.client.delete(f"{stage.name}@live")
    assert second.beat(VIEW, 8) is None
    assert not stage.client.exists(f"{stage.name}@live"), "nothing is claimed by looking"


def test_a_reader_that_decodes_gets_text(stage: Stage) -> None:
    with redis.Redis.from_url(stage.subject.url, decode_responses=True) as client:
        cache = Cache(client, VIEW, f"{stage.subject.name}:")
        assert cache.get_many(["3", "none"]) == {"3": doc(3, "old").decode()}
        stage.cut_at("swapping")
        assert cache.get("700") == doc(700, "new").decode()


def test_a_server_without_memory_can_be_claimed_and_promoted(stage: Stage) -> None:
    """On the shared server the limit is set for a moment only, so writers of other tests wait as they would."""
    limit = stage.client.config_get("maxmemory")["maxmemory"]
    policy = stage.client.config_get("maxmemory-policy")["maxmemory-policy"]
    stage.client.config_set("maxmemory-policy", "noeviction")
    stage.client.config_set("maxmemory", "1mb")
    try:
        stage.opened(2, token=9).setup()
        stage.opened(2, token=9).promote(VIEW, 1)
        assert stage.opened(2, token=9, give_up_seconds=2.0).write(VIEW, [Item("700", 9, None)]) == [WRITTEN]
    finally:
        stage.client.config_set("maxmemory", limit)
        stage.client.config_set("maxmemory-policy", policy)
    assert stage.plain("700") is None
