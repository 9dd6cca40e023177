"""One history of the search again, with every step: ``python -m tests.support.replay SEED [--fill] …``."""

from __future__ import annotations

import argparse
from random import Random

from sinks.rowstore.memory.nodes import Servers
from sinks.rowstore.memory.store import MemoryStore
from tests.support.join_cluster import Cluster
from tests.support.join_search import Chances, random_world, tell


def main() -> None:
    """Replay, and print what happened and what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", help="as the message names it: SEED.NUMBER")
    parser.add_argument("--crashes", type=float, default=0.04)
    parser.add_argument("--losses", type=float, default=0.0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--limited", action="store_true")
    parser.add_argument("--dated", action="store_true")
    parser.add_argument("--flushes", type=float, default=0.0)
    asked = parser.parse_args()
    chances = Chances(
        asked.crashes, asked.losses, asked.fill, asked.nodes, asked.small, asked.flushes, asked.limited, asked.dated
    )
    random = Random(asked.seed)
    world = random_world(random, small=asked.small, limited=asked.limited, dated=asked.dated)
    cluster = Cluster(world, MemoryStore(servers=Servers(asked.nodes), token=1), random=random)
    wrong = tell(asked.seed, cluster, random, chances)
    print("\n".join(cluster.said))
    for part, records in world.log.items():
        for change in records:
            gone = " (removed by the cleaner)" if (part, change.offset) in world.gone else ""
            at = f"{change.topic}/{change.partition}/{change.offset}"
            print(f"{at} {change.op.name} at {change.position}: {change.key} {change.after}{gone}")
    print(wrong or "nothing is wrong")


if __name__ == "__main__":
    main()
