"""The HTTP client: raw ``_source`` bytes, no retries of its own, errors sorted into passing and final."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
from elastic_transport import ConnectionError as NoConnection
from elastic_transport import ConnectionTimeout, ObjectApiResponse, TransportError
from elasticsearch import ApiError, Elasticsearch, UnsupportedProductError
from elasticsearch.serializer import JsonSerializer

from cdc.errors import SinkRefused, SinkUnavailable
from cdc.json_text import end_of
from cdc.waits import waiting_for
from sinks.elasticsearch.fronts import ElasticsearchNode, NotReached
from sinks.elasticsearch.opensearch import OpenSearch, load_signer, node_class
from sinks.elasticsearch.settings import PRODUCTS, Settings

# 408 request timeout, 429 too many requests / disk watermark, 5xx (a proxy in front has some of its own, like 520): the
# same request may succeed later. But for what a server never does: 501 and 505.
PASSING = frozenset({408, 429, *range(500, 600)} - {501, 505})
# What a server says of an index, or of an alias, that is not there, and of one that somebody has closed.
NO_INDEX, CLOSED = "index_not_found_exception", "index_closed_exception"
# Errors of a single document of a multi-get that stay, and the status that a request of it alone would have. Any other
# passes, like that of a shard whose node is starting.
_STAYING = {"security_exception": 403, "illegal_argument_exception": 400}
# A flow tries until it goes through; whoever reads this of a command has its line alone.
STARTED_AGAIN = "check that the server is up; `run` goes on by itself, another command is to be given again"

# Of each request to a server that is away it says so: twice a second for as long as that lasts. We tell it once.
logging.getLogger("elastic_transport.node_pool").setLevel(logging.ERROR)

_SOURCE = b'"_source":'


class RawSourceSerializer(JsonSerializer):
    """JSON, except that each ``_source`` comes out as the very text the server sent, which is the very text that was
    indexed: parsing and printing it again would turn 1.10 into 1.1 and round long numbers.

    The marker can't occur inside a JSON string: there its second quote would have a backslash before it.
    """

    def json_dumps(self, data: Any) -> bytes:
        """Requests are small; orjson because it is there."""
        return orjson.dumps(data)

    def json_loads(self, data: bytes) -> Any:
        """Parse a response; raises SerializationError (a ValueError inside) for what isn't JSON."""
        if _SOURCE not in data:
            return orjson.loads(data)
        envelope, sources = split_sources(data)
        return _put_back(orjson.loads(envelope), iter(sources))


def split_sources(data: bytes) -> tuple[bytes, list[bytes]]:
    """Cut every ``_source`` out of a response: (the response with null in their place, the sources in order)."""
    text = data.decode()
    marker = _SOURCE.decode()
    envelope: list[str] = []
    sources: list[bytes] = []
    at = 0
    while (found := text.find(marker, at)) >= 0:
        start = found + len(marker)
        envelope.append(text[at:start])
        at = end_of(text, start)
        sources.append(text[start:at].encode())
        envelope.append("null")
    envelope.append(text[at:])
    return "".join(envelope).encode(), sources


def _put_back(parsed: Any, sources: Iterator[bytes]) -> Any:
    """Fill the nulls in document order, over the shapes that carry sources: search, multi-get, get."""
    hits = parsed["hits"]["hits"] if "hits" in parsed else parsed.get("docs", [parsed])
    for hit in hits:
        if "_source" in hit:
            hit["_source"] = next(sources)
    return parsed


def connect(settings: Settings) -> Elasticsearch:
    """A client that keeps connections alive and never repeats anything by itself (``bulk`` decides that per item).

    Needs no ``GET /``: the product check reads a header of the first real answer.
    """
    how: dict[str, Any] = {"node_class": ElasticsearchNode}
    if settings.api_key:
        how["api_key"] = settings.api_key
    elif settings.user:
        how["basic_auth"] = (settings.user, settings.password or "")
    if settings.ca_certs:
        how["ca_certs"] = settings.ca_certs
    product = Elasticsearch
    if settings.kind == "opensearch":
        signer = load_signer(settings.who, settings.signer) if settings.signer else None
        product, how = OpenSearch, how | {"node_class": node_class(signer), "meta_header": False}
    return product(
        settings.url,
        serializers={"application/json": RawSourceSerializer()},
        request_timeout=settings.request_timeout_seconds,
        max_retries=0,
        retry_on_timeout=False,
        retry_on_status=(),
        connections_per_node=settings.bulk_workers + 2,
        **how,
    )


def reason_of(error: Exception) -> str:
    """One line for a person: the server's type and reason where there is one."""
    if isinstance(error, ApiError):
        body = error.body
        cause = body.get("error") if isinstance(body, dict) else None
        if isinstance(cause, dict):
            return f"{error.meta.status} {cause.get('type')}: {cause.get('reason')}"
        return f"{error.meta.status} {str(body)[:300]}"
    return f"{type(error).__name__}: {error}"[:500]


def is_passing(error: Exception) -> bool:
    """May the same request succeed later? A certificate that is not trusted won't be, so it isn't an outage."""
    if isinstance(error, UnsupportedProductError):
        return False
    if isinstance(error, ApiError):
        return error.meta.status in PASSING or _blocked(error.body) or _let_go(error.body)
    if isinstance(error, NoConnection):
        return "CERTIFICATE_VERIFY_FAILED" not in repr(error)
    # A half-read answer of a server that is going down parses as bad JSON.
    return isinstance(error, TransportError)


def is_too_much(error: Exception) -> bool:
    """May a smaller answer be one? A server whose memory the documents of an answer do not fit into refuses it (429),
    or breaks off. One that has let a whole timeout pass is not asked again."""
    if isinstance(error, ApiError):
        return error.meta.status in PASSING
    return is_passing(error) and not isinstance(error, ConnectionTimeout)


def _blocked(body: Any) -> bool:
    """A cluster block (read-only after a full disk, no master yet) is lifted by a person or by the server."""
    cause = body.get("error") if isinstance(body, dict) else None
    return isinstance(cause, dict) and cause.get("type") == "cluster_block_exception"


def _let_go(body: Any) -> bool:
    """A point in time lies in its node's memory, and is gone with it (404): who reads from the start gets another."""
    cause = body.get("error") if isinstance(body, dict) else None
    causes = cause.get("root_cause") or () if isinstance(cause, dict) else ()
    return any(one.get("type") == "search_context_missing_exception" for one in causes)


def part_of(answer: ObjectApiResponse[Any], *names: str) -> Any:
    """What is under names that each of a server's answers of a kind has.

    Args:
        answer: to a request that went through.
        names: of the part, from outside to inside.

    Raises:
        NotReached: it has none, so it is the page of something in front of the server.
    """
    found = answer.body
    for name in names:
        if not isinstance(found, dict) or name not in found:
            raise NotReached(
                f"an answer without `{'.'.join(names)}` is not the server's own, but of what is in front of it: "
                f"{str(answer.body)[:200]}"
            )
        found = found[name]
    return found


def each_document(answer: ObjectApiResponse[Any]) -> list[dict[str, Any]]:
    """What a multi-get says of each document. It answers 200 though it could not read some of them.

    Args:
        answer: the server's.

    Returns:
        A thing for each document, in order. One that has an ``error`` has that of an index that is not there or closed.

    Raises:
        ApiError: a document could not be read for another reason, as if it had been asked for alone.
        NotReached: as ``part_of``.
    """
    documents: list[dict[str, Any]] = part_of(answer, "docs")
    for error in (document["error"] for document in documents if "error" in document):
        kind = str(error.get("type"))
        if kind not in (NO_INDEX, CLOSED):
            raise ApiError(kind, meta=replace(answer.meta, status=_STAYING.get(kind, 503)), body={"error": error})
    return documents


@contextmanager
def translated(who: str, doing: str) -> Iterator[None]:
    """Turn the client's errors into ours, and let it be told who is waited for.

    Raises:
        SinkUnavailable: transient.
        SinkRefused: final, with the server's words.
    """
    try:
        with waiting_for(f"{who}: {doing}"):
            yield
    except (ApiError, TransportError) as error:
        what = f"{who}: {doing} failed: {reason_of(error)}"
        if is_passing(error):
            raise SinkUnavailable(what, fix=STARTED_AGAIN) from error
        raise refused(what, error) from error


def no_copy(index: str) -> SinkUnavailable:
    """A shard of an index is on no node now, so what is told of the index lacks what lies in it."""
    return SinkUnavailable(f"no copy of a shard of index {index} has started yet", fix=STARTED_AGAIN)


def refused(what: str, error: Exception) -> SinkRefused:
    """A final error with the way out that fits its status."""
    status = error.meta.status if isinstance(error, ApiError) else None
    if status in (401, 403):
        return SinkRefused(what, fix="check user, password, api_key or signer of this sink and the rights of that user")
    if isinstance(error, UnsupportedProductError) or status == 406:
        return SinkRefused(
            what,
            means="this server is none that the sink's `type` is for",
            fix="check the url; or set `type: opensearch` if it is an OpenSearch",
        )
    if status == 405 or "UNSUPPORTED" in what:
        names = " or ".join(product.name for product in PRODUCTS.values())
        return SinkRefused(what, fix=f"is the url really that of {names}?")
    return SinkRefused(what, means="the server will not accept this as things are; nothing more was written")
