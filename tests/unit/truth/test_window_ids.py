"""Ids of windows: one for each group, the engine's and the second opinion's."""

from __future__ import annotations

from itertools import product

import orjson
import pytest

from cdc.timed import WindowView
from tests.support.trees import table
from truth.events.windowed import _group, _key, moment

VALUES = (None, "null", "\\N", "N", "\\", "\\\\N", "|", "a\\N", 7)
EVENTS = table("events", "id", id="int4")


@pytest.mark.parametrize("groupings", [(("who", "what"),), (("who",), ("who", "what"), ())], ids=["one", "a cube"])
def test_a_group_of_null_has_an_id_that_no_value_gives(groupings: tuple[tuple[str, ...], ...]) -> None:
    view = WindowView("w", EVENTS, ("id",), (), by={"who": "a", "what": "b"}, groupings=groupings)
    found = {}
    for number, names in enumerate(groupings):
        for values in product(VALUES, repeat=2):
            about = [value if name in names else None for name, value in zip(view.by, values, strict=True)]
            group = _group(view, number, about)
            document = group.fields | {"window_start": moment(0)}
            found[names, *about] = view.named(orjson.dumps(document), "e")
            assert _key(group, 0) == found[names, *about], "the second opinion calls it the same"
    assert len(set(found.values())) == len(found)
    whole, before = ("who", "what"), "who,what|" if len(groupings) > 1 else ""
    assert found[whole, "null", "a\\N"] == f"{before}null|a\\\\N|1970-01-01T00:00:00Z"
    assert found[whole, None, 7] == f"{before}\\N|7|1970-01-01T00:00:00Z"
    # What a grouping does not go by is null in all of its documents: their ids are as ever.
    assert found.get((("who",), "|", None)) in (None, "who|\\||null|1970-01-01T00:00:00Z")


def test_a_view_of_one_group_is_named_by_the_start() -> None:
    view = WindowView("w", EVENTS, ("id",), ())
    assert view.named(b'{"window_start":"1970-01-01T00:00:00Z"}', "e") == _key(_group(view, 0, []), 0) == moment(0)
