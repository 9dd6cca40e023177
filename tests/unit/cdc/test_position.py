"""Which versions are positions in the source's log."""

from __future__ import annotations

import pytest

from cdc.catalogue import Column, Table
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.records.position import lsn_text, pack
from operations.held import place_of

TABLE = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
ROOT = Node("v", "root", TABLE, columns=(("id", "id"),))


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


@pytest.mark.parametrize(("version", "place"), [(900_000, None), (8 << 20, 8 << 20)])
def test_what_a_fill_has_counted_is_no_place_in_the_log(version: int, place: int | None) -> None:
    """`explain` and `trace` took a position below 16 MiB, of a cluster with segments of 1 MiB, for such a count."""
    assert place_of(JoinedView("card", TABLE, ("id",), ROOT.columns, root=ROOT), version) == place
