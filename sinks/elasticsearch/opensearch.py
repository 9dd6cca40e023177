"""All that is otherwise with OpenSearch, which was forked from Elasticsearch 7.10 (docs/decisions/search-servers.md).

The verbs that this sink uses, and the answers to them, are the same in both servers, so one client words them. What
differs: what a request says it accepts, points in time, the names of a few field types, and what signs a request.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

from elastic_transport import BaseNode, HttpHeaders
from elasticsearch import Elasticsearch

from cdc.errors import ConfigError
from sinks.elasticsearch.fronts import PRODUCT, VERSION, FrontedNode, is_opensearchs, is_page

_JSON = "application/json"
# Elasticsearch's client asks with these words for answers in the format of its own version.
_COMPATIBLE = (("application/vnd.elasticsearch+", "application/"), ("; compatible-with=8", ""))
# Field types of our defaults, and of users who come from Elasticsearch, that go by another name.
_TYPES = {"flattened": "flat_object"}
# Parameters that the other type does not have.
_ONLY_THERE = {"flattened": frozenset(("ignore_above", "depth_limit", "eager_global_ordinals"))}


class Signer(Protocol):
    """What signs requests; opensearch-py's ``AWSV4Signer`` is one."""

    def sign(self, method: str, url: str, body: bytes | None, headers: dict[str, str] | None = None) -> dict[str, str]:
        """The headers to send, of a request with these."""
        ...


class OpenSearch(Elasticsearch):
    """The client, of an OpenSearch."""


def node_class(signer: Signer | None) -> type[BaseNode]:
    """How requests are sent to an OpenSearch; signed, if there is who signs."""

    class Node(FrontedNode):
        mark = VERSION

        def perform_request(self, *args: Any, **kwargs: Any) -> Any:
            answer = super().perform_request(*args, **kwargs)
            # Without it the client takes no answer. Which server this is has been asked of the nodes.
            answer.meta.headers[PRODUCT] = "Elasticsearch"
            return answer

        def _send(
            self, method: str, target: str, body: bytes | None, headers: HttpHeaders | None, request_timeout: Any
        ) -> Any:
            said = {name: _plain(value) for name, value in (headers or {}).items()}
            if signer is not None:
                said |= signer.sign(method, f"{self.base_url}{target}", body or None, said)
            return super()._send(method, target, body, HttpHeaders(said), request_timeout)

        def _is_own(self, answer: Any) -> bool:
            return is_opensearchs(answer) if answer.meta.status == 404 else not is_page(answer)

    return Node


def unsigned(url: str, request_timeout: float = 60.0) -> OpenSearch:
    """A client of a server that asks for no login.

    Args:
        url: its address.
        request_timeout: of each request, in seconds.
    """
    return OpenSearch(url, request_timeout=request_timeout, node_class=node_class(None))


def _plain(value: str) -> str:
    for theirs, plain in _COMPATIBLE:
        value = value.replace(theirs, plain)
    return value


def load_signer(who: str, name: str) -> Signer:
    """The signer of a sink.

    Args:
        who: the sink, for messages.
        name: module:function, called without arguments.

    Raises:
        ConfigError: no such function, it failed, or what it returned signs nothing.
    """
    module, _, function = name.partition(":")
    try:
        signer = getattr(importlib.import_module(module), function)()
    except Exception as error:
        raise ConfigError(
            f"{who}: signer {name} could not be had: {type(error).__name__}: {error}",
            fix="is the module on the PYTHONPATH of `headwater`, and of its workers?",
        ) from error
    if not callable(getattr(signer, "sign", None)):
        raise ConfigError(
            f"{who}: what signer {name} returned has no `sign`",
            fix="return one like opensearchpy.helpers.signer.AWSV4Signer: sign(method, url, body, headers) -> headers",
        )
    loaded: Signer = signer
    return loaded


def open_point(client: Elasticsearch, index: str, keep_alive: str) -> str:
    """Hold an index's documents as they are now; the id of that. Raises the client's errors."""
    if not isinstance(client, OpenSearch):
        return str(client.open_point_in_time(index=index, keep_alive=keep_alive).body["id"])
    # Without it one is made of those shards that are there; Elasticsearch makes none then.
    params = {"keep_alive": keep_alive, "allow_partial_pit_creation": "false"}
    said = client.perform_request("POST", f"/{index}/_search/point_in_time", params=params, headers={"accept": _JSON})
    return str(said.body["pit_id"])


def close_point(client: Elasticsearch, point: str) -> None:
    """Let go of them. Raises the client's errors."""
    if isinstance(client, OpenSearch):
        headers = {"accept": _JSON, "content-type": _JSON}
        client.perform_request("DELETE", "/_search/point_in_time", body={"pit_id": [point]}, headers=headers)
    else:
        client.close_point_in_time(id=point)


def field_types(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping's ``properties``, of Elasticsearch's types, in those of OpenSearch."""
    return {name: _field(how) if isinstance(how, Mapping) else how for name, how in properties.items()}


def _field(how: Mapping[str, Any]) -> dict[str, Any]:
    kind = how.get("type")
    gone = _ONLY_THERE.get(kind, frozenset()) if isinstance(kind, str) else frozenset()
    field = {key: value for key, value in how.items() if key not in gone}
    if isinstance(kind, str):
        field["type"] = _TYPES.get(kind, kind)
    return field | {part: field_types(field[part]) for part in ("properties", "fields") if part in field}
