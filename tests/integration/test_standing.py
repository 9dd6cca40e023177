"""Standing queries on a real Redis and a real search server: entered, changed, left, each told once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import servers
from tests.support.sinks import subject_on
from tests.support.standing import Matching, StandingWorld, folded

pytestmark = pytest.mark.stack


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StandingWorld]:
    """OpenSearch: the local Elasticsearch is a minimal one, without its percolator."""
    with subject_on(servers(), "redis") as cache, subject_on(servers(), "opensearch") as search:
        made = StandingWorld(cache, search, tmp_path)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def matching(world: StandingWorld) -> Iterator[Matching]:
    made = world.matching()
    yield made
    made.close()


def test_a_document_enters_changes_and_leaves(world: StandingWorld, matching: Matching) -> None:
    world.put("big", range={"n": {"gte": 10}})
    world.put("word", match={"t": "blue"})
    assert world.states() == {"big": "pending", "word": "pending"}
    matching.until_idle()
    assert world.states() == {"big": "active", "word": "active"}
    world.write(1, a={"n": 10, "t": "red"}, b={"n": 1, "t": "blue sky"})
    matching.until_idle()
    world.write(2, a={"n": 11, "t": "blue"}, b=None)
    world.write(3, a={"n": 1, "t": "blue"})
    matching.until_idle()
    assert [(one["key"], one["version"], one["queries"]) for one in world.told()] == [
        ("a", 1, {"big": "entered"}),
        ("b", 1, {"word": "entered"}),
        ("a", 2, {"big": "changed", "word": "entered"}),
        ("b", 2, {"word": "left"}),
        ("a", 3, {"big": "left", "word": "changed"}),
    ]
    assert world.told()[3]["document"] is None and world.told()[4]["document"] == {"n": 1, "t": "blue"}
    assert folded(world.told()) == world.snapshot() == {"a": {"word"}}
