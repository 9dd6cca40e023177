"""How widely the search for wrong histories looks, and whether it finds every mutation of the engine.

``python -m benchmarks.run search``. What it looks for: tests/property/test_join_convergence.py.
"""

from __future__ import annotations

from benchmarks.results import Measurement
from spark.join.engine import Joiner
from tests.support.join_search import ROUNDS, Chances, search
from tests.support.mutations import MUTATIONS, defers

COMMAND = "python -m benchmarks.run search"
SEEDS = 60
KINDS = (
    (Joiner, Chances()),
    (Joiner, Chances(crashes=0.1, small=True)),
    (Joiner, Chances(fill=True)),
    (Joiner, Chances(losses=0.2, flushes=0.01)),
    (Joiner, Chances(losses=0.2, flushes=0.01, nodes=3)),
    (Joiner, Chances(losses=0.2, flushes=0.01, nodes=3, fill=True)),
    (defers, Chances(crashes=0.08)),
)


def measure() -> list[Measurement]:
    """Look through histories, then for each mutation.

    Raises:
        AssertionError: a history of the whole engine ended wrong.
    """
    for joiner, chances in KINDS:
        wrong = search(range(SEEDS), joiner, chances)
        assert not wrong, wrong[0]
    found = [any(search([seed], each.joiner, each.chances, each.store) for seed in range(SEEDS)) for each in MUTATIONS]
    histories = len(KINDS) * SEEDS * ROUNDS
    return [
        Measurement("search_histories", histories, "histories", histories, command=COMMAND),
        Measurement("search_mutations_found_ratio", sum(found) / len(found), "ratio", len(found), command=COMMAND),
    ]
