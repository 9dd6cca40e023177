"""When upkeep looks at a table's snapshots, of which there may be hundreds: without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark.warehouse.upkeep import steps, upkeep
from spark.warehouse.upkeep.plan import DAY, HOUR, MANY_EXPIRED, MANY_FILES, Act, Policy, Signs, Snapshot, expired
from spark.warehouse.upkeep.steps import FAR_TOO_MANY, shorten
from spark.warehouse.upkeep.upkeep import Upkeep

TABLE, NOW = "`c`.`n`.`t`", 1_800_000_000.0


class World:
    """A table, and what was done to it.

    Attributes:
        now: epoch seconds.
        files: how many it has.
        steps: how many snapshots are nobody's, besides the newest.
        done: which steps were done, in their order.
    """

    def __init__(self) -> None:
        self.now, self.files, self.steps, self.done = NOW, 0, 0, list[Act]()

    def loaded(self, *_: Any) -> Any:
        """As Iceberg's."""
        opened = MagicMock()
        opened.operations().current().snapshots().size.return_value = self.steps + 1
        return opened

    def signs_of(self, *_: Any, whole: bool) -> Signs:
        """As it is."""
        nobodys = [Snapshot(number, self.now - 1, {"headwater.x": ""}, seen=False) for number in range(self.steps)]
        snapshots = [*nobodys, Snapshot(-1, self.now)] if whole else []
        return Signs(files=self.files, rows=9, scoped=True, snapshots=snapshots, current=-1, orphans_at=self.now)

    def do(self, act: Act, *_: Any) -> str:
        """A step that takes a second."""
        self.done.append(act)
        self.now += 1.0
        return act.value


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    for name in ("loaded", "signs_of", "do"):
        monkeypatch.setattr(upkeep, name, getattr(made, name))
    monkeypatch.setattr("spark.warehouse.upkeep.upkeep.time.monotonic", lambda: made.now)
    yield made


def test_a_look_is_not_wasted_while_a_step_rests(world: World) -> None:
    """1,500 snapshots had gathered: the looks fell behind compactions, and each next one was fifty snapshots later."""
    kept = Upkeep(Policy(), clock=lambda: world.now)
    kept.after(MagicMock(), TABLE)
    world.files = MANY_FILES
    kept.after(MagicMock(), TABLE)
    world.steps = 2 * MANY_EXPIRED
    kept.after(MagicMock(), TABLE)
    assert world.done == [Act.COMPACT]
    world.now += 10.0
    kept.after(MagicMock(), TABLE)
    assert world.done == [Act.COMPACT, Act.EXPIRE]


class Gathered:
    """A table of which nobody has taken care, and what of it was expired.

    Attributes:
        snapshots: its own, the oldest first.
        expired: how ``expireOlderThan``, and each ``expireSnapshotId``, was called.
        cleaned: whether files were to be removed too.
    """

    def __init__(self, snapshots: list[Snapshot]) -> None:
        self.snapshots, self.older, self.expired, self.cleaned = snapshots, list[int](), list[int](), True

    def loaded(self, *_: Any) -> Any:
        """As Iceberg's."""
        opened = MagicMock()
        opened.operations().current().snapshots().size.return_value = len(self.snapshots)
        opened.expireSnapshots.return_value = self
        return opened

    def signs_of(self, *_: Any) -> Signs:
        """As it is."""
        return Signs(snapshots=self.snapshots, current=self.snapshots[-1].id)

    def expireOlderThan(self, moment: int) -> Gathered:
        self.older.append(moment)
        return self

    def expireSnapshotId(self, number: int) -> Gathered:
        self.expired.append(number)
        return self

    def cleanExpiredFiles(self, clean: bool) -> Gathered:
        self.cleaned = clean
        return self

    def commit(self) -> None:
        """Done."""


def test_a_start_takes_from_a_table_what_upkeep_would_and_nothing_that_is_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One snapshot an hour for 365 days is more than 5,000, each with a gap before it: all but some hours went."""
    hours = [Snapshot(number, NOW - number * HOUR) for number in range(365 * 24 - 1, -1, -1)]
    world = Gathered(hours)
    monkeypatch.setattr(steps, "loaded", world.loaded)
    monkeypatch.setattr(steps, "signs_of", world.signs_of)
    assert len(hours) > FAR_TOO_MANY
    assert shorten(MagicMock(), TABLE, Policy(snapshot_days=365), NOW) == 0
    assert not world.expired and not world.older, "one an hour is promised for so long"
    old = [Snapshot(10_000 + step, NOW - 2 * DAY + 2 * step) for step in range(FAR_TOO_MANY + 1_000)]
    world.snapshots = sorted([*hours, *old], key=lambda one: one.at)
    gone = shorten(MagicMock(), TABLE, Policy(snapshot_days=365), NOW)
    assert gone == len(world.expired) > FAR_TOO_MANY and not world.cleaned
    assert set(world.expired) == expired(world.signs_of(), Policy(snapshot_days=365), NOW)
    assert max(world.older) <= DAY * 1000, "none by its age"
    assert shorten(MagicMock(), TABLE, Policy(on=False), NOW) == 0
