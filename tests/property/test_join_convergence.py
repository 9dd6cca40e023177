"""Joined views converge: whatever the order, the crashes and the repeats, at rest documents are what the tables say.

The engine is the real one; the store is its in-memory double, whose every step another worker may run in, or a crash
may come in. tests/integration/test_join_store.py runs the same world over a real Redis. Three mutations show that the
search finds what it is for (DESIGN, "How a change travels", 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from cdc.join.incoming import Incoming
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from sinks.rowstore import keys
from sinks.rowstore.contract import RowStore
from sinks.rowstore.memory import MemoryStore
from spark.join.assemble import Assembler
from spark.join.climb import Ids
from spark.join.engine import Joiner, Made
from spark.join.maintain import Refuse, Starts, Touched
from tests.support.joins import Cluster, World, random_view, search, truth

HISTORIES = 400


class JoinMachine(RuleBasedStateMachine):
    """Transactions, steps of workers and crashes in any order; at the end everything comes to rest and is compared."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        """A random view over empty tables."""
        self.random = Random(seed)
        self.world = World(random_view(self.random))
        self.cluster = Cluster(self.world, MemoryStore())

    @rule(seed=st.integers(0, 2**32))
    def transaction(self, seed: int) -> None:
        """The source commits."""
        self.world.transaction(Random(seed))

    @precondition(lambda self: bool(self.cluster.behind()))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """A worker takes a batch, perhaps one that was read before."""
        idle = [part for part in self.cluster.behind() if part not in self.cluster.live]
        if not idle:
            return
        part = data.draw(st.sampled_from(idle))
        done, length = self.cluster.committed.get(part, 0), len(self.world.log[part])
        start = data.draw(st.integers(0, done))
        self.cluster.start(part, start, data.draw(st.integers(min(done + 1, length), length)))

    @precondition(lambda self: bool(self.cluster.live))
    @rule(data=st.data(), steps=st.integers(1, 60))
    def advance(self, data: st.DataObject, steps: int) -> None:
        """A worker takes steps in the store or the sink."""
        self.cluster.advance(data.draw(st.sampled_from(sorted(self.cluster.live))), steps)

    @precondition(lambda self: bool(self.cluster.live))
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """A worker dies between two steps."""
        self.cluster.crash(data.draw(st.sampled_from(sorted(self.cluster.live))))

    def teardown(self) -> None:
        """At rest every document is what the tables say, and there is no other."""
        if hasattr(self, "cluster"):
            self.cluster.settle(self.random)
            assert self.cluster.held() == truth(self.world.view, self.world.tables)


JoinMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyHistoryConverges = JoinMachine.TestCase


def test_many_random_histories_converge() -> None:
    assert search(range(HISTORIES), MemoryStore) == []


def test_a_first_fill_and_what_follows_converge() -> None:
    assert search(range(HISTORIES), MemoryStore, fill=True) == []


def once(seed: int) -> bool:
    """Whether the seed's view has its root's table nowhere else, and anything else at all."""
    root = random_view(Random(seed)).tree
    return root.once and bool(root.nested or root.aggregates)


def test_a_fill_in_one_pass_over_the_root_and_what_follows_converge() -> None:
    assert search(list(filter(once, range(8 * HISTORIES))), MemoryStore, fill=True) == []


class Defers(Joiner):
    """The real engine, to which two rows are a fan-out."""

    def __init__(self, view: JoinedView, store: RowStore) -> None:
        super().__init__(view, store, defer_above=1)


def test_deferred_fan_outs_converge_too() -> None:
    assert search(range(HISTORIES), MemoryStore, Defers) == []


# -- the test can fail ----------------------------------------------------------------------------------------


class ReadsRowsFirst(Joiner):
    """Reads the rows before it raises the version: a document may lack what an earlier raiser wrote, and win."""

    def make(self, ids: Ids) -> list[Made]:
        """The mutated order."""
        parts = self.assembler.read(list(ids))
        versions = self.store.raise_versions([(keys.version(key), position) for key, position in ids.items()])
        return [Made(key, version, parts[key]) for key, version in zip(ids, versions, strict=True) if key in parts]


class RaisesBeforeItWrites(Joiner):
    """Raises versions before the rows are written: whoever reads in between writes an old document as the newest."""

    def process(self, changes: Iterable[Incoming], starts: Starts, refuse: Refuse) -> Iterator[list[Made]]:
        """The mutated order."""
        taken = list(changes)
        early = {c.key: max(c.stamp.position, 0) for c in taken if c.table == self.view.table.qualified}
        raised = dict(
            zip(early, self.store.raise_versions([(keys.version(k), p) for k, p in early.items()]), strict=True)
        )
        for made in super().process(taken, starts, refuse):
            yield [item._replace(version=raised.get(item.key, item.version)) for item in made]


class ForgetsReplacedParents(Joiner):
    """Does not look at the foreign keys that a change replaced: after a crash the former parent keeps the row."""

    def __init__(self, view: JoinedView, store: RowStore) -> None:
        super().__init__(view, store)
        touch = self.maintainer._touch

        def forgetful(table: Any, change: Incoming, row: Any, position: int, _replaced: Sequence[Any]) -> Touched:
            return touch(table, change, row, position, ())

        self.maintainer._touch = forgetful  # type: ignore[method-assign]


class TakesAFillsRepeatForDone(Joiner):
    """Takes what a crashed slice has written to the store for finished: its documents are never made."""

    def fill(self, changes: Iterable[Incoming], starts: Starts, refuse: Refuse) -> Iterator[list[Made]]:
        """With starts far ahead every stored row looks committed."""
        return super().fill(changes, dict.fromkeys(starts, 1 << 30), refuse)


class RemembersTooMuch(Joiner):
    """Goes on with the rows that the fill remembered."""

    kept: ClassVar[dict[int, Assembler]] = {}

    def __init__(self, view: JoinedView, store: RowStore) -> None:
        super().__init__(view, store)
        self.assembler = self.kept.setdefault(id(store), self.assembler)


class MaxStore(MemoryStore):
    """Versions are ``max(version, position)``: two renderings may share one, and the poorer one may come last."""

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        """The tempting rule."""
        for key, position in pairs:
            self.step("raise_versions")
            self.versions[key] = max(self.versions.get(key, 0), position)
        return [self.versions[key] for key, _ in pairs]


@pytest.mark.parametrize(
    ("store", "joiner"),
    [
        (MemoryStore, ReadsRowsFirst),
        (MemoryStore, RaisesBeforeItWrites),
        (MemoryStore, ForgetsReplacedParents),
        (MaxStore, Joiner),
    ],
    ids=["reads-first", "raises-first", "forgets-parents", "max-version"],
)
def test_a_broken_order_is_found(store: type[MemoryStore], joiner: type[Joiner]) -> None:
    assert any(search(range(start, start + 50), store, joiner) for start in range(0, HISTORIES, 50))


@pytest.mark.parametrize("joiner", [TakesAFillsRepeatForDone, RemembersTooMuch])
def test_a_broken_fill_is_found(joiner: type[Joiner]) -> None:
    assert search(list(filter(once, range(HISTORIES))), MemoryStore, joiner, fill=True)


def test_one_pass_over_a_root_that_other_rows_show_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "once", True)
    assert any(search(range(start, start + 50), MemoryStore, fill=True) for start in range(0, HISTORIES, 50))
