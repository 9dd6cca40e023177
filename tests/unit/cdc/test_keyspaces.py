"""Key spaces of views in Redis: two meet exactly when a key of one can be a key of the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.keyspaces import ROW_STORES, VERSIONS, is_reserved
from sinks.redis.names import VERSION_PREFIX, Names, version_key
from sinks.rowstore.key_names import REGISTRY
from tests.support.keyspaces import meet

PARTS = st.sampled_from(["a", "b", ":", "@", "2", "10", "live"])
STEMS = st.lists(PARTS, min_size=1, max_size=6).map("".join)


def prefixes(stem: str) -> list[bytes]:
    """What keys of a few generations begin with."""
    where = [Names("", stem, number) for number in (1, 2, 10)]
    return [one.plain for one in where] + [one.hidden for one in where]


@given(first=STEMS, second=STEMS)
def test_they_meet_when_one_of_their_prefixes_begins_with_the_other(first: str, second: str) -> None:
    """Of generation numbers the search only tries 1, 2 and 10, and no other can stand in these stems."""
    begin = any(a.startswith(b) or b.startswith(a) for a in prefixes(first) for b in prefixes(second))
    if begin:
        assert meet(first, second)
    elif meet(first, second):
        assert "@" in first + second  # another generation's number: 22, 102, …


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("shop", "shop", True),
        ("shop", "shop:order", True),
        ("shop@2", "shop", True),
        ("shop", "shop@2:order", True),
        ("shop", "shop_order", False),
        ("shop", "shop@eu:order", False),
        ("shop", "shop@2x", False),
        ("a:shop", "b:shop", False),
    ],
)
def test_examples(first: str, second: str, expected: bool) -> None:
    assert meet(first, second) is meet(second, first) is expected


def test_a_view_whose_keys_would_be_our_own_is_known() -> None:
    assert [stem for stem in ("hw", "hw:v", "headwater", "hw:x", "hw:v:x", "order") if is_reserved(stem)] == [
        "hw",
        "hw:v",
        "headwater",
    ]
    assert version_key(b"order:1").startswith(Names("", "hw").plain)
    assert (VERSION_PREFIX.decode(), REGISTRY) == (VERSIONS, ROW_STORES)
