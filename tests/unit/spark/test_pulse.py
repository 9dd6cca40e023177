"""A batch that takes long is seen to get on, as far as it does."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from spark import pulse
from spark.pulse import LOOK_SECONDS, QUIET_SECONDS, Pulse, Turns, sign_of
from spark.reading.source import SOURCE


def test_a_batch_that_takes_long_is_looked_at_now_and_then() -> None:
    now, asked = [0.0], list[float]()
    one = Pulse(lambda: now[0])

    def tasks(every: float) -> int:
        asked.append(now[0])
        return int(now[0] // every)

    while now[0] < 200:
        one.look(1, lambda: tasks(30.0))
        now[0] += 0.5
    assert asked[0] == QUIET_SECONDS and asked[1] - asked[0] == LOOK_SECONDS and len(asked) < 40
    assert 5 <= one.count <= 6  # a task ends every half minute
    count = one.count
    while now[0] < 400:
        one.look(1, lambda: 7)
        now[0] += 0.5
    assert one.count <= count + 1  # it hangs


def test_quick_batches_and_idle_queries_cost_nothing() -> None:
    now, asked = [0.0], list[float]()
    one = Pulse(lambda: now[0])
    for batch in range(100):
        one.look(batch, lambda: asked.append(now[0]))
        now[0] += 5
    assert asked == [] and one.count == 0
    # A query that waits for records has no batch at work, and one that begins has not got on by that.
    for sign, count in ((None, 0), ("a", 0), (None, 0), ("a", 0), (None, 0), ("b", 1), ("b", 1)):
        now[0] += QUIET_SECONDS
        assert one.look(99, lambda sign=sign: sign) == count  # type: ignore[misc]
    one.look(100, lambda: None)
    now[0] += QUIET_SECONDS
    assert one.look(100, lambda: "c") == 1  # another batch, which may hang from its beginning on


def test_who_waits_for_its_turn_gets_on_as_its_holder_does() -> None:
    turns, has, done = Turns(), threading.Event(), threading.Event()

    def hold() -> None:
        with turns.turn("a"):
            has.set()
            done.wait(10)

    def wait() -> None:
        with turns.turn("b"):
            pass

    holder, waiter = threading.Thread(target=hold), threading.Thread(target=wait)
    holder.start()
    assert has.wait(10)
    waiter.start()
    while "b" not in turns._waiting:
        pass
    assert (turns.of("a"), turns.of("b"), turns.of("c")) == ("a", "a", "c")
    done.set()
    for thread in (holder, waiter):
        thread.join(10)
    assert turns.of("b") == "b"


def test_who_is_told_to_end_waits_for_no_turn_and_holds_up_nobody() -> None:
    """Its `stop` lasted as long as another sink's merge, and with it whatever `run` had to do."""
    turns, has, done = Turns(), threading.Event(), threading.Event()
    had: list[str] = []

    def hold() -> None:
        with turns.turn("a"):
            has.set()
            done.wait(10)

    def wait(group: str) -> None:
        try:
            with turns.turn(group):
                had.append(group)
        except RuntimeError as error:
            had.append(f"{group}: {error}")

    holder = threading.Thread(target=hold)
    waiters = [threading.Thread(target=wait, args=[group]) for group in ("b", "c")]
    holder.start()
    assert has.wait(10)
    for group, waiter in zip("bc", waiters, strict=True):
        waiter.start()
        while group not in turns._waiting:
            pass
    turns.give_up(SimpleNamespace(runId="b"))
    waiters[0].join(10)
    assert had == ["b: it was told to end while it waited for another's merge"]
    wait("b")  # also one that comes a moment later
    assert len(had) == 2 and turns._waiting == ["c"]
    done.set()
    for thread in (holder, waiters[1]):
        thread.join(10)
    assert had[2] == "c"


def test_who_waits_in_java_for_one_that_waits_here_gets_on_as_that_ones_holder_does(monkeypatch: Any) -> None:
    seen: list[set[str]] = []
    monkeypatch.setattr(pulse, "_sign", lambda _spark, groups: seen.append(groups) or "sign")
    monkeypatch.setattr(pulse, "turn_ahead", lambda _spark, _turns, group: {"r": "s"}.get(group, group))
    monkeypatch.setattr(pulse.MERGES, "of", lambda group: {"s": "fill x"}.get(group, group))
    assert sign_of(cast(Any, None), SimpleNamespace(status={}, runId="r")) == "sign" and seen == [{"fill x"}]


def test_only_the_own_jobs_of_a_query_at_work_are_looked_at(monkeypatch: Any) -> None:
    seen: list[set[str]] = []
    monkeypatch.setattr(pulse, "_sign", lambda _spark, groups: seen.append(groups) or "sign")
    spark = cast(Any, SimpleNamespace(conf={SOURCE: "kafka"}))
    query = SimpleNamespace(status={"isTriggerActive": False}, runId="r")
    assert sign_of(spark, query) is None and seen == []
    query.status = {"isTriggerActive": True}
    assert sign_of(spark, query) == "sign" and seen == [{"r"}]
    query.groups = ["fill x", "r"]
    assert sign_of(spark, query) == "sign" and seen[1] == {"fill x", "r"}
    assert sign_of(spark, SimpleNamespace()) is None  # it has ended, or Java has
