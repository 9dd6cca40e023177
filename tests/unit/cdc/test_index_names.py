"""Names of indices: each that the search sink makes is known as ours, and leads back to its alias."""

from __future__ import annotations

import pytest

from cdc.index_names import (
    alias_beside,
    concrete_index,
    fences_index,
    generation_of,
    percolator_index,
    queries_index,
    writing_alias,
)

ONE = concrete_index("shop_order", 7)


@pytest.mark.parametrize("alias", ["shop_order", "a_g2", "a_queries", "g1"])
@pytest.mark.parametrize("generation", [1, 12])
def test_a_generation_is_read_from_its_index(alias: str, generation: int) -> None:
    assert generation_of(concrete_index(alias, generation)) == (alias, generation)


@pytest.mark.parametrize("name", ["order", "order_g", "order_g1_fences", "_g1", "order_g1x", "order_queries"])
def test_no_other_index_is_a_generation(name: str) -> None:
    assert generation_of(name) is None


@pytest.mark.parametrize(
    "name", [ONE, fences_index(ONE), writing_alias(ONE, 3), writing_alias(fences_index(ONE), 3), percolator_index(ONE)]
)
def test_whatever_is_made_beside_an_alias_is_known_as_ours(name: str) -> None:
    assert alias_beside(name) == ("shop_order", False)
    assert alias_beside(name + "x") is None


def test_queries_are_told_apart() -> None:
    assert alias_beside(queries_index("shop_order")) == ("shop_order", True)
    assert alias_beside("shop_order") is None
