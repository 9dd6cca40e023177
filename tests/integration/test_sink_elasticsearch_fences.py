"""Old fences are forgotten: at a sink's start, and while it runs."""

from __future__ import annotations

import time

import pytest
from elasticsearch import Elasticsearch

from sinks.contract import WRITTEN, Item
from tests.support.sampling import in_turn
from tests.support.sinks import SEARCH, VIEW, Subject, doc, opened

pytestmark = [pytest.mark.stack, pytest.mark.parametrize("subject", in_turn(*SEARCH), indirect=True)]


def fences(client: Elasticsearch, subject: Subject) -> set[str]:
    """Ids of all fences, without what is kept beside them."""
    index = f"{subject.name}_g1_fences"
    client.indices.refresh(index=index)
    hits = client.search(index=index, size=10_000, source=False).body["hits"]["hits"]
    return {hit["_id"] for hit in hits if hit["_id"].startswith(".")}


def test_fences_are_forgotten_when_no_replay_can_reach_them(subject: Subject, client: Elasticsearch) -> None:
    sink = opened(subject, settings={"gc_deletes": "0s"}, fence_seconds=1)
    sink.setup()
    sink.write(VIEW, [Item(str(n), 20, None) for n in range(50)])
    assert len(fences(client, subject)) == 50
    time.sleep(1.2)
    opened(subject, settings={"gc_deletes": "0s"}, fence_seconds=1).setup()
    assert fences(client, subject) == set()
    assert sink.write(VIEW, [Item("1", 21, doc(1))]) == [WRITTEN]


def test_fences_are_forgotten_while_a_sink_runs_and_writes_do_not_wait_for_it(
    subject: Subject, client: Elasticsearch
) -> None:
    """Rows that never matched a view's condition leave one for each of their changes, and a sink runs for months."""
    sink = opened(subject, settings={"gc_deletes": "0s"}, fence_seconds=2, purge_seconds=0.5)
    sink.setup()
    sink.write(VIEW, [Item(str(n), 20, None) for n in range(6000)])  # more than a page
    time.sleep(2.2)
    sink.write(VIEW, [Item("young", 21, None)])
    until = time.monotonic() + 20
    slowest = 0.0
    while fences(client, subject) - {".young"} and time.monotonic() < until:
        began = time.monotonic()
        assert sink.write(VIEW, [Item("beside", 30, doc(1))]) == [WRITTEN]
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.05)
    assert fences(client, subject) <= {".young"}
    assert slowest < 2
    assert client.get(index=f"{subject.name}_g1_fences", id="highest").body["_version"] == 21


def test_one_of_many_workers_purges(subject: Subject) -> None:
    first, second = opened(subject), opened(subject)
    first.setup()
    (place,) = first._settings.targets.values()
    assert [one._fences.take_turn(place, 10**7) for one in (first, second, first)] == [True, False, False]


def test_a_purge_that_fails_leaves_writes_alone(subject: Subject, client: Elasticsearch) -> None:
    sink = opened(subject, purge_seconds=0.01)
    sink.setup()
    client.indices.delete(index=f"{subject.name}_g1_fences")
    (place,) = sink._settings.targets.values()
    sink._housekeeping.look(place)
    sink._housekeeping.join(30)
    assert not client.indices.exists(index=f"{subject.name}_g1_fences"), "nor is it made without its mapping"
