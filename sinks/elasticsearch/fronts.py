"""Answers that a server has not given itself.

What stands in front of one (an ingress that knows no backend, a gateway's page for a login or while it is mended, a
hosted cluster in its rolling restart) answers for some time, whatever is asked: 404, a redirect, or 200 with a page.
That is no word on an index, an alias or a document: it is handed on as an outage.
"""

from __future__ import annotations

from typing import Any

import orjson
from elastic_transport import HttpHeaders, TransportError, Urllib3HttpNode
from elastic_transport.client_utils import DEFAULT, DefaultType

from cdc.masking import mask_text

# What Elasticsearch says of itself in each of its answers.
PRODUCT = "x-elastic-product"
# The same of OpenSearch 3; what hosts one may take it away.
VERSION = "x-opensearch-version"
# What OpenSearch's own 404 has in it: of a document, a point in time, a scroll. Of anything else `error` and `status`.
_ITS_OWN = frozenset(("_index", "found", "pits", "succeeded"))
# What a server's own answer has that is no object of objects, as those on indices and nodes are, to all that is asked.
_SAID = _ITS_OWN | {"_shards", "acknowledged", "docs", "errors", "nodes", "responses", "snapshots", "template"}
# Redirects that no server sends. Those that stay (301, 308) are told as they are: the address is another one by now.
_LED_AWAY = frozenset((302, 303, 307))
# A longer answer in JSON is no page, and reading it twice is dear.
_PAGE_BYTES = 4096
_SHOWN = 200


class NotReached(TransportError):
    """What has answered is not the server; passes."""


class FrontedNode(Urllib3HttpNode):
    """How requests are sent to a server that something else may stand in front of.

    Attributes:
        mark: the header by which the server names itself.
    """

    mark: str

    def perform_request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: HttpHeaders | None = None,
        request_timeout: DefaultType | float | None = DEFAULT,
    ) -> Any:
        """As the base class does it.

        Raises:
            TransportError: no answer, or ``NotReached``.
        """
        answer = self._send(method, target, body, headers, request_timeout)
        status = answer.meta.status
        if self.mark in answer.meta.headers:
            return answer
        if status in _LED_AWAY:
            raise outage(answer)
        if status != 404 and not 200 <= status < 300:
            return answer
        if method == "HEAD":  # has no body that could say who answers
            return self.perform_request("GET", target, body, headers, request_timeout)
        if not self._is_own(answer):
            raise outage(answer)
        return answer

    def _send(self, *request: Any) -> Any:
        return super().perform_request(*request)

    def _is_own(self, answer: Any) -> bool:
        """Whether a 404, or a 2xx, without the mark may be the server's own."""
        raise NotImplementedError


class ElasticsearchNode(FrontedNode):
    """How requests are sent to an Elasticsearch."""

    mark = PRODUCT

    def _is_own(self, answer: Any) -> bool:
        """Of what is a search server's, if not Elasticsearch's, the client says that."""
        return answer.meta.status != 404 and not is_page(answer)


def is_page(answer: Any) -> bool:
    """Whether an answer that is a 2xx, and has a body, is none of a search server's. Pure."""
    if "json" not in (answer.meta.headers.get("content-type") or ""):
        return True
    if len(answer.body) > _PAGE_BYTES:
        return False
    try:
        said = orjson.loads(answer.body)
    except ValueError:
        return True
    if not isinstance(said, dict) or "error" in said:  # of nothing that is asked has a server's own 2xx one at its top
        return True
    return _SAID.isdisjoint(said) and not all(isinstance(value, dict) for value in said.values())


def is_opensearchs(answer: Any) -> bool:
    """Whether an OpenSearch itself has said an answer that is a 404. Pure."""
    try:
        said = orjson.loads(answer.body)
    except ValueError:
        return False
    return isinstance(said, dict) and (not _ITS_OWN.isdisjoint(said) or {"error", "status"} <= said.keys())


def outage(answer: Any) -> NotReached:
    """What an answer of something in front of a server means. Pure."""
    words = " ".join(answer.body[:_SHOWN].decode(errors="replace").split())
    if to := answer.meta.headers.get("location"):
        words = f"it leads to {mask_text(to.partition('?')[0])}"  # what else it has may be secret
    return NotReached(
        f"the answer {answer.meta.status} is not the server's own, but of what is in front of it "
        f"(or `url` is another's): {words}"
    )
