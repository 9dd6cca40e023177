"""Requests of deletes alone: a delete knows no ``require_alias``, and would make an index of its own."""

from __future__ import annotations

import pytest
from elasticsearch import Elasticsearch

from cdc.errors import Fenced, SinkRefused
from sinks.contract import STALE, WRITTEN, Item
from tests.support.sampling import in_turn
from tests.support.sinks import SEARCH, VIEW, Subject, doc, held, items, opened

pytestmark = [pytest.mark.stack, pytest.mark.parametrize("subject", in_turn(*SEARCH), indirect=True)]


def test_who_has_lost_the_lease_deletes_nothing_and_makes_no_index(subject: Subject, client: Elasticsearch) -> None:
    old, new = opened(subject, token=1), opened(subject, token=2)
    old.setup()
    new.setup()
    new.write(VIEW, items(2, 1))
    with pytest.raises(SinkRefused, match="gone"):
        old.forget(VIEW, ["1"])
    with pytest.raises(Fenced):
        old.write(VIEW, [Item("1", 5, None)])
    assert set(held(new)) == {"0", "1"}
    assert not client.indices.exists(index=f"{subject.name}_g1_w1")


def test_a_request_of_deletes_alone_leaves_nothing_beside_them(subject: Subject, client: Elasticsearch) -> None:
    """An item of ours in it makes no document, and changes none."""
    sink = opened(subject)
    sink.setup()
    sink.write(VIEW, [*items(3, 1), Item("headwater", 1, doc(7))])
    assert sink.write(VIEW, [Item("0", 2, None), Item("never there", 2, None)]) == [WRITTEN, WRITTEN]
    assert sink.write(VIEW, [Item("1", 0, None)]) == [STALE]
    assert held(sink) == {"1": (1, doc(1)), "2": (1, doc(2)), "headwater": (1, doc(7))}
    assert sink.write(VIEW, [Item("headwater", 2, None)]) == [WRITTEN]
    assert sink.write(VIEW, [Item("2", 2, None)]) == [WRITTEN]
    assert set(held(sink)) == {"1"}


def test_deletes_alone_are_refused_if_an_index_is_in_the_place_of_the_alias(
    subject: Subject, client: Elasticsearch
) -> None:
    """There the server takes them, and would make an answer of it that they were written."""
    sink = opened(subject, token=1)
    sink.setup()
    sink.write(VIEW, items(2, 1))
    concrete, alias = f"{subject.name}_g1", f"{subject.name}_g1_w1"
    client.indices.delete_alias(index=concrete, name=alias)
    client.indices.create(index=alias)
    with pytest.raises(SinkRefused, match="gone"):
        sink.write(VIEW, [Item("0", 2, None)])
    with pytest.raises(SinkRefused, match="gone"):
        sink.forget(VIEW, ["1"])
    assert set(held(sink)) == {"0", "1"}
    client.indices.delete(index=alias)
    sink.setup()
    assert sink.write(VIEW, [Item("0", 2, None)]) == [WRITTEN]
    assert set(held(sink)) == {"1"}


def test_drop_removes_an_empty_index_in_the_place_of_a_write_alias(subject: Subject, client: Elasticsearch) -> None:
    """As deletes of an earlier Headwater have made it. One with documents is somebody's."""
    sink = opened(subject)
    sink.setup()
    for name in ("_g1_w7", "_g1_fences_w7", "_g1_w8", "_g1_words"):
        client.indices.create(index=f"{subject.name}{name}")
    client.index(index=f"{subject.name}_g1_w8", id="1", document={}, refresh=True)
    sink.drop(VIEW)
    left = client.indices.get(index=f"{subject.name}*", expand_wildcards="all").body
    assert set(left) == {f"{subject.name}_g1_w8", f"{subject.name}_g1_words"}
