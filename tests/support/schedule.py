"""Which files of tests run side by side, and in what order: whole files, and the longest of them first."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

# Seconds matter here, not exact ones: a long file that begins last is waited for by everyone.
LONGEST = (
    "tests/faults/test_kill_during_load.py",
    # Needs no server: the first minutes of the others go to waiting for the stack.
    "tests/property/test_join_convergence.py",
    "tests/integration/test_generations.py",
    "tests/integration/test_avro.py",
    "tests/integration/test_connectors_apply.py",
    # Not with the first ones: it starts a second stack, and they wait for the first.
    "tests/integration/test_local_stack.py",
    "tests/integration/test_explain.py",
    "tests/integration/test_resnapshot.py",
    "tests/faults/test_bank_invariant.py",
)
# They stop the one schema registry of the stack.
TOGETHER = {"tests/integration/test_codec_real.py": "tests/integration/test_avro.py"}


class Files(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay together, for the sake of what they share; so do files that would disturb each other."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """What a test must run together with."""
    file = nodeid.split("::", 1)[0]
    return TOGETHER.get(file, file)


def ordered(items: list[pytest.Item]) -> list[pytest.Item]:
    """The longest files first, then the rest as they were collected; files that belong together one after the other."""
    rank = {file: at for at, file in enumerate(LONGEST)}
    return sorted(items, key=lambda item: rank.get(scope(item.nodeid), len(rank)))
