"""Reading an index back whose documents are large: a page of them is more than the server can hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from elastic_transport import ApiResponseMeta, ConnectionTimeout, HttpHeaders, NodeConfig
from elastic_transport import ConnectionError as NoConnection
from elasticsearch import ApiError, Elasticsearch

from sinks.elasticsearch import read
from sinks.elasticsearch.settings import Target

MB = 1 << 20
PLACE = Target("v", "i", 1, {})


def refusal(status: int, kind: str = "circuit_breaking_exception") -> ApiError:
    meta = ApiResponseMeta(status, "1.1", HttpHeaders(), 0.0, NodeConfig("http", "h", 9200))
    return ApiError(kind, meta=meta, body={"error": {"type": kind}})


class Index:
    """Some documents, behind a server whose memory one answer must fit into."""

    def __init__(self, sizes: list[int], room: int, error: Exception | None = None) -> None:
        self.documents = [(str(at), bytes(size)) for at, size in enumerate(sizes)]
        self.room, self.error = room, error or refusal(429)
        self.asked, self.largest = list[int](), 0
        self.indices = SimpleNamespace(refresh=lambda index: {"_shards": {"failed": 0}})

    def _checked(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.asked.append(len(found))
        size = sum(len(one["_source"]) for one in found)
        if size > self.room:
            raise self.error
        self.largest = max(self.largest, size)
        return found

    def mget(self, index: str, docs: list[dict[str, str]], source: bool) -> Any:
        by_id = dict(self.documents)
        keys = [one["_id"] for one in docs]
        found = [{"_id": key, "found": True, "_version": 1, "_source": by_id[key]} for key in keys if key in by_id]
        self._checked(found)
        missing = [{"_id": key, "found": False} for key in keys if key not in by_id]
        return SimpleNamespace(body={"docs": [*found, *missing]}, meta=None)

    def open_point_in_time(self, **_how: Any) -> Any:
        return SimpleNamespace(body={"id": "p"})

    def close_point_in_time(self, id: str) -> None:
        """Nothing is held."""

    def search(self, *, size: int, search_after: list[int] | None, **_how: Any) -> Any:
        start = 0 if search_after is None else search_after[0] + 1
        page = enumerate(self.documents[start : start + size], start)
        found = [{"_id": key, "_version": 1, "_source": source, "sort": [at]} for at, (key, source) in page]
        return SimpleNamespace(body={"pit_id": "p", "hits": {"hits": self._checked(found)}})

    @property
    def client(self) -> Elasticsearch:
        return cast(Elasticsearch, self)


def scanned(index: Index) -> list[str]:
    return [held.key for held in read.scan(index.client, PLACE)]


def got(index: Index) -> list[str]:
    return list(read.get(index.client, PLACE, [key for key, _ in index.documents]))


@pytest.mark.parametrize("reading", [scanned, got])
def test_documents_of_20_mb_are_read_one_at_a_time_from_the_first_on(reading: Any) -> None:
    """The first page had fifty: a gigabyte, refused each time anew."""
    index = Index([20 * MB] * 60, 64 * MB)
    assert reading(index) == [key for key, _ in index.documents]
    assert index.largest == 20 * MB and set(index.asked) <= {0, 1}


@pytest.mark.parametrize("reading", [scanned, got])
@pytest.mark.parametrize(
    "error", [refusal(429), refusal(503, "search_phase_execution_exception"), NoConnection("connection was cut")]
)
def test_large_ones_behind_small_ones_are_read_by_smaller_pages(reading: Any, error: Exception) -> None:
    """Of small ones pages have grown: nothing tells that the next are large but that the server does not bear it."""
    index = Index([100] * 700 + [3 * MB] * 40, 16 * MB, error)
    assert reading(index) == [key for key, _ in index.documents]
    assert index.largest <= index.room


@pytest.mark.parametrize("error", [refusal(400, "illegal_argument_exception"), ConnectionTimeout("30 s")])
def test_another_error_is_told_at_once(error: Exception) -> None:
    index = Index([100] * 7 + [3 * MB] * 40, 16 * MB, error)
    with pytest.raises(type(error)):
        scanned(index)
    assert [count for count in index.asked if count > 7] == [8]


def test_keys_that_are_not_there_are_not_asked_for_one_by_one() -> None:
    """Of them no size is learned."""
    index = Index([], 1)
    assert read.get(index.client, PLACE, [str(at) for at in range(2_000)]) == {} and len(index.asked) <= 14


def test_small_ones_take_a_handful_of_requests_more() -> None:
    index = Index([500] * 20_000, 1 << 30)
    assert len(scanned(index)) == 20_000 and len(index.asked) <= 18
