"""A document that is larger than what a search server ever has room for (10 % of its heap) is a dead letter; all else
that is too much at the moment waits. The server is played, with the words of IndexingPressure.java and
ShardIndexingPressure.java."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from elastic_transport import ApiResponseMeta, HttpHeaders, NodeConfig
from elasticsearch import ApiError, Elasticsearch

from cdc.errors import SinkUnavailable
from sinks.contract import WRITTEN, Answer, Item, Outcome
from sinks.elasticsearch.bulk import Bulk, encode, never_fits
from sinks.retry import Patience

LIMIT = 600
SMALL, LARGE = 20, 700
USED = "coordinating_and_primary_bytes=0, replica_bytes=0, all_bytes=0"
# What each server says of an operation, and the kind of it: how many bytes that has, how many there may be.
SAID = {
    "Elasticsearch 9, coordinating": "coordinating_operation_bytes={}, max_coordinating_bytes={}",
    "Elasticsearch 9, primary": "primary_operation_bytes={}, max_primary_bytes={}",
    "OpenSearch and Elasticsearch 8, coordinating": (
        "coordinating_operation_bytes={}, max_coordinating_and_primary_bytes={}"
    ),
    "OpenSearch and Elasticsearch 8, primary": "primary_operation_bytes={}, max_coordinating_and_primary_bytes={}",
    "OpenSearch that watches shards": (
        "shard_operation_bytes={0}, shard_max_coordinating_and_primary_bytes=9] OR [node_all_bytes=0, "
        "node_operation_bytes={0}, node_max_coordinating_and_primary_bytes={1}"
    ),
}
KIND = "rejected_execution_exception"


def said(words: str, size: int) -> str:
    return f"rejected execution of an operation [{USED}, {words.format(size, LIMIT)}]"


def refused_whole(words: str, size: int, _lines: int) -> Any:
    error = {"type": KIND, "reason": said(words, size)}
    meta = ApiResponseMeta(429, "1.1", HttpHeaders(), 0.0, NodeConfig("http", "h", 1))
    raise ApiError(message=KIND, meta=meta, body={"error": error})


def refused_by_item(words: str, size: int, lines: int) -> Any:
    """As a shard does: its part of the request is one operation, of which each item is told the same."""
    told = {"status": 429, "error": {"type": KIND, "reason": said(words, size)}}
    return SimpleNamespace(body={"errors": True, "items": [{"index": told}] * lines})


Refusal = Callable[[str, int, int], Any]


def sent(words: str, refuse: Refusal, *sizes: int, busy: bool = False) -> tuple[dict[int, Answer], list[int]]:
    """What becomes of documents of these sizes, and how large each request was."""
    answers: dict[int, Answer] = {}
    asked: list[int] = []

    def bulk(operations: bytes, **_: Any) -> Any:
        asked.append(len(operations))
        if busy or len(operations) > LIMIT:
            return refuse(words, len(operations), operations.count(b'"version_type"'))
        return SimpleNamespace(body={"errors": False, "items": []})

    lines = [encode(n, Item(str(n), 1, b'"%b"' % (b"x" * size))) for n, size in enumerate(sizes)]
    client = cast(Elasticsearch, SimpleNamespace(bulk=bulk))
    Bulk(client, "search").send("thing", lines, Patience("search", give_up_seconds=0.2), answers.__setitem__)
    return answers, asked


@pytest.mark.parametrize("refuse", [refused_whole, refused_by_item])
@pytest.mark.parametrize("words", SAID.values(), ids=SAID)
def test_a_document_that_never_fits_is_rejected_and_those_beside_it_are_written(words: str, refuse: Refusal) -> None:
    """It was waited for without end, and the flow stood."""
    answers, _ = sent(words, refuse, SMALL, SMALL, LARGE, SMALL)
    assert [answers.pop(n) for n in (0, 1, 3)] == [WRITTEN] * 3
    assert answers[2].outcome is Outcome.REJECTED and f"{LIMIT}" in (answers[2].reason or "")


@pytest.mark.parametrize("words", SAID.values(), ids=SAID)
def test_documents_that_are_too_many_for_a_shard_at_once_are_sent_apart(words: str) -> None:
    answers, asked = sent(words, refused_by_item, *[200] * 4)
    assert list(answers.values()) == [WRITTEN] * 4 and max(asked) > LIMIT


@pytest.mark.parametrize("refuse", [refused_whole, refused_by_item])
@pytest.mark.parametrize("words", SAID.values(), ids=SAID)
def test_a_document_waits_for_a_server_that_is_busy_with_others(words: str, refuse: Refusal) -> None:
    with pytest.raises(SinkUnavailable):
        sent(words, refuse, SMALL, busy=True)


def test_a_shards_own_limit_grows_and_says_nothing_for_good() -> None:
    words = "node_operation_bytes=60, node_max_coordinating_and_primary_bytes={}"
    assert not never_fits(
        f"shard_operation_bytes=60, shard_max_coordinating_and_primary_bytes=9] OR [{words.format(99)}"
    )
