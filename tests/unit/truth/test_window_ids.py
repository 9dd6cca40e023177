"""Ids of windows: one for each group, the engine's and the second opinion's."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import orjson
import pytest

from cdc.catalogue import Catalogue
from cdc.formats import DEFINITION
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.definition import changes, defined_as, definition_of
from cdc.resolve.views import resolve_view
from cdc.timed import WindowView
from tests.support.trees import table
from truth.events.windowed import _group, _key, moment

VALUES = (None, "null", "\\N", "N", "\\", "\\\\N", "|", "a\\N", 7)
EVENTS = table("events", "id", id="int4", a="text", at="timestamptz")
CATALOGUE = Catalogue({EVENTS.qualified: EVENTS})
WINDOW = 'time: at, size: 1 hour, delay: 1 minute, measures: {n: "count(*)"}'
FILE = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.events]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
views: {w: {root: events, VIEW}}
sinks: {cache: {type: redis, url: "redis://h:6379/0", view: w}}
"""


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


def test_a_generation_of_before_keeps_the_ids_that_it_has() -> None:
    """A window that is over is never written again: under another id it would be missing there, and extra here."""
    view = WindowView("w", EVENTS, ("id",), (), by={"who": "a", "what": "b"}, groupings=(("who", "what"),))
    for groupings, before in ((view.groupings, ""), (((), ("who", "what")), "who,what|")):
        former = replace(view, groupings=groupings, null_is_text=True)
        group = _group(former, len(groupings) - 1, [None, "a\\N"])
        document = orjson.dumps(group.fields | {"window_start": moment(0)})
        assert former.named(document, "e") == _key(group, 0) == f"{before}null|a\\\\N|1970-01-01T00:00:00Z"


def loaded(view: str) -> Pipeline:
    return loads(FILE.replace("VIEW", view), "p.yaml", {})


def test_a_generation_is_named_as_when_it_was_defined() -> None:
    pipeline = loaded(f"window: {{{WINDOW}, by: {{who: a}}}}")
    made = definition_of(pipeline, "cache", ())
    before = made | {"format": 1}
    assert made["format"] == DEFINITION and changes(before, made) == [], "nothing has to be built again"
    for definition, null in ((made, "\\N"), (before, "null")):
        view = resolve_view(defined_as(pipeline, "cache", definition), CATALOGUE, "w")
        assert view.named(b'{"who":null,"window_start":"then"}', "e") == f"{null}|then"  # type: ignore[attr-defined]
    for other in (f"window: {{{WINDOW}}}", "columns: [id]"):
        number = definition_of(loaded(other), "cache", ())["format"]
        assert number == 1, "an older Headwater does not misread it, and goes on with it"


def test_a_view_of_one_group_is_named_by_the_start() -> None:
    view = WindowView("w", EVENTS, ("id",), ())
    assert view.named(b'{"window_start":"1970-01-01T00:00:00Z"}', "e") == _key(_group(view, 0, []), 0) == moment(0)
