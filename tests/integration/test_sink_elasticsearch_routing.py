"""Elasticsearch's routing by a part of the key, over an index of several shards."""

from __future__ import annotations

from typing import Any

import pytest
from elasticsearch import Elasticsearch, NotFoundError

from cdc.keys import document_id, is_stray
from sinks.contract import STALE, UNVERSIONED, WRITTEN, Item
from tests.support.sampling import in_turn
from tests.support.sinks import PROPERTIES, SEARCH, VIEW, Subject, doc, opened

pytestmark = [pytest.mark.stack, pytest.mark.parametrize("subject", in_turn(*SEARCH), indirect=True)]

SHARDS = 5
KEYS = {document_id([f"tenant {n % 7}|\\é", n]): f"tenant {n % 7}|\\é" for n in range(40)}


def routed(subject: Subject) -> Any:
    target = {"index": subject.name, "properties": PROPERTIES, "routing": {"at": 0, "of": 2}}
    sink = opened(subject, targets={VIEW: target}, settings={"number_of_shards": SHARDS})
    sink.setup()
    return sink


def filled(subject: Subject, version: int = 10) -> Any:
    sink = routed(subject)
    assert set(sink.write(VIEW, [Item(key, version, doc(1, "first")) for key in KEYS])) == {WRITTEN}
    return sink


def test_a_document_lies_where_a_part_of_its_key_says(subject: Subject, client: Elasticsearch) -> None:
    sink = filled(subject)
    assert {held.key: held.version for held in sink.scan(VIEW)} == dict.fromkeys(KEYS, 10)
    assert sorted(sink.get(VIEW, [*KEYS, "tenant 1|nowhere"])) == sorted(KEYS)
    assert {held.key for held in sink.sample(VIEW, 15, 1)} <= set(KEYS)
    for tenant in set(KEYS.values()):
        found = client.search(index=subject.name, routing=tenant, size=100)
        assert found["_shards"]["total"] == 1
        assert {key for key in KEYS if KEYS[key] == tenant} <= {hit["_id"] for hit in found["hits"]["hits"]}
    assert all(client.get(index=subject.name, id=key, routing=of)["_routing"] == of for key, of in KEYS.items())
    # By the id alone they would be spread over all shards: most are not found without their routing.
    lost = [key for key in KEYS if not client.exists(index=subject.name, id=key)]
    assert len(lost) > len(KEYS) // 2


def test_versions_deletes_and_tombstones_hold_at_that_place(subject: Subject, client: Elasticsearch) -> None:
    sink, (first, second, third, *_) = filled(subject), KEYS
    assert sink.write(VIEW, [Item(first, 9, doc(2, "old")), Item(first, 10, doc(3, "again"))]) == [STALE, WRITTEN]
    assert sink.write(VIEW, [Item(second, 20, None), Item(third, UNVERSIONED, None)]) == [WRITTEN, WRITTEN]
    assert sorted(sink.get(VIEW, list(KEYS))) == sorted(set(KEYS) - {second, third})
    client.indices.close(index=f"{subject.name}_g1")  # what the shards remembered of deletes is gone
    client.indices.open(index=f"{subject.name}_g1", wait_for_active_shards="all")
    late = [Item(second, 15, doc(4, "late")), Item(third, 9, doc(4, "late"))]
    assert sink.write(VIEW, late) == [STALE, STALE]
    assert sink.write(VIEW, [Item(second, 21, doc(5, "new"))]) == [WRITTEN]
    assert sink.get(VIEW, [second])[second].version == 21
    sink.forget(VIEW, [first])
    assert first not in sink.get(VIEW, [first])
    assert sink.write(VIEW, [Item(first, 1, doc(6, "from the start"))]) == [WRITTEN]


def test_what_lies_under_another_routing_is_told_and_removed_alone(subject: Subject, client: Elasticsearch) -> None:
    sink, (key, *_) = filled(subject), KEYS
    at_home = client.get(index=subject.name, id=key, routing=KEYS[key])["_source"]
    # Of one shard the last writer's document is there: three other shards than ours.
    places = {_shard(client, subject, other): other for other in map(str, range(50))}
    del places[_shard(client, subject, KEYS[key])]
    for other in list(places.values())[:3]:
        client.index(index=f"{subject.name}_g1", id=key, routing=other, document={"n": 9}, refresh=True)
    strays = {held.key: held for held in sink.scan(VIEW) if is_stray(held.key)}
    found = client.search(index=subject.name, query={"ids": {"values": [key]}})
    assert (len(found["hits"]["hits"]), len(strays)) == (4, 3)
    assert sink.get(VIEW, list(strays)) == strays
    answers = sink.write(VIEW, [Item(one, held.version, None) for one, held in strays.items()])
    assert set(answers) == {WRITTEN}
    assert {held.key for held in sink.scan(VIEW)} == set(KEYS)
    assert client.get(index=subject.name, id=key, routing=KEYS[key])["_source"] == at_home
    with pytest.raises(NotFoundError):
        client.get(index=f"{subject.name}_g1_fences", id=f".{next(iter(strays))[1:]}")


def _shard(client: Elasticsearch, subject: Subject, routing: str) -> int:
    ((shard,),) = client.search_shards(index=f"{subject.name}_g1", routing=routing)["shards"]
    return int(shard["shard"])
