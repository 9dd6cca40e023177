"""Webhooks, topics and standing queries of a changed file: what `plan` says of them while a `run` is alive."""

from __future__ import annotations

import pytest

from cdc.pipeline import Pipeline, loads
from operations.edits.changes import Changes, changes_between
from operations.plan import Plan

FILE = """\
version: 1
name: p
source: {{host: h, database: d, user: u, tables: [public.orders, public.other]}}
kafka: {{bootstrap: "k:1"}}
connect: {{url: "http://c:1"}}
views: {{order: {{root: orders}}, other: {{root: other}}}}
sinks:
  search: {{type: elasticsearch, url: "http://s:1", views: [order, other]}}
  cache: {{type: redis, url: "redis://r:1", views: [order, other], changes: {{}}}}
push: {{{push}}}
queries: {{{queries}}}
engine: {{state_dir: /nowhere}}
"""
SECRET = "bm90IGEgc2VjcmV0LCBidXQgbG9uZyBlbm91Z2g="
OTHER_SECRET = "bm90IGEgc2VjcmV0LCBidXQgbG9uZyBlbm91Z3g="
HOOK = f'{{view: order, url: "http://x/", secret: "{SECRET}"}}'
TOPIC = "search: search, changes: cache, push: {out: {topic: t}}"


def file(push: str = "", queries: str = "") -> Pipeline:
    return loads(FILE.format(push=push, queries=queries))


def hook(**changed: str) -> Pipeline:
    said = HOOK
    for key, value in changed.items():
        said = said.removesuffix("}") + f", {key.rstrip('_')}: {value}}}"
    return file(f"orders: {said}")


ON = "run goes on with webhook orders as the file has it then"
UNLESS = "unless one of that name was there before with the same"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (file(), hook(), [f"run begins webhook orders: all documents of view order are sent first, {UNLESS} filter"]),
        (file(), hook(from_="now"), ["run begins webhook orders"]),
        (hook(), file(), ["run ends webhook orders"]),
        (
            hook(),
            hook(filter="'a == `1`'"),
            [f"{ON}: its filter is another one, so it is sent `reset` and all documents of view order that pass it"],
        ),
        (
            hook(from_="now", filter="'a == `1`'"),
            hook(from_="now", filter="'a == `2`'"),
            [f"{ON}: its filter is another one, so it is sent `reset` first, and no documents (`from: now`)"],
        ),
        (hook(filter="'a == `1`'"), hook(filter="' a == `1` '"), []),
        (hook(filter="'a == `1`'"), hook(filter="' a == `1` '", batch="7"), [ON]),
        (
            hook(),
            file(f"orders: {HOOK.replace(SECRET, OTHER_SECRET)}"),
            [ON],
        ),
        (
            hook(batch="7"),
            file(f"orders: {HOOK.replace('http://x/', 'http://y/')}"),
            [f"{ON}: it goes on where the former address was; another name sends all first"],
        ),
        (
            hook(from_="now"),
            file(f"orders: {HOOK.replace('http://x/', 'http://y/').replace('{', '{from: now, ')}"),
            [f"{ON}: it goes on where the former address was"],
        ),
        (  # by another filter it is told all in any case
            hook(),
            file(f"orders: {HOOK.replace('http://x/', 'http://y/').replace('{', '{filter: a, ')}"),
            [f"{ON}: its filter is another one, so it is sent `reset` and all documents of view order that pass it"],
        ),
        (  # its place is kept with the view's changes: of another view it begins anew
            hook(),
            file(f"orders: {HOOK.replace('view: order', 'view: other')}"),
            [
                "run ends webhook orders",
                f"run begins webhook orders: all documents of view other are sent first, {UNLESS} filter",
            ],
        ),
        (
            file(),
            file(queries=f"order: {{{TOPIC}}}"),
            [
                f"run begins topic out: who matches now is sent first, {UNLESS} queries",
                "run begins standing queries of view order",
            ],
        ),
        (
            file(queries=f"order: {{{TOPIC}}}"),
            file(queries=f"order: {{{TOPIC}, keep: 500, saved: {{view: other}}}}"),
            [
                "run begins queries of view order from view other: all documents of view other are read first",
                "run goes on with standing queries of view order as the file has it then",
            ],
        ),
        (
            file(queries=f"order: {{{TOPIC}}}"),
            file(queries=f"order: {{{TOPIC.replace('topic: t', 'topic: u')}}}"),
            [
                "run goes on with topic out as the file has it then: it goes on where the former topic was; another "
                "name sends all first"
            ],
        ),
        (
            file(queries=f"order: {{{TOPIC}}}"),
            file(queries=f"order: {{{TOPIC.replace('topic: t', 'topic: t, queries: [b, a]')}}}"),
            [
                "run goes on with topic out as the file has it then: its queries are others, so it is sent `reset` and "
                "who matches them now"
            ],
        ),
        (
            file(queries=f"order: {{{TOPIC.replace('topic: t', 'topic: t, queries: [b, a]')}}}"),
            file(queries=f"order: {{{TOPIC.replace('topic: t', 'topic: t, queries: [a, b, a]')}}}"),
            ["run goes on with topic out as the file has it then"],
        ),
        (hook(), hook(), []),
    ],
)
def test_what_is_sent_otherwise_is_a_change_that_is_told(old: Pipeline, new: Pipeline, said: list[str]) -> None:
    """`plan` ended with 0, and its own example never called `apply`."""
    found = changes_between(old, new)
    assert (found.lines(), found.taken()) == (said, len(said))
    assert len(found.to_dict()["sends"]) == len(said) and "http" not in str(found.to_dict())
    plan = Plan("p", [], [], [], found)
    assert plan.asked() == said and plan.closing("f").startswith(f"{len(said)} change" if said else "nothing to change")


@pytest.mark.parametrize(
    ("old", "new", "anew"),
    [
        (file(), hook(), True),
        (file(), hook(from_="now"), False),
        (hook(), file(), False),
        (hook(), hook(filter="a"), True),
        (hook(from_="now"), hook(from_="now", filter="a"), True),
        (hook(), file(f"orders: {HOOK.replace('http://x/', 'http://y/')}"), False),
        (hook(), hook(batch="7"), False),
    ],
)
def test_a_program_too_is_told_whether_everything_is_sent_first(old: Pipeline, new: Pipeline, anew: bool) -> None:
    [one] = changes_between(old, new).to_dict()["sends"]
    assert one["anew"] is anew


def test_a_run_that_was_started_without_the_sink_sends_nothing_of_it() -> None:
    assert changes_between(file(), hook(), ["search"]).sends == ()
    assert len(changes_between(file(), hook(), ["cache"]).sends) == 1


def test_a_file_that_is_not_taken_up_sends_nothing() -> None:
    assert Changes(sends=changes_between(file(), hook()).sends, restart=("kafka.options",)).taken() == 0
