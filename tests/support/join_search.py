"""Random histories of a cluster, and what is wrong after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

from sinks.rowstore.memory.nodes import Servers
from sinks.rowstore.memory.store import MemoryStore
from spark.join.engine import Joiner
from tests.support.join_cluster import DEFERRED, Cluster, MakeJoiner
from tests.support.join_fill import Fill
from tests.support.join_loops import agrees, truth
from tests.support.join_worker import PoorDocument
from tests.support.join_world import World, as_it_was, first_only, random_view


@dataclass(frozen=True)
class Chances:
    """How often what happens.

    Attributes:
        crashes: a worker crashes or is frozen, each time one is looked at.
        losses: servers forget, each turn.
        fill: the first changes come by a fill.
        nodes: of the store.
        small: the same view each time, of two tables: less variety, and more that meets.
        flushes: how often a server is emptied, each turn.
        limited: of the small view's children only the first is shown.
        dated: the small view's reference is shown as it was.
    """

    crashes: float = 0.04
    losses: float = 0.0
    fill: bool = False
    nodes: int = 1
    small: bool = False
    flushes: float = 0.0
    limited: bool = False
    dated: bool = False

    @property
    def options(self) -> str:
        """The same for the command line of tests/support/replay.py."""
        words = [f" --crashes {self.crashes} --losses {self.losses} --flushes {self.flushes} --nodes {self.nodes}"]
        return "".join(
            [
                *words,
                " --fill" * self.fill,
                " --small" * self.small,
                " --limited" * self.limited,
                " --dated" * self.dated,
            ]
        )


def random_world(random: Random, *, small: bool = False, limited: bool = False, dated: bool = False) -> World:
    """Empty tables under a random view, and a log of one or two partitions a topic."""
    pace, rows = random.choice((0.05, 0.5, 0.9)), random.choice((3, 6))
    view = random_view(random, small=small)
    view = first_only(view) if limited else as_it_was(view) if dated else view
    return World(view, parts=random.choice((1, 2)), pace=pace, rows=rows)


# Histories a seed: short ones, because what goes wrong early is often made good by what comes later.
ROUNDS = 4


def history(seed: int, store: Any, joiner: MakeJoiner = Joiner, chances: Chances = Chances()) -> str | None:
    """A seed's random histories; what is wrong at rest, or was meanwhile, in the first that shows it; or None."""
    for number in range(ROUNDS):
        named = f"{seed}.{number}"
        # Each history's runners have tokens of their own above those of the one before.
        if (wrong := one_history(named, store.again(1 + 10_000 * number), joiner, chances)) is not None:
            return f"{wrong}; see `python -m tests.support.replay {named}{chances.options}`"
    return None


def one_history(seed: str, store: Any, joiner: MakeJoiner, chances: Chances) -> str | None:
    """One history; its seed is named ``SEED.NUMBER``."""
    try:
        random = Random(seed)
        cluster = Cluster(
            random_world(random, small=chances.small, limited=chances.limited, dated=chances.dated),
            store,
            joiner,
            random,
        )
        return tell(seed, cluster, random, chances)
    except PoorDocument as error:
        return f"seed {seed}: {error}"


def tell(seed: str, cluster: Cluster, random: Random, chances: Chances) -> str | None:
    """A history on a cluster that is there; what is wrong at rest, or None."""
    world = cluster.world

    def clean() -> None:
        if random.random() < 0.3:
            cluster.say("the cleaner comes")
            world.clean(random, cluster.young)

    def meanwhile() -> None:
        for _ in range(random.choice((0, 2, 4))):
            world.transaction(random)
        cluster.say("the cleaner comes")
        world.clean(random, cluster.young)

    cluster.meanwhile = meanwhile

    if chances.fill:
        for _ in range(random.randint(1, 20)):
            world.transaction(random)
        alone = random.random() < 0.5  # nobody writes meanwhile
        Fill(cluster, 5 * chances.crashes, clean if alone else meanwhile).run()
        # At once: what follows makes most documents anew.
        if alone and (wrong := _wrong(seed, cluster)) is not None:
            return f"after the fill: {wrong}"
    for _ in range(random.randint(1, 6)):
        for _ in range(random.randint(1, 4)):
            world.transaction(random)
        for _ in range(random.randint(0, 40)):
            _turn(cluster, random, chances)
            clean()
    cluster.settle()
    return _wrong(seed, cluster)


def _servers(cluster: Cluster, random: Random, chances: Chances) -> None:
    if random.random() < chances.losses:
        random.choice((cluster.copy, cluster.copy, cluster.rest, cluster.lose))()
    if random.random() < chances.flushes:
        cluster.flush()


def _turn(cluster: Cluster, random: Random, chances: Chances) -> None:
    if random.random() < 0.15:
        cluster.world.transaction(random)
    if random.random() < 0.8:
        cluster.begin()
    if random.random() < 0.5:
        cluster.commit()
    if random.random() < 0.3:
        cluster.note()
    _servers(cluster, random, chances)
    if cluster.zombies and random.random() < 0.4:
        cluster.wake(random.choice((1, 2, 5, 20)))
    if DEFERRED not in cluster.live and cluster.store.waiting() and random.random() < 0.6:
        cluster.make_deferred()
    if not cluster.live:
        return
    part = random.choice(sorted(cluster.live))
    chance = random.random() / (4 if part == DEFERRED else 1)
    if chance < chances.crashes:
        cluster.crash(part)
    elif chance < 2 * chances.crashes:
        cluster.freeze(part)
    elif chance < 2.3 * chances.crashes:
        cluster.restart()
    else:
        cluster.advance(part, random.choice((1, 2, 5, 20, 100, 100)))


def _wrong(seed: str, cluster: Cluster) -> str | None:
    want = orjson.loads(orjson.dumps(truth(cluster.world.view, cluster.world.tables)))
    held = cluster.held()
    store = cluster.rendered(want)
    for got, where in ((held, ""), (store, " in the store")):
        keys = [key for key in sorted({*want, *got}) if not agrees(want.get(key), got.get(key))]
        if keys:
            return f"seed {seed}{where}: {keys[0]!r}: want {want.get(keys[0])}, got {got.get(keys[0])}"
    # Where a `one` has several rows the truth leaves it open which is shown; the store does not.
    for key in sorted(want):
        if str(held[key]) != str(store[key]):
            return f"seed {seed}: {key!r}: the store gives {store[key]}, the sink has {held[key]}"
    return None


def search(
    seeds: Iterable[int],
    joiner: MakeJoiner = Joiner,
    chances: Chances = Chances(),
    store: Callable[..., Any] = MemoryStore,
) -> list[str]:
    """What is wrong in many histories."""
    found = []
    for seed in seeds:
        made = store(servers=Servers(chances.nodes), token=1)
        if (wrong := history(seed, made, joiner, chances)) is not None:
            found.append(wrong)
    return found
