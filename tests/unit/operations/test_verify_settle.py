"""What is called a difference: rows that stood still while the sink passed them, and no row that has only moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.records.position import pack
from connectors.database.visibility import Visible
from operations.holding import Holds
from operations.verify import looks, settle
from operations.verify.buckets import Keys
from operations.verify.comparison import Comparison, marked
from operations.verify.settle import Settler


class World:
    """Rows with numbers as digests; each look at the truth is one step of time.

    Args:
        truth: key -> what its row is at each look; the last stays.
        held: key -> what the sink holds.
        passes: for each round whether the sink is seen to pass the snapshot in time.
        versions: key -> that of what the sink holds; the log grows by 10 with each question for its position.
    """

    def __init__(
        self,
        truth: Mapping[str, Sequence[int]],
        held: Mapping[str, int],
        passes: Sequence[bool],
        versions: Mapping[str, int] | None = None,
    ) -> None:
        self.truth, self.held, self.passes = truth, held, list(passes)
        self.versions, self.log = versions or {}, 0
        self.looks, self.clock = 0, 0.0

    stays = False
    # What can be seen; and key -> the transaction of its newest record.
    visible = Visible(100, frozenset())
    records: Mapping[str, int | None] = {}
    read, asked = 0, 0
    seen: Visible | None = None
    # Types that the view shows; events that lie in the topic of all others; and what was asked of that.
    event_types: tuple[str, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    asked_for: tuple[str, ...] = ()
    expires = False
    # What a cache has lost before its time, and of what it has no version; whether that may have expired as well; and
    # how often it was asked for it.
    evicted: frozenset[str] = frozenset()
    unversioned: frozenset[str] = frozenset()
    outlived = False
    asked_of_expired = 0

    def expired(self, keys: Sequence[str], *, unversioned: bool) -> set[str]:
        self.asked_of_expired += 1
        assert not self.held.keys() & set(keys)
        return set(keys) - self.evicted - (frozenset() if unversioned else self.unversioned)

    def routed(self, keys: Sequence[str]) -> set[str]:
        self.asked_for += tuple(sorted(keys))
        return self.elsewhere & set(keys)

    def looked(self) -> Visible:
        self.asked += 1
        return replace(self.visible, end=self.visible.end + self.asked)

    def newest(self, keys: Sequence[str]) -> dict[str, int | None]:
        self.read += 1
        return {key: self.records[key] for key in keys if key in self.records}

    def settler(self, folder: Path) -> Settler:
        opened = SimpleNamespace(pipeline=SimpleNamespace(source=None), form=lambda _view: "document")
        holding = SimpleNamespace(opened=opened, get=self._get, expired=self.expired)
        frontier = SimpleNamespace(wait=self._wait)
        view = SimpleNamespace(event_types=self.event_types)
        return Settler(view, holding, frontier, None, folder, stays=self.stays, expires=self.expires)  # type: ignore[arg-type]

    def _wait(self, *_: object) -> Mapping[str, Mapping[int, int]] | None:
        self.clock += 0.6
        return {} if self.passes.pop(0) else None

    def _get(self, keys: Sequence[str]) -> dict[str, Holds]:
        return {key: Holds(self.versions.get(key, 1), digest(self.held[key])) for key in keys if key in self.held}

    def position(self, _connection: object) -> int:
        self.log += 10
        return self.log

    def pass_by(self, seconds: float) -> None:
        self.clock += seconds

    def now(self, keys: Sequence[str]) -> Iterator[tuple[str, Mapping[str, bytes]]]:
        at = self.looks
        self.looks += 1
        for key in keys:
            values = self.truth.get(key, ())
            if values:
                yield key, {"document": digest(values[min(at, len(values) - 1)])}


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Settle keys in a world; the comparison, and the keys that are certainly different."""

    def done(world: World, wait: float = 0.0) -> tuple[Comparison, int]:
        @contextmanager
        def snapshot(_source: object) -> Iterator[None]:
            yield None

        monkeypatch.setattr(settle, "visible_now", lambda *_: world.looked())
        monkeypatch.setattr(settle, "newest_transactions", lambda _pipeline, _view, keys: world.newest(keys))
        monkeypatch.setattr(settle, "routed_elsewhere", lambda _pipeline, _view, keys: world.routed(keys))
        monkeypatch.setattr(settle, "next_number", lambda _: 1_000)
        monkeypatch.setattr(settle, "versions_may_be_gone", lambda _: world.outlived)
        monkeypatch.setattr(looks, "snapshot", snapshot)
        monkeypatch.setattr(looks, "wal_position", world.position)
        monkeypatch.setattr(looks, "expected", lambda _view, _connection, _spark, keys, **_: keys)
        monkeypatch.setattr(looks, "digests", lambda _view, keys, _forms: world.now(keys))
        clock = SimpleNamespace(monotonic=lambda: world.clock, sleep=world.pass_by)
        monkeypatch.setattr(settle, "time", clock)
        (tmp_path / str(id(world))).mkdir()
        keys = Keys(tmp_path / str(id(world)) / "asked")
        for key in sorted({*world.truth, *world.held}):
            keys.add(marked("changed", key))
        keys.flush()
        result = Comparison("v", expected=10)
        settler = world.settler(tmp_path / str(id(world)))
        certain = settler.settle(result, keys, wait)
        world.seen = settler.seen
        return result, certain.count

    return done


def test_a_row_that_stood_still_while_the_sink_passed_it_differs(settled: Any) -> None:
    result, certain = settled(World({"a": [1], "b": [2]}, {"a": 9, "b": 2}, [True]))
    assert (result.changed, result.moving, result.caught_up, certain) == (["a"], [], True, 1)


def test_an_event_stays_when_its_row_has_gone_and_any_other_document_is_too_much(settled: Any) -> None:
    world = World({"a": [1]}, {"a": 9, "gone": 2}, [True])
    result, certain = settled(world)
    assert (result.changed, result.extra, certain) == (["a"], ["gone"], 2)
    world = World({"a": [1]}, {"a": 9, "gone": 2}, [True])
    world.stays = True
    result, certain = settled(world)
    assert (result.changed, result.extra, certain) == (["a"], [], 1)


def test_a_row_that_moved_is_not_called_wrong(settled: Any) -> None:
    result, certain = settled(World({"a": [1, 2]}, {"a": 9}, [True]))
    assert (result.differences, result.moving, result.caught_up, certain) == (0, ["a"], True, 0)


def test_of_a_sink_that_never_caught_up_all_that_differs_is_told(settled: Any) -> None:
    result, certain = settled(World({"a": [1], "b": [1, 2]}, {"a": 9, "b": 9}, [False]))
    assert (result.changed, result.moving, result.caught_up, certain) == (["a", "b"], [], False, 2)


def test_a_last_round_without_time_proves_nothing_against_rows_that_have_moved(settled: Any) -> None:
    """Under a steady writer: `rebuild --auto` said that an index differed because its hottest rows were on the way."""
    world = World(
        {"hot": [1, 2, 3, 4], "late": [1, 2, 2, 2], "wrong": [5]}, {"hot": 9, "late": 9, "wrong": 6}, [True, False]
    )
    result, certain = settled(world, wait=1.5)
    assert sorted(result.moving) == ["hot", "late"] and result.changed == ["wrong"]
    assert (result.undecided, result.caught_up, certain) == (2, True, 1)


def test_rows_that_never_stand_still_are_not_waited_for(settled: Any) -> None:
    world = World({"hot": range(100), "wrong": [5]}, {"hot": 1000, "wrong": 6}, [True] * 3)
    result, certain = settled(world, wait=1_000.0)
    assert (result.moving, result.changed, result.caught_up, certain) == (["hot"], ["wrong"], True, 1)
    assert not world.passes


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_a_key_that_came_and_went_between_two_looks_is_not_called_wrong(settled: Any, epoch: int) -> None:
    """It is absent from both truths, and the sink, half a minute behind, still has it."""
    versions = {"again": pack(epoch, 15), "forged": pack(epoch, 1 << 40), "ghost": pack(epoch, 1)}
    world = World({"again": []}, {"again": 7, "ghost": 7, "forged": 7}, [True] * 3, versions)
    result, certain = settled(world)
    assert sorted(result.extra) == ["forged", "ghost"] and result.moving == ["again"]
    assert (result.differences, certain) == (2, 2)


def test_a_row_whose_newest_record_can_not_be_seen_yet_is_not_called_wrong(settled: Any) -> None:
    """Inserted, and its commit waits for a standby: absent from both truths, and the sink is right to have it."""

    def world() -> World:
        held = {"hidden": 7, "ghost": 7, "read": 7, "newer": 7}
        made = World({"hidden": [], "deleted": [3], "lost": [3]}, held, [True] * 3)
        made.records = {"hidden": 8, "ghost": 9, "read": None, "newer": 111, "deleted": 8}
        return made

    quiet = world()
    assert settled(quiet)[1] == 6 and quiet.read == 0, "the log is read where something was under way"
    moves = world()
    moves.visible = Visible(100, frozenset({8}))
    result, certain = settled(moves)
    assert (result.unseen, result.invisible, result.moving) == (["deleted", "hidden", "newer"], 3, [])
    assert (sorted(result.extra), result.missing, certain) == (["ghost", "read"], ["lost"], 3)


def test_what_can_not_be_seen_yet_is_no_difference_of_a_sink_that_never_caught_up_either(settled: Any) -> None:
    world = World({"hidden": [], "hot": [1, 2], "wrong": [5]}, {"hidden": 7, "hot": 9, "wrong": 6}, [False])
    world.records, world.visible = {"hidden": 8, "wrong": 7}, Visible(100, frozenset({8}))
    result, certain = settled(world)
    assert (result.unseen, result.invisible, result.extra) == (["hidden"], 1, [])
    assert (sorted(result.changed), result.caught_up, certain) == (["hot", "wrong"], False, 2)


def test_what_the_first_look_saw_is_kept_for_who_repairs(settled: Any) -> None:
    """What can be seen by the last one may be what the first called missing."""
    world = World({"wrong": [1], "hot": range(100)}, {"wrong": 9, "hot": 1000}, [True] * 3)
    settled(world, wait=1_000.0)
    assert world.asked == 3 and world.seen == Visible(101, frozenset())


def test_an_event_of_before_its_type_had_a_topic_is_not_missing(settled: Any) -> None:
    """The row is kept, the event lies in the topic of all others, and the view reads its type's: for good."""

    def world(*passes: bool) -> World:
        made = World({"old": [1], "lost": [2], "wrong": [3], "hot": [4, 5, 6]}, {"wrong": 9}, passes)
        made.event_types, made.elsewhere = ("order",), frozenset({"old"})
        return made

    known = world(True)
    result, certain = settled(known)
    assert (result.missing, result.changed, result.moving, certain) == (["lost"], ["wrong"], ["hot"], 2)
    assert (result.expected, known.asked_for) == (9, ("lost", "old")), "it was not to be expected"
    late = world(False, False)
    result, certain = settled(late, wait=0.5)
    assert (result.missing, result.expected, result.caught_up, certain) == (["lost", "hot"], 9, False, 3)
    assert len(late.asked_for) == 2, "the log is read once, when it is told what differs"
    forgets = world(True)
    forgets.expires = True
    result, certain = settled(forgets)
    assert (result.doubted, result.missing, result.expected, certain) == (["lost", "hot"], [], 9, 1), (
        "nor has it expired"
    )
    whole = world(True)
    whole.event_types = ()
    assert settled(whole)[0].missing == ["lost", "old"] and whole.asked_for == ()


def test_what_may_have_expired_is_neither_missing_nor_put_back(settled: Any) -> None:
    """Verify called every document of a cache missing that is older than its ttl, and a repair gave each a new one."""

    def world(*passes: bool) -> World:
        made = World({"gone": [1], "wrong": [2], "moves": [3, 4]}, {"wrong": 9, "ghost": 9}, passes)
        made.expires = True
        return made

    result, certain = settled(world(True))
    assert (result.doubted, result.doubtful, result.missing) == (["gone", "moves"], 2, [])
    assert (result.changed, result.extra, result.differences, certain) == (["wrong"], ["ghost"], 2, 2)
    result, certain = settled(world(False))
    assert (result.doubtful, sorted(result.missing), certain) == (0, ["gone", "moves"], 4), "it may be on the way"
    kept = world(True)
    kept.expires = False
    assert settled(kept)[0].missing == ["gone"] and not kept.asked_of_expired


@pytest.mark.parametrize("outlived", [False, True])
def test_what_a_cache_has_lost_before_its_time_is_missing(settled: Any, outlived: bool) -> None:
    """What a server evicts was called doubtful for good, and the sink equal; what had never come, in the same way."""
    world = World({"gone": [1], "evicted": [2], "never": [3], "wrong": [4]}, {"wrong": 9}, [True])
    world.expires, world.outlived = True, outlived
    world.evicted, world.unversioned = frozenset({"evicted"}), frozenset({"never"})
    result, certain = settled(world)
    unknown = ["never"]
    assert (sorted(result.doubted), result.changed) == (["gone", *(unknown if outlived else [])], ["wrong"])
    assert (result.missing, certain) == (["evicted", *([] if outlived else unknown)], 2 if outlived else 3)
