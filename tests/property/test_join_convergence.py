"""Joined views converge: whatever the order, the crashes and the repeats, at rest documents are what the tables say.

The engine is the real one; the store is its double in memory, whose every step another worker may run in, or a crash
may come in (tests/support/join_cluster.py says what else). tests/integration/test_join_store.py runs the same world
over a real Redis. Each mutation of tests/support/mutations.py must be found: what no history finds, they do not cover.

A seed that fails names the command that shows every step of it again.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from cdc.join.tree import Node
from sinks.rowstore.memory.store import MemoryStore
from tests.support.join_cluster import DEFERRED, Cluster
from tests.support.join_loops import agrees, truth
from tests.support.join_search import Chances, search
from tests.support.join_world import World, random_view
from tests.support.mutations import MUTATIONS, Mutation, defers

HISTORIES = 40
# Each mutation is found within so many.
MOST_SEEDS = 150


class JoinMachine(RuleBasedStateMachine):
    """Transactions, steps of workers and misfortunes in any order; at the end all comes to rest and is compared."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        """A random view over empty tables."""
        random = Random(seed)
        self.world = World(random_view(random))
        self.cluster = Cluster(self.world, MemoryStore(token=1), random=random)

    @rule(seed=st.integers(0, 2**32))
    def transaction(self, seed: int) -> None:
        """The source commits."""
        self.world.transaction(Random(seed))

    @rule(seed=st.integers(0, 2**32))
    def clean(self, seed: int) -> None:
        """The log's cleaner comes."""
        self.world.clean(Random(seed))

    @rule(whole=st.booleans())
    def start(self, whole: bool) -> None:
        """A batch begins."""
        self.cluster.begin(whole=whole)

    @rule()
    def commit(self) -> None:
        """A batch that is done is committed, and noted."""
        self.cluster.commit()
        self.cluster.note()

    @precondition(lambda self: DEFERRED not in self.cluster.live)
    @rule()
    def defer(self) -> None:
        """What fan-outs have left is made."""
        self.cluster.make_deferred()

    @precondition(lambda self: bool(self.cluster.live))
    @rule(data=st.data(), steps=st.integers(1, 60))
    def advance(self, data: st.DataObject, steps: int) -> None:
        """A worker takes steps in the store or the sink."""
        self.cluster.advance(data.draw(st.sampled_from(sorted(self.cluster.live))), steps)

    @precondition(lambda self: bool(self.cluster.live))
    @rule(data=st.data(), frozen=st.booleans())
    def lose_worker(self, data: st.DataObject, frozen: bool) -> None:
        """A worker dies between two steps, or is frozen there."""
        part = data.draw(st.sampled_from(sorted(self.cluster.live)))
        (self.cluster.freeze if frozen else self.cluster.crash)(part)

    @precondition(lambda self: bool(self.cluster.zombies))
    @rule(steps=st.integers(1, 60))
    def wake(self, steps: int) -> None:
        """A frozen one goes on."""
        self.cluster.wake(steps)

    def teardown(self) -> None:
        """At rest every document is what the tables say, and there is no other."""
        if hasattr(self, "cluster"):
            self.cluster.settle()
            want = truth(self.world.view, self.world.tables)
            assert agrees(dict(sorted(want.items())), dict(sorted(self.cluster.held().items())))


JoinMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyHistoryConverges = JoinMachine.TestCase


@pytest.mark.parametrize(
    "chances",
    [
        Chances(),
        Chances(crashes=0.1, small=True),
        Chances(crashes=0.1, small=True, limited=True),
        Chances(crashes=0.1, small=True, dated=True),
        Chances(fill=True),
        Chances(crashes=0.1, small=True, dated=True, fill=True),
        Chances(losses=0.2, flushes=0.01),
        Chances(losses=0.2, flushes=0.01, nodes=3),
        Chances(losses=0.2, flushes=0.01, nodes=3, fill=True),
    ],
    ids=[
        "crashes",
        "dense",
        "the first of several",
        "as it was",
        "fill",
        "fill as it was",
        "losses",
        "one node of three",
        "all at once",
    ],
)
@pytest.mark.sampled
def test_random_histories_converge(chances: Chances) -> None:
    assert search(range(HISTORIES), chances=chances) == []


def once(seed: int) -> bool:
    """Whether the seed's view has its root's table nowhere else, and anything else at all."""
    root = random_view(Random(seed)).tree
    return root.once and bool(root.nested or root.aggregates)


@pytest.mark.sampled
def test_a_fill_in_one_pass_over_the_root_and_what_follows_converge() -> None:
    seeds = list(filter(once, range(1000, 1000 + 16 * HISTORIES)))
    assert len(seeds) > HISTORIES // 2
    assert search(seeds, chances=Chances(fill=True)) == []


@pytest.mark.sampled
def test_deferred_fan_outs_converge_too() -> None:
    assert search(range(HISTORIES), defers, Chances(crashes=0.08)) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
@pytest.mark.sampled
def test_a_mutation_is_found(mutation: Mutation) -> None:
    assert any(search([seed], mutation.joiner, mutation.chances, mutation.store) for seed in range(MOST_SEEDS))


def test_one_pass_over_a_root_that_other_rows_show_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "once", True)
    assert any(search([seed], chances=Chances(fill=True)) for seed in range(MOST_SEEDS))
