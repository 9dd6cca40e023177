"""The examples with joined views: documents equal plain SQL though the pipeline may not read the source's tables."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples.profiles import load as profiles
from examples.social import load as social
from examples.wiki import load as wiki
from tests.support.joined import Joined
from tests.support.servers import Servers, servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

# Example, view, and the server that holds it.
VIEWS = [
    (social, "home_timeline", "redis"),
    (social, "tweet_card", "redis"),
    (wiki, "page", "redis"),
    (wiki, "page", "elasticsearch"),
    (profiles, "profile", "elasticsearch"),
]
NAMES = [f"{view}-{server}" for _, view, server in VIEWS]
EXAMPLES = [social, wiki, profiles]


@pytest.fixture(scope="module")
def local_stack() -> Servers:
    """The servers; started when they do not run."""
    stack = servers()
    stack.up()
    return stack


@pytest.fixture(scope="module")
def examples(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """All examples behind one running pipeline, whose role has lost every table before the runner began."""
    made = Joined(local_stack, tmp_path_factory.mktemp("joined"), loaders=EXAMPLES)
    try:
        made.prepare()
        made.assert_closed()
        made.start()
        yield made
    finally:
        made.close()


def path(loader: ModuleType, name: str) -> Path:
    return Joined.folder_of(loader) / name


def truth(examples: Joined, loader: ModuleType) -> dict[str, dict[str, Any]]:
    return examples.truth(path(loader, "truth.sql").read_text(encoding="utf-8"))


def documents(examples: Joined, view: str, server: str) -> dict[str, Any]:
    return examples.in_redis(view) if server == "redis" else examples.in_elasticsearch(view)


def assert_settled(examples: Joined, loader: ModuleType, view: str, server: str) -> dict[str, Any]:
    wanted = truth(examples, loader)[view]
    found = examples.settled(lambda: documents(examples, view, server), wanted)
    assert found == wanted
    return wanted


@pytest.mark.parametrize(("loader", "view", "server"), VIEWS, ids=NAMES)
def test_after_the_snapshot_documents_equal_plain_sql(
    examples: Joined, loader: ModuleType, view: str, server: str
) -> None:
    assert len(assert_settled(examples, loader, view, server)) >= 10


@pytest.mark.parametrize("loader", EXAMPLES, ids=lambda loader: Joined.folder_of(loader).name)
def test_each_script_changes_documents(examples: Joined, loader: ModuleType) -> None:
    before = truth(examples, loader)
    examples.apply_script(path(loader, "changes.sql"))
    after = truth(examples, loader)
    assert {view for view in before if before[view] != after[view]} == set(before)


@pytest.mark.parametrize(("loader", "view", "server"), VIEWS, ids=NAMES)
def test_after_the_changes_documents_equal_plain_sql(
    examples: Joined, loader: ModuleType, view: str, server: str
) -> None:
    assert_settled(examples, loader, view, server)


def test_what_the_social_readme_says(examples: Joined) -> None:
    cards, timelines = examples.in_redis("tweet_card"), examples.in_redis("home_timeline")
    card = cards["1001"]  # ten likes of eight people; then one goes, one moves, and an author is deleted with hers
    assert (card["likes"], card["people"], card["hearts"]) == (6, 6, 6)
    assert {who for who, one in timelines.items() if 1001 in [t["tweet_id"] for t in one["timeline"]]} == {
        who for who, one in timelines.items() if 1 in [f["followee"]["user_id"] for f in one["follows"]]
    }
    assert timelines["26"]["timeline"] == [] and "8" not in timelines
    # A reader's own merge of the nested lists begins as `timeline` does.
    for one in timelines.values():
        lists = [[(t["posted"], t["tweet_id"]) for t in f["followee"]["tweets"]] for f in one["follows"]]
        merged = [tweet for _, tweet in heapq.merge(*lists, reverse=True)]
        assert merged[:20] == [tweet["tweet_id"] for tweet in one["timeline"]]


def test_what_the_wiki_readme_says(examples: Joined) -> None:
    pages = examples.in_redis("page")
    assert 1002 not in [edit["edit_id"] for edit in pages["2"]["history"]]
    assert pages["2"]["history"][0]["editor"] == {"name": "Renamed"}
    assert pages["6"]["current"] is None and pages["6"]["stub"] is True
    assert (pages["11"]["edits_total"], pages["11"]["length"], pages["11"]["last_edited"]) == (0, None, None)
    assert not {"5", "8"} & set(pages)


def test_a_companys_new_name_reaches_every_profile(examples: Joined) -> None:
    shown = [str(profile) for profile in examples.in_elasticsearch("profile").values()]
    assert not [text for text in shown if "'name': 'Headwater'" in text]
    assert len([text for text in shown if "'Headwater AG'" in text]) > 5


def test_nobody_asked_the_source_until_verify_does(examples: Joined) -> None:
    """The tables are closed all the time; only ``verify``, whose business it is, gets to read them."""
    examples.assert_closed()
    report = examples.assert_equal(seconds=30)
    compared = sorted((sink["sink"], view["view"]) for sink in report["sinks"] for view in sink["views"])
    assert compared == [
        ("profiles_search", examples.view("profile")),
        ("social_cache", examples.view("home_timeline")),
        ("social_cache", examples.view("tweet_card")),
        ("wiki_cache", examples.view("page")),
        ("wiki_search", examples.view("page")),
    ]
    assert not examples.dead_letters()


@pytest.mark.parametrize("loader", EXAMPLES, ids=lambda loader: Joined.folder_of(loader).name)
def test_a_second_load_changes_nothing(local_stack: Servers, examples: Joined, loader: ModuleType) -> None:
    before = truth(examples, loader)
    loader.load(local_stack.endpoints, examples.name, examples.owner)
    assert truth(examples, loader) == before
