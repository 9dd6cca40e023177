"""Too late is who may have missed a delete, and nobody else: whatever stood still, whether or not `run` was alive."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import KafkaError
from cdc.log.ends import lacking
from spark import log_gaps as gaps
from spark import shorter
from spark.disk.status import FlowStatus
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from spark.unread import Look, Mark, Unread
from tests.support.forgetful import DAY, HOUR, RETENTION, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, monkeypatch)
    made.write()
    made.sleep(DAY)
    assert made.behind == 0 and made.state == "running"
    return made


def warning(world: World) -> str | None:
    found = FlowStatus.read(world.flow.folder)
    assert found is not None
    return found.warning


@pytest.mark.parametrize("holds", [False, True], ids=["fails-again-and-again", "waits-in-one-batch"])
def test_a_sink_that_is_dead_for_too_long_while_run_is_alive(world: World, holds: bool) -> None:
    world.sink, world.holds = False, holds
    world.write()
    world.sleep(3 * DAY)
    assert warning(world) is None and not world.refused
    world.sleep(DAY)
    assert "has not caught up for" in (warning(world) or "")
    world.sleep(6 * DAY)
    assert "has not caught up for 7" in world.refused and "headwater rebuild FILE s --auto" in world.refused
    world.sink = True
    world.sleep(DAY)
    assert world.missed == 0 and world.behind == 1


def test_a_sink_that_comes_back_in_time(world: World) -> None:
    world.sink = False
    world.write()
    world.sleep(6 * DAY)
    world.sink = True
    world.sleep(DAY)
    assert (world.refused, world.behind, world.missed, warning(world)) == ("", 0, 0, None)


def test_weeks_without_a_change_are_no_reason(world: World) -> None:
    world.sleep(60 * DAY)
    assert warning(world) is None
    world.write(5)
    world.sleep(8 * HOUR)
    assert (world.refused, world.behind) == ("", 0)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_process_that_was_away_for_weeks_in_which_nothing_was_written(world: World, compacted: bool) -> None:
    world.end()
    world.sleep(30 * DAY)
    world.start()
    world.sleep(8 * HOUR)
    assert world.refused == ""
    world.end()
    world.sleep(30 * DAY)
    world.write()  # just before the start: certain if the record is there, and else not
    world.compacted = compacted
    world.start()
    world.sleep(8 * HOUR)
    assert bool(world.refused) == compacted


def test_a_process_that_was_away_for_too_long(world: World) -> None:
    world.end()
    world.write()
    world.sleep(8 * DAY)
    world.write()
    world.start()
    world.sleep(DAY)
    assert "has not caught up for 8" in world.refused and world.missed == 0


def test_brokers_that_were_away_for_weeks(world: World) -> None:
    world.kafka = False
    world.sleep(30 * DAY)
    assert not world.refused
    world.kafka = True
    world.sleep(8 * HOUR)
    world.write()
    world.sleep(8 * HOUR)
    assert (world.refused, world.behind) == ("", 0)


def test_a_new_flow_whose_first_batch_waits_for_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has written a part of its batch, maybe: what was deleted since might stay."""
    world = World(tmp_path, monkeypatch)
    world.sink = False
    world.write()
    world.sleep(DAY)
    world.end()
    world.sleep(7 * DAY)
    world.sink = world.compacted = True
    world.start()
    world.sleep(DAY)
    assert "has not caught up for" in world.refused and world.missed == 0


def test_a_flow_that_begins_a_new_life_is_not_late_for_its_old_one(world: World) -> None:
    world.end()
    world.write()
    world.sleep(30 * DAY)
    shutil.rmtree(world.flow.checkpoint)
    for name in ("offsets", "commits"):
        (world.flow.checkpoint / name).mkdir(parents=True)
    world.compacted = True
    world.start()
    world.sleep(8 * HOUR)
    assert world.refused == ""


def test_a_machine_that_slept_and_woke_up_reading(world: World) -> None:
    world.sink, world.holds = False, True
    world.write()
    world.sleep(8 * HOUR)
    world.sink = True
    world.freeze(10 * DAY)
    world.sleep(8 * HOUR)
    assert world.missed and "and has read on since" in world.refused


def test_a_checkpoint_that_was_put_back_is_as_old_as_it_was_then(world: World) -> None:
    """As a row store that has lost writes makes it (spark/join/health.py)."""
    world.sleep(5 * DAY)
    world.write()
    world.sleep(5 * DAY)
    world.write()
    world.sleep(8 * HOUR)
    world.end()
    checkpoint = world.flow.checkpoint
    for batch in (2, 1):
        (checkpoint / "commits" / str(batch)).unlink()
        (checkpoint / "offsets" / str(batch)).unlink()
    world.compacted = True
    world.start()
    world.sleep(8 * HOUR)
    assert not world.refused  # batch 0 was the newest until five days ago
    world.end()
    world.sleep(5 * DAY)
    (checkpoint / "commits" / "1").unlink()
    world.start()
    world.sleep(8 * HOUR)
    assert "has not caught up for" in world.refused


def test_a_flow_that_an_earlier_version_has_run_is_as_old_as_its_newest_batch(world: World) -> None:
    world.end()
    (world.flow.folder / "unread.json").unlink()
    world.sleep(6 * DAY)
    world.write()
    world.compacted = True
    world.start()
    world.sleep(8 * HOUR)
    assert "has not caught up for" not in world.refused and world.behind == 0


@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_moment_of_a_clock_that_is_ahead_does_not_hide_a_missed_delete(world: World, begun_anew: bool) -> None:
    """`since` was written as a month from now, and nothing was too late before that month was over."""
    world.now += 30 * DAY
    world.work()
    world.now -= 30 * DAY
    if begun_anew:
        world.end()
        world.start()
    world.sleep(HOUR)
    world.sink = False
    world.write()
    world.sleep(5 * DAY)
    assert "has not caught up for" in (warning(world) or "")
    world.sleep(3 * DAY)
    assert "has not caught up for 7" in world.refused and world.missed == 0


@pytest.mark.parametrize("looked", [False, True])
def test_a_batch_that_ended_under_a_clock_that_is_ahead_was_not_too_late(world: World, looked: bool) -> None:
    """Its file is of next month: it would seem to have read on when it was too late."""
    world.write()
    world.now += 30 * DAY
    assert world.process is not None
    query: Any = world.process.running[0].query
    query.work()  # the runner looks at the log afterwards, or not before the clock is right
    if looked:
        world.process.step()
    world.now -= 30 * DAY
    world.sleep(DAY)
    world.end()
    world.start()
    world.sleep(DAY)
    assert world.refused == "" and world.behind == 0


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_missed_and_nobody_is_refused_for_nothing(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random faults of random lengths: a delete is missed never; refused is only who was behind for nearly so long."""
    chance, world = random.Random(seed), World(tmp_path, monkeypatch)
    behind_since: float | None = None
    world.sleep(HOUR)
    for _ in range(50):
        if chance.random() < 0.6:
            world.write(chance.randint(1, 3))
        match chance.choice(["sink", "back", "back", "kafka", "end", "start", "start", "nothing", "nothing"]):
            case "sink":
                world.sink, world.holds = False, chance.random() < 0.5
            case "back":
                world.sink = world.kafka = True
            case "kafka":
                world.kafka = False
            case "end":
                world.end()
            case "start" if world.process is None:
                world.start()
        world.compacted = chance.random() < 0.5
        world.sleep(chance.choice([HOUR, DAY, 3 * DAY]))
        assert world.missed == 0
        if world.process is not None and world.refused:
            assert behind_since is not None and world.now - behind_since > RETENTION - 4 * DAY
            return
        behind_since = (behind_since or world.now) if world.behind or not (world.kafka and world.process) else None


def test_looks_are_kept_so_far_apart_that_a_file_stays_small() -> None:
    unread = Unread((Mark(0, 0.0),))
    for at in range(1000):
        unread = unread.after(0, {"t": {0: 5}}, Look(float(at), {"t": {0: 6 + at}}), 100.0)
    assert len(unread.looks) == 10
    assert Unread.from_json(unread.to_json()) == unread
    reached = unread.after(3, {"t": {0: 506}}, Look(1000.0, {"t": {0: 2000}}), 100.0)
    assert (reached.since, reached.marks[-1]) == (500.0, Mark(3, 500.0))
    assert len(reached.looks) == 5  # four that were not reached, and the newest


def test_marks_of_batches_that_can_come_back_are_kept_and_one_before_them() -> None:
    unread = Unread((Mark(-1, 0.0),))
    for batch in range(500):
        unread = unread.known(batch, float(batch))
    assert len(unread.marks) == 62 and unread.marks[0].batch == 438
    back = unread.put_back(445)
    assert back is not None and back.since == 445.0
    assert unread.put_back(100) is None


def test_a_topic_that_is_gone_does_not_keep_the_others_from_being_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ends:
        silence = ""

        def __init__(self, *_: object) -> None:
            pass

        def ends(self, topics: Sequence[str]) -> dict[str, dict[int, int]]:
            if "gone" in topics:
                raise KafkaError("topic gone does not exist")
            return {topic: {0: 9} for topic in topics}

        def close(self) -> None:
            pass

    monkeypatch.setattr(gaps, "LogEnds", Ends)
    reading = Reading("", {}, None, tombstone_seconds=1)
    here, gone = (Flow("f", FlowSpec("s", {}, {name: ()}, {}, {}, {}), reading, tmp_path) for name in ("here", "gone"))
    watch = gaps.LogWatch()
    try:
        began = time.time()
        while (look := watch.look(here)) is None:
            assert watch.look(gone) is None
            assert time.time() - began < 10
            time.sleep(0.01)
    finally:
        watch.close()
    assert look.ends == {"here": {0: 9}} and began <= look.at <= time.time()


def test_a_look_at_the_log_is_of_before_brokers_were_asked_that_take_their_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written while they answer may lie behind the ends that they tell: it would be said to be read."""
    world.end()
    before, bounds = world.now, world.bounds

    def slow(topics: object) -> Any:
        found = bounds(topics)
        world.now += 100
        return found

    monkeypatch.setattr(world, "bounds", slow)
    gaps.check_log(world.flow)
    assert gaps.unread_since(world.flow.folder) == before == world.now - 100
    monkeypatch.setattr(world, "ends", lambda topics: slow(topics)[1], raising=False)
    watch, before = gaps.LogWatch(), world.now
    watch._topics["t"] = ("", {})
    watch._look()
    assert watch._newest == Look(before, {"t": {0: 1}}) and before == world.now - 100


# -- a log that has become shorter -------------------------------------------------------------------------------------


def test_a_log_that_ends_before_what_a_flow_has_read_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's volume was put back to an older copy: what came to stand in the lost places was skipped, and not told."""
    monkeypatch.setattr(shorter, "SHORTER_SECONDS", 0.0)
    world.write(9)
    world.sleep(DAY)
    world.end()
    del world.written[6:]
    world.start()
    world.sleep(HOUR)
    assert "s/main has read t/0 up to 10, and it ends at 6" in world.refused
    assert "headwater resnapshot FILE --all" in world.refused and "headwater rebuild FILE s --auto" in world.refused
    world.end()
    world.write(9)  # read again, it has grown past the flow's place
    world.start()
    world.sleep(HOUR)
    assert "s/main has read t/0 up to 10, and it ended at 6" in world.refused and world.missed == 0
    world.end()
    (world.flow.folder / shorter.SHORTER).unlink()  # whoever has put back the right data says so
    world.start()
    world.sleep(DAY)
    assert (world.refused, world.behind) == ("", 0)


def test_brokers_that_tell_older_ends_for_a_minute_have_lost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were started again one after the other; what is believed then stands until somebody removes it."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    ends = lambda: ({"t": {0: 0}}, {"t": {0: 10 if now[0] > 60 else 6}})  # noqa: E731
    assert shorter.whole_bounds(ends, {"t": {0: 10}}, "s", "")[1] == {"t": {0: 10}}


def test_a_batch_that_was_planned_in_what_the_log_has_lost_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shorter, "SHORTER_SECONDS", 0.0)
    world.sink = False
    world.write(9)
    world.sleep(HOUR)
    world.end()
    assert world.behind == 9
    del world.written[6:]
    world.start()
    world.sleep(HOUR)
    assert "has read t/0 up to 10, and it ends at 6" in world.refused


def test_ends_of_before_a_broker_has_recovered_are_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that comes back from a crash tells such ends for a moment: no pipeline may stop for that."""
    monkeypatch.setattr(shorter, "AGAIN_SECONDS", 0.0)
    world.write(9)
    world.sleep(DAY)
    world.end()
    told, bounds = [3, 9], world.bounds
    monkeypatch.setattr(world, "bounds", lambda _: ({"t": {0: 0}}, {"t": {0: told.pop(0)}}) if told else bounds(_))
    world.start()
    world.sleep(HOUR)
    assert (world.refused, world.state, told) == ("", "running", [])


def test_a_topic_that_a_flow_writes_no_more_may_have_been_made_anew(world: World) -> None:
    offsets = world.flow.checkpoint / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace('{"t"', '{"former": {"0": 99}, "t"'))
    assert shorter.furthest(world.flow, *gaps.committed_offsets(world.flow.checkpoint)) == {"t": {0: 1}}


def test_who_has_read_what_comes_next_lacks_nothing() -> None:
    assert lacking({"t": {0: 5, 1: 9}}, {"t": {0: 5, 1: 8}, "other": {0: 3}}) == []
    assert lacking({"t": {0: 5, 1: 9}}, {"t": {0: 5, 1: 10, 2: 7}}) == [("t", 1, 10, 9)]
