"""When upkeep looks at a table's snapshots, of which there may be hundreds: without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark.warehouse.upkeep import upkeep
from spark.warehouse.upkeep.plan import MANY_EXPIRED, MANY_FILES, Act, Policy, Signs, Snapshot
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
