"""Which versions are positions in the source's log."""

from __future__ import annotations

import pytest

from cdc.records.position import lsn_text, pack


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        (-1, None),
        (900_000, None),  # slices that a fill has counted
        (8 << 20, "0/800000"),  # of a cluster whose segments have 1 MiB: its WAL begins at 0/100000
        (pack(3, 0x2CA35B48), "0/2CA35B48"),
        (1 << 63, None),
    ],
)
def test_only_what_can_be_a_position_is_shown_as_one(version: int, shown: str | None) -> None:
    assert lsn_text(version) == shown
