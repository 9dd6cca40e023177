"""Which transactions of the log could be seen, by the half of their ids that the log has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.database.visibility import IN_THE_LOG, Visible

EPOCHS = st.integers(3, 1 << 40)


@given(
    end=EPOCHS,
    under_way=st.frozensets(st.integers(1, 1_000), max_size=5),
    ago=st.integers(-999, IN_THE_LOG - 1_001),
)
def test_a_transaction_is_seen_unless_it_was_under_way_or_began_later(
    end: int, under_way: frozenset[int], ago: int
) -> None:
    visible = Visible(end, frozenset(end - one for one in under_way))
    transaction = end - ago  # ago 0 is the first of those that began later
    seen = ago > 0 and ago not in under_way
    assert visible.has(transaction % IN_THE_LOG, end + 1_000) == seen
    assert visible.has(transaction % IN_THE_LOG - (1 << 32), end + 1_000) == seen, "read as a number with a sign"


@given(end=EPOCHS, under_way=st.frozensets(st.integers(1, 1_000), max_size=5), ago=st.integers(1, IN_THE_LOG - 1))
def test_all_that_was_in_the_log_before_has_begun_before(end: int, under_way: frozenset[int], ago: int) -> None:
    visible = Visible(end, frozenset(end - one for one in under_way))
    assert visible.has((end - ago) % IN_THE_LOG, end) == (ago not in under_way)


def test_a_transaction_is_never_held_against_a_moment_before_it_was_known() -> None:
    """By an end of before a newer one would be of 2**32 ago, and seen."""
    with pytest.raises(TypeError):
        Visible(10, frozenset()).has(12)  # type: ignore[call-arg]
    assert not Visible(10, frozenset()).has(12, 13)


def test_a_row_that_was_read_could_be_seen() -> None:
    assert Visible(10, frozenset(range(10))).has(None, 10)
