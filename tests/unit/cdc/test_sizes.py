"""Sizes in the pipeline file and in words, and the two names of the budget."""

from __future__ import annotations

import pytest

from cdc.pipeline import Pipeline, loads
from cdc.sizes import parse_size, size_words
from tests.support.minimal_file import MINIMAL, bad


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10GiB", 10 << 30),
        ("512 MiB", 512 << 20),
        ("1.5gib", 3 << 29),
        ("0.000001KiB", 0),
        ("4096", 4096),
        ("7B", 7),
        ("1025.5TiB", 1025 * (1 << 40) + (1 << 39)),
        ("10GB", None),  # 1000 or 1024? Postgres says 1024, a disk's maker 1000
        ("10G", None),
        ("-1GiB", None),
        ("1e3", None),
        ("GiB", None),
        ("", None),
        ("1GiB ", None),
        ("1GiB\n", None),
        ("١GiB", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "less than 1 MiB"),
        ((1 << 20) - 1, "less than 1 MiB"),
        (12 << 20, "12 MiB"),
        (1300 << 20, "1.3 GiB"),
        (10 << 30, "10 GiB"),
        (3 << 39, "1.5 TiB"),
        (900 << 40, "900 TiB"),
        (20_000 << 20, "19.5 GiB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_words(size) == words


def policy(text: str) -> Pipeline:
    return loads(MINIMAL + "policy:\n" + text, "p.yaml", {"PW": "x", "ROOM": "3GiB", "NONE": ""})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("  truncate: refuse\n", 10 << 30),
        ("  wal_budget: 512MiB\n", 512 << 20),
        ("  wal_budget: 5000000\n", 5_000_000),
        ("  wal_budget: ${ROOM}\n", 3 << 30),
        ("  wal_budget: ${NONE:-}\n", 10 << 30),
        ("  replication_slot_max_lag_mb: 512\n", 512 << 20),
    ],
)
def test_the_budget_has_two_names(text: str, size: int) -> None:
    assert policy(text).policy.wal_bytes == size


LINE = MINIMAL.count("\n") + 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  wal_budget: 10GB\n", f"p.yaml:{LINE}:15: policy.wal_budget: expected a size: a number and KiB, MiB, GiB"),
        ("  wal_budget: 0\n", f"p.yaml:{LINE}:15: policy.wal_budget: expected a size of 1 byte"),
        ("  wal_budget: true\n", f"p.yaml:{LINE}:15: policy.wal_budget: expected a size"),
        ("  wal_budget: 1.5\n", f"p.yaml:{LINE}:15: policy.wal_budget: expected a size"),
        ("  wal_budget: [1]\n", f"p.yaml:{LINE}:3: policy.wal_budget: expected a size"),
        ("  wal_at_limit: drop\n", f"p.yaml:{LINE}:17: policy.wal_at_limit: expected 'alert' or 'release'"),
        (
            "  wal_budget: 1GiB\n  replication_slot_max_lag_mb: 5\n",
            f"p.yaml:{LINE + 1}:32: policy.replication_slot_max_lag_mb: the old name of policy.wal_budget, and that",
        ),
    ],
)
def test_a_wrong_budget_is_named_with_its_line(text: str, message: str) -> None:
    assert message in bad(MINIMAL + "policy:\n" + text)
