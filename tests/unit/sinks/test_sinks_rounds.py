"""Several items of one key in one call: the rounds that they are sent in do what one call an item would do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sinks.contract import UNVERSIONED, Item
from sinks.rounds import rounds
from tests.support.sinks import State, one_by_one

KEYS = "abc"
DOCUMENTS = st.sampled_from([b"1", b"2", b"3", None])
ITEMS = st.builds(Item, st.sampled_from(KEYS), st.integers(0, 4), DOCUMENTS) | st.builds(
    Item, st.sampled_from(KEYS), st.just(UNVERSIONED), st.none()
)
STATES = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(0, 4), DOCUMENTS))


@given(state=STATES, items=st.lists(ITEMS, max_size=12), shuffle=st.randoms(use_true_random=False))
def test_rounds_do_what_one_call_an_item_does(state: State, items: list[Item], shuffle: object) -> None:
    plan = rounds(items, range(len(items)))
    after = state
    for turn in plan.sent:
        shuffle.shuffle(turn)  # type: ignore[attr-defined]
        after = one_by_one(after, [items[place] for place in turn])
    assert after == one_by_one(state, items)


@given(items=st.lists(ITEMS, max_size=12), left_out=st.sets(st.integers(0, 11)))
def test_every_place_is_accounted_for_and_no_round_names_a_key_twice(items: list[Item], left_out: set[int]) -> None:
    places = [place for place in range(len(items)) if place not in left_out]
    plan = rounds(items, places)
    assert sorted([*plan.superseded, *(place for turn in plan.sent for place in turn)]) == places
    for turn in plan.sent:
        assert len({items[place].key for place in turn}) == len(turn) > 0


def test_as_a_rule_there_is_one_round_in_the_order_of_the_items() -> None:
    items = [Item("c", 1, b"{}"), Item("a", UNVERSIONED, None), Item("b", 2, None)]
    assert rounds(items, range(3)) == ([[0, 1, 2]], [])
    assert rounds([], []) == ([], [])
