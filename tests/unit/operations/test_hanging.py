"""A transaction in the log that does not end is told as what it is, and not as a sink's server that hangs."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import KafkaUnavailable
from cdc.pipeline import load
from operations.freshness.hanging import LOOK_SECONDS, STANDS_SECONDS, Hanging, hidden
from operations.freshness.keeper import STILL_SECONDS, Keeper, _Before
from operations.freshness.marks import Marks
from operations.freshness.note import FlowNote
from operations.freshness.place import FlowPlace
from tests.support.lone_cache import FILE

Ends = dict[str, dict[int, int]]


def looked(hanging: Hanging, written: Ends, readable: Ends, now: float) -> str | None:
    hanging.look(lambda: (written, readable), now)
    return hanging.of(["t", "u"], now)


def stands(hanging: Hanging, written: Ends, readable: Ends, since: float) -> str | None:
    """What is told after it was seen to stand for long enough, look by look."""
    for at in range(int(since), int(since + STANDS_SECONDS) + 1, int(LOOK_SECONDS)):
        told = looked(hanging, written, readable, float(at))
    return told


def test_a_partition_whose_end_stands_below_what_is_written_is_named() -> None:
    hanging, written = Hanging(), {"t": {0: 9, 1: 9}}
    assert looked(hanging, written, {"t": {0: 9, 1: 5}}, 0.0) is None, "it may be about to end"
    assert stands(hanging, written, {"t": {0: 9, 1: 5}}, LOOK_SECONDS) == "t, partition 1"
    assert looked(hanging, written, {"t": {0: 8, 1: 5}}, STANDS_SECONDS + 2 * LOOK_SECONDS) == "t, partition 1"
    assert hanging.of(["u"], STANDS_SECONDS) is None
    assert looked(hanging, {"t": {0: 9, 1: 20}}, {"t": {0: 9, 1: 6}}, 2 * STANDS_SECONDS) is None, "it gets on"
    assert looked(hanging, written, {"t": {0: 9, 1: 9}}, 4 * STANDS_SECONDS) is None
    assert hanging._since == {}


def test_brokers_are_asked_now_and_then_and_nothing_is_known_once_all_get_on() -> None:
    hanging, asked = Hanging(), list[int]()

    def ask() -> tuple[Ends, Ends]:
        asked.append(1)
        return {"t": {0: 9}}, {"t": {0: 5}}

    for at in range(int(STANDS_SECONDS) + 1):
        hanging.look(ask, float(at))
    assert len(asked) == 1 + STANDS_SECONDS / LOOK_SECONDS and hanging.of(["t"], STANDS_SECONDS)
    hanging.forget()
    assert hanging.of(["t"], STANDS_SECONDS) is None


def test_a_transaction_that_was_seen_before_brokers_fell_silent_does_not_hang_for_that() -> None:
    """After 90 s of silence whichever had been under way was to be aborted; then at the brokers' first answer."""
    hanging = Hanging()

    def silent() -> tuple[Ends, Ends]:
        raise KafkaUnavailable("no answer")

    for at in (0.0, LOOK_SECONDS):
        assert looked(hanging, {"t": {0: 9}}, {"t": {0: 5}}, at) is None
    for at in (2 * LOOK_SECONDS, 2 * STANDS_SECONDS):
        with pytest.raises(KafkaUnavailable):
            hanging.look(silent, at)
        assert hanging.of(["t"], at) is None
    assert looked(hanging, {"t": {0: 9}}, {"t": {0: 5}}, 3 * STANDS_SECONDS) is None
    assert stands(hanging, {"t": {0: 9}}, {"t": {0: 5}}, 3 * STANDS_SECONDS + LOOK_SECONDS) == "t, partition 0"
    with pytest.raises(KafkaUnavailable):
        hanging.look(silent, 6 * STANDS_SECONDS)
    assert hanging.of(["t"], 6 * STANDS_SECONDS), "what was seen to hang nobody has ended"
    assert looked(hanging, {"t": {0: 9}}, {"t": {0: 5}}, 7 * STANDS_SECONDS) == "t, partition 0"


def test_brokers_that_answer_only_now_and_then_let_one_stand_in_the_end() -> None:
    """Each of their answers began the time anew."""
    hanging, looks = Hanging(), int(STANDS_SECONDS / LOOK_SECONDS)
    told = [looked(hanging, {"t": {0: 9}}, {"t": {0: 5}}, at * 3 * LOOK_SECONDS) for at in range(looks + 1)]
    assert told == [None] * looks + ["t, partition 0"], "only what was seen counts"


def test_what_to_do_is_told_with_the_brokers_own_tool() -> None:
    cause, remedy = hidden("p.public.t, partition 3")
    assert "topic p.public.t, partition 3" in cause
    assert "find-hanging --topic p.public.t --partition 3" in remedy and "abort --topic p.public.t" in remedy


@pytest.mark.parametrize(("late", "behind", "told"), [(True, 4, "t, partition 0"), (False, 4, None), (True, 0, None)])
def test_run_looks_for_one_while_a_flow_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool, behind: int, told: str | None
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.format(folder=tmp_path / "state"))
    noting, place, now = Keeper(load(path)), FlowPlace(["t"], {"t": {0: 5}}, None, False, 5), time.time()
    as_of = now - STILL_SECONDS - 1 if late else now
    noting._before["cache", 1, "main"] = _Before(FlowNote(as_of, behind, now), place)
    asked: list[set[str]] = []

    def both_ends(topics: set[str]) -> tuple[Ends, Ends]:
        asked.append(topics)
        return {"t": {0: 9}}, {"t": {0: 5}}

    source: Any = SimpleNamespace(both_ends=both_ends)
    looks = [100.0 + seconds for seconds in range(0, int(STANDS_SECONDS) + 1, int(LOOK_SECONDS))]
    for at in looks:
        monkeypatch.setattr(
            "operations.freshness.keeper.time", SimpleNamespace(monotonic=lambda at=at: at, time=time.time)
        )
        noting._see_hanging(source, now)
    assert asked == ([{"t"}] * len(looks) if told else [])
    monkeypatch.setattr(Marks, "last", lambda _self: None)
    assert noting._advanced("cache", 1, "main", place, now).uncommitted == told
