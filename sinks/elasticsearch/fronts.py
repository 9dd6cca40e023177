"""A 404 that a server has not said itself.

What stands in front of one (an ingress that knows no backend, a hosted cluster in its rolling restart) answers so for
some seconds, whatever is asked. That is no word on an index, an alias or a document: it is handed on as an outage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
from elastic_transport import HttpHeaders, Urllib3HttpNode

# What Elasticsearch says of itself in each of its answers.
PRODUCT = "x-elastic-product"
# The same of OpenSearch 3; what hosts one may take it away.
_VERSION = "x-opensearch-version"
# What OpenSearch's own 404 has in it: of a document, a point in time, a scroll. Of anything else `error` and `status`.
_ITS_OWN = frozenset(("_index", "found", "pits", "succeeded"))
_SHOWN = 200


class ElasticsearchNode(Urllib3HttpNode):
    """How requests are sent to an Elasticsearch."""

    def perform_request(self, *args: Any, **kwargs: Any) -> Any:
        """As the base class does it."""
        answer = super().perform_request(*args, **kwargs)
        if answer.meta.status == 404 and PRODUCT not in answer.meta.headers:
            return outage(answer)
        return answer


def is_opensearchs(answer: Any) -> bool:
    """Whether an OpenSearch itself has said an answer that is a 404. Pure."""
    if _VERSION in answer.meta.headers:
        return True
    try:
        said = orjson.loads(answer.body)
    except ValueError:
        return False
    return isinstance(said, dict) and (not _ITS_OWN.isdisjoint(said) or {"error", "status"} <= said.keys())


def outage(answer: Any) -> Any:
    """An answer of something in front of a server, as what it means: the server is not reached now. Pure."""
    words = " ".join(answer.body[:_SHOWN].decode(errors="replace").split())
    error = {
        "type": "not_reached",
        "reason": f"the answer 404 is not the server's own, but of what is in front of it: {words}",
    }
    headers = HttpHeaders({**answer.meta.headers, "content-type": "application/json"})
    return answer._replace(
        meta=replace(answer.meta, status=503, headers=headers), body=orjson.dumps({"error": error, "status": 503})
    )
