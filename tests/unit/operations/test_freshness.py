"""Tokens, moments and answers, without a server."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import BadToken, ConfigError, HeadwaterError, KafkaUnavailable, NewerFormat, RegistryUnavailable
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline, loads
from cdc.polling import poll
from cdc.token import History, WriteToken, differs, parse_token
from connectors.database.write_tokens import Standing
from connectors.ledger import LedgerEntry
from operations.freshness import waits as of_waits
from operations.freshness.answers import STATES, worst
from operations.freshness.log import Look, SourceLog
from operations.freshness.marks import Marks
from operations.freshness.note import FlowNote, SinkNote
from operations.freshness.place import FlowSeen, Reach, Seen
from operations.freshness.refresh import Refresher
from operations.freshness.wait import Target, Wait, judge
from operations.freshness.waits import Waits
from operations.letters import writes
from operations.state.folder import register_of
from sinks.redis import RedisSink
from tests.support.growing_log import GrowingLog

HERE = History(0x69A5, 1, "3f2a91bc", "0badcafe", 57)


def test_a_token_is_read_as_it_was_written() -> None:
    assert parse_token("x1.69a5.1.3f2a91bc.0badcafe.39.b6aab") == WriteToken("transaction", HERE, 0xB6AAB)
    assert parse_token("a1.69a5.1.3f2a91bc.0badcafe.39.b6aab").kind == "lsn"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x1",
        "x2.69a5.1.3f2a91bc.0badcafe.39.b6aab",
        "x1.69a5.1.3f2a91bc.0badcafe.39.",
        "a1.69A5.1.3f2a91bc.0badcafe.39.1",
        "a1." + "f" * 200,
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadToken):
        parse_token(text)


def test_of_another_history_nothing_is_known() -> None:
    assert differs(HERE, HERE) is None
    assert differs(HERE, replace(HERE, witness=58)) is None  # time has passed
    for now in (
        replace(HERE, system_identifier=1),
        replace(HERE, timeline=2),
        replace(HERE, installation="0" * 8),
        replace(HERE, life="1" * 8),
        replace(HERE, witness=56),
    ):
        assert differs(HERE, now)


def test_a_token_of_another_pipeline_is_not_said_to_be_of_this_one_made_anew() -> None:
    why = differs(HERE, replace(HERE, installation="91922c85"))
    assert why is not None
    assert "another pipeline" in why


def judged(token: WriteToken, standing: Standing, history: History | None = HERE) -> Wait:
    wait = Wait(token, ["search"])
    judge(wait, Look(history, standing, 0.0))
    return wait


def test_what_the_database_says_of_a_write_decides_how_far_to_wait() -> None:
    inside, after = WriteToken("transaction", HERE, 700), WriteToken("lsn", HERE, 5_000)
    assert judged(inside, Standing({700: "committed"}, 9_000, 0)).lsn == 9_000
    assert judged(inside, Standing({700: "in progress"}, 9_000, 0)).lsn is None
    assert judged(inside, Standing({700: "aborted"}, 9_000, 0)).ended.result().state == "aborted"
    assert judged(inside, Standing({700: "unknown"}, 9_000, 0)).ended.result().state == "unknown"
    assert judged(after, Standing({}, 9_000, 0)).lsn == 5_000
    assert judged(after, Standing({}, 4_000, 0)).ended.result().state == "unknown"
    assert judged(after, Standing({}, 9_000, 0), None).ended.result().state == "unknown"
    assert judged(after, Standing({}, 9_000, 0), replace(HERE, timeline=2)).ended.result().state == "unknown"


def test_an_answer_is_the_worst_of_its_sinks() -> None:
    assert worst([]) == "visible"
    assert worst(["visible", "timeout", "visible"]) == "timeout"
    assert worst(list(STATES)) == "unknown"


@given(st.lists(st.sampled_from(["commit", "look", "confirm", "bound", "apply", "back"]), max_size=60))
def test_a_moment_is_never_said_to_be_reached_too_early(steps: list[str]) -> None:
    world = GrowingLog()
    for step in steps:
        world.step(step)
        # Asked after each step: a moment that is told too early may be made good by the next one.
        as_of = world.marks.newest(lambda entry: not entry.behind({"t": {0: world.applied}}))
        world.assert_nothing_is_missing(as_of)


OTHER = replace(HERE, system_identifier=7)


def test_moments_of_another_history_of_the_database_are_none_of_this_one() -> None:
    """The address led to another cluster, whose log is longer: its slot had "come past" a moment of the former one, so
    that all before it was said to be there, while half of that log was still to be read."""
    first = Marks().seen(Look(HERE, Standing({}, 100, 50), 1_000.0))
    again = first.seen(Look(replace(HERE, witness=58), Standing({}, 200, 50), 1_001.0))
    assert again is first and again.history == replace(HERE, witness=58)
    made = first.seen(Look(OTHER, Standing({}, 10_000, 5_000), 1_002.0))
    assert made is not first and not made.wanting(5_000)
    assert made.wanting(10_000)
    assert first.wanting(5_000), "whoever still holds it is not disturbed"


def test_a_moment_at_which_a_standby_was_asked_is_none() -> None:
    """It does not say how far the log goes; noted as its beginning, the moment was bound with the next confirmation."""
    marks = Marks().seen(Look(None, Standing({}, 0, None), 1_000.0))
    assert marks.since(0.0) is None
    marks = marks.seen(Look(HERE, Standing({}, 100, 50), 1_001.0)).seen(Look(None, Standing({}, 0, None), 1_002.0))
    assert not marks.wanting(50) and marks.since(1_001.5) is None


def test_who_waits_for_an_age_waits_anew_in_another_history() -> None:
    wait = Wait(None, ["search"], lsn=100, entry=LedgerEntry(100, {}), history=HERE)
    wait.targets["search"].tickets = {1: 1}
    judge(wait, Look(HERE, Standing({}, 200, 150), 0.0))
    assert (wait.lsn, wait.entry is None, wait.targets["search"].tickets) == (100, False, {1: 1})
    judge(wait, Look(OTHER, Standing({}, 10_000, 5_000), 0.0))
    assert (wait.lsn, wait.entry, wait.targets["search"].tickets) == (10_000, None, {})
    judge(wait, Look(OTHER, Standing({}, 20_000, 5_000), 0.0))
    assert wait.lsn == 10_000


def test_how_old_a_sink_is_and_who_waits_for_it_go_by_one_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who serve keep moments as `run` does."""
    waits = Waits(cast(Pipeline, SimpleNamespace(source=SimpleNamespace(slot="s"))), cast(Any, None))
    looks = [Look(HERE, Standing({}, 100, 50), 1_000.0), Look(OTHER, Standing({}, 10_000, 5_000), 1_001.0)]
    source = SimpleNamespace(look=lambda _: looks.pop(0), entry=lambda lsn, _: LedgerEntry(lsn, {}), beat=lambda: None)
    quiet = SimpleNamespace(judge=lambda *_: None, step=lambda: None)
    servers = cast(Any, SimpleNamespace(source=source, places={}, letters=quiet, refresher=quiet))
    waits._step([], servers)
    assert waits.marks.bound is None
    waits._step([], servers)
    assert waits.marks.bound is None, "commits of the other log up to 10,000 are still to be read"
    assert waits.marks.history == OTHER
    monkeypatch.setattr(waits, "_awake", lambda: None)
    assert waits.fresh([], (), time.time() - 1_000.5, search=True).history == OTHER


def test_moments_that_are_still_to_come_are_none_once_the_clock_was_put_back() -> None:
    """None was noted before the clock had come past them again, and what had come by them was said to be 0 s old."""
    made = Marks()
    for at, lsn in ((1_000.0, 1), (30_000.0, 2), (30_001.0, 3)):
        made.note(at, lsn)
        made.confirm(LedgerEntry(lsn, {"t": {0: lsn}}))
    made.note(1_100.0, 4)
    assert (made.bound, made.wanting(4)) == (1_000.0, True)
    made.confirm(LedgerEntry(4, {"t": {0: 4}}))
    assert made.newest(lambda entry: entry.lsn <= 3) == 1_000.0
    assert made.newest(lambda entry: entry.lsn <= 4) == 1_100.0


def test_it_ends_also_while_its_thread_is_just_being_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was stopped in that moment ended with "cannot join thread before it is started"."""
    waits = Waits(cast(Pipeline, SimpleNamespace(sinks={}, name="p")), cast(Any, None))
    monkeypatch.setattr(waits, "_run", waits._stop.wait)
    start, begun = threading.Thread.start, threading.Event()

    def late(self: threading.Thread) -> None:
        if self.name == "waits":
            begun.set()
            time.sleep(0.2)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", late)
    asking = threading.Thread(target=waits._awake)
    asking.start()
    assert begun.wait(5)
    waits.close()
    asking.join()
    assert waits._thread is not None and not waits._thread.is_alive()


def test_who_waits_for_an_age_is_not_answered_by_a_moment_that_is_still_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Waits(cast(Pipeline, SimpleNamespace(name="p")), cast(Any, None))
    now = time.time()
    waits.marks.seen(Look(HERE, Standing({}, 100, 100), now + 3_600))
    waits.marks.confirm(LedgerEntry(100, {}))
    monkeypatch.setattr(waits, "_awake", lambda: None)
    assert waits.fresh([], (), 10.0, search=True).lsn is None, "it waits for what is committed now"
    seen = SimpleNamespace(
        hold=None,
        generations=[1],
        well=lambda _: True,
        open=lambda _: False,
        reach=lambda *_: SimpleNamespace(there=True),
    )
    monkeypatch.setattr(waits, "_sight", lambda _: seen)
    note = SinkNote(now + 3_600, now, {1: {"main": FlowNote(now + 3_600, 0, now)}})
    monkeypatch.setattr(of_waits, "read_sink_note", lambda *_: note)
    assert waits.as_of("s", urge=False)[0] is None


def test_who_waits_while_a_table_is_read_is_answered_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topics' ends that were looked at first do not tell of its topic: they are looked at again, now and then."""
    flow = FlowSeen("running", None, ["t"], {"t": {0: 5}})
    place: Any = SimpleNamespace(look=lambda: Seen((1,), {1: {"main": flow}}, {1: {}}))
    early, late = LedgerEntry(100, {}, {"t": "table t is being read"}), LedgerEntry(100, {"t": {0: 5}})
    entries, beats = [early, early, late], list[int]()
    source = SimpleNamespace(
        look=lambda _: Look(HERE, Standing({}, 100, 100), time.time()),
        entry=lambda *_: entries.pop(0),
        beat=lambda: beats.append(1),
    )
    refresher = SimpleNamespace(ask=lambda *_, **__: 1, done=lambda *_, **__: True, step=lambda: None)
    quiet = SimpleNamespace(judge=lambda *_: None)
    servers: Any = SimpleNamespace(source=source, places={"s": place}, letters=quiet, refresher=refresher)
    waits = Waits(cast(Pipeline, SimpleNamespace(source=SimpleNamespace(slot="s"))), cast(Any, None))
    wait = Wait(WriteToken("lsn", HERE, 50), ["s"])
    monkeypatch.setattr(of_waits, "AGAIN_SECONDS", 60.0)
    for _ in range(3):
        waits._step([wait], servers)
    assert len(entries) == 2 and not wait.ended.done(), "not with each look"
    assert wait.so_far().sinks["s"].reason == "table t is being read"
    monkeypatch.setattr(of_waits, "AGAIN_SECONDS", -1.0)
    for _ in range(5):
        waits._step([wait], servers)
    assert not entries and wait.ended.result(0).state == "visible"


@pytest.mark.parametrize(("generations", "known"), [((1,), False), ((2,), True)])
def test_how_old_a_sink_is_goes_by_what_row_stores_said_of_what_readers_see(
    monkeypatch: pytest.MonkeyPatch, generations: tuple[int, ...], known: bool
) -> None:
    """After a promotion what was asked of the generation before it is kept for some seconds."""
    waits = Waits(cast(Pipeline, SimpleNamespace(name="p")), cast(Any, None))
    at = time.time() - 5
    waits.marks.seen(Look(HERE, Standing({}, 100, 100), at))
    waits.marks.confirm(LedgerEntry(100, {}))
    reach = Reach(True, generations)
    seen = SimpleNamespace(hold=None, generations=(2,), open=lambda _: True)
    answered = SimpleNamespace(generations=generations, reach=lambda *_: reach)
    monkeypatch.setattr(waits, "_awake", lambda: None)
    monkeypatch.setattr(waits, "_sight", lambda _: seen)
    monkeypatch.setattr(waits._sights, "answered", lambda *_: answered)
    monkeypatch.setattr(of_waits, "read_sink_note", lambda *_: None)
    assert waits.as_of("s") == ((at, reach) if known else (None, None))


# -- what was refused -------------------------------------------------------------------------------------------------


class Letters:
    """The letters as they are read from Kafka: what has come since is there only for who follows."""

    def __init__(self) -> None:
        self.standing: list[tuple[DeadLetter, int | None]] = []
        self.read: list[tuple[DeadLetter, int | None]] = []
        self.trouble: HeadwaterError | None = None

    def told(self, _sink: str, _generations: Any, *, follow: bool) -> list[tuple[DeadLetter, int | None]]:
        if self.trouble is not None:
            raise self.trouble
        self.read = [*self.standing] if follow else self.read
        return self.read


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Letters:
    made = Letters()
    monkeypatch.setattr(writes, "RejectedWrites", lambda _pipeline: made)
    return made


def arrival(number: int) -> tuple[Wait, str, Target]:
    wait = Wait(WriteToken("transaction", HERE, number), ["search"])
    wait.targets["search"].tickets = {1: 1}
    return wait, "search", wait.targets["search"]


@pytest.mark.parametrize(
    "trouble", [KafkaUnavailable("x"), RegistryUnavailable("x"), NewerFormat("x"), ValueError("x")]
)
def test_a_letter_that_could_not_be_read_is_read_the_next_time(letters: Letters, trouble: Any) -> None:
    """A broker, or the registry, was away just then: the write was said to be visible, and it is a dead letter."""
    asked = writes.WriteLetters(cast(Pipeline, None))
    ends = cast(SourceLog, SimpleNamespace(letters_end=lambda: len(letters.standing)))
    letters.standing = [(DeadLetter("search", "v", "1", 1, "no", tx_id=1, at_ms=int(time.time() * 1000)), 1)]
    before = arrival(1)
    asked.judge([before], ends)
    assert before[2].verdict is not None and before[2].verdict[0] == "rejected"
    letters.standing.append((DeadLetter("search", "v", "2", 1, "no", tx_id=2, at_ms=int(time.time() * 1000)), 2))
    ours, letters.trouble = arrival(2), trouble
    with pytest.raises(type(trouble)):
        asked.judge([ours], ends)
    assert ours[2].tickets == {}, "it arrives once more"
    letters.trouble = None
    asked.judge([ours], ends)
    assert ours[2].verdict is not None and ours[2].verdict[0] == "rejected"


# -- refreshes --------------------------------------------------------------------------------------------------------

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [shop.*]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", tables: all}
engine: {state_dir: STATE}
"""


@pytest.mark.parametrize("search", [True, False])
def test_a_table_that_joins_a_sink_is_refreshed_and_breaks_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: bool
) -> None:
    """In the same generation: what was opened for it knew the views of its beginning, for as long as `serve` lived."""
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    generation = register_of(pipeline, "cache").generation(1)
    seen, closed = list[str](), list[object]()

    class Opened(RedisSink):
        def __init__(self, config: Any) -> None:
            self.views = config["targets"]

        def refresh(self, target: str) -> None:
            assert self.there(target)

        def there(self, target: str) -> bool:
            seen.append(target)
            return True

        def beat(self, target: str, number: int, before: int = 0) -> int | None:
            if target not in self.views:
                raise ConfigError(f"sink cache has no view {target}")
            return 7

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr("operations.freshness.refresh.open_target", Opened)
    refresher = Refresher(pipeline)

    def refreshed() -> list[str]:
        seen.clear()
        ticket = refresher.ask("cache", 1, search=search)

        def ended() -> bool:
            refresher.step()
            assert refresher.error("cache", 1, search=search) is None
            return refresher.done("cache", 1, ticket, search=search)

        assert poll(ended, bool, 5.0, 0.005)
        return list(seen)

    generation.note_views(["old"])
    generation.note_beats({"old": 7})
    assert refreshed() == refreshed() == ["old"] and not closed
    generation.note_beats({"old": 7, "new": 7})  # `run` notes the views first; this look came in between
    assert refreshed() == ["old"]
    generation.note_views(["new"])
    assert refreshed() == ["new", "old"] and len(closed) == 1
    refresher.close()
    assert len(closed) == 2
