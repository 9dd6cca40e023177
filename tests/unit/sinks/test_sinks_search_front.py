"""A 404 of what stands in front of a search server (an ingress, a hosted cluster in its restart) is no word of the
server's: nothing is taken for gone by it. The server is a real one of HTTP, that answers what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from elasticsearch import ApiError, NotFoundError

from cdc.errors import SinkUnavailable
from sinks.contract import Item
from sinks.elasticsearch.client import connect, is_passing, reason_of
from sinks.elasticsearch.settings import read_settings
from sinks.elasticsearch.sink import ElasticsearchSink

HTML = b"<html><h1>404 Not Found</h1>nginx</html>"
MISSING = b'{"error":{"type":"index_not_found_exception","reason":"no such index [x]"},"status":404}'
KINDS = ("elasticsearch", "opensearch")
# What Elasticsearch says of itself in every answer, and OpenSearch 3 (a hosted one need not).
OWN = {"elasticsearch": {"X-elastic-product": "Elasticsearch"}, "opensearch": {"X-OpenSearch-Version": "OpenSearch/3"}}


@contextmanager
def answering(body: bytes, headers: dict[str, str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Whatever is asked: a 404; and what was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append(self.command)
            self.send_response(404)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("content-type", "application/json" if body.startswith(b"{") else "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_HEAD = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def config(kind: str, url: str) -> dict[str, Any]:
    return {"type": kind, "name": "search", "url": url, "targets": {"thing": {}}, "give_up_seconds": 1}


@pytest.mark.parametrize("body", [HTML, b'{"ok":false,"message":"Unknown resource."}', b'{"error":"not found"}', b"[]"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_404_of_a_proxy_passes(kind: str, body: bytes) -> None:
    with answering(body) as (url, _), connect(read_settings(config(kind, url))) as client:
        asked = [
            lambda: client.indices.exists(index="x"),
            lambda: client.options(ignore_status=404).indices.get_alias(name="x"),
            lambda: client.options(ignore_status=404).get(index="x", id="highest"),
            lambda: client.bulk(index="x", operations=[b'{"delete":{"_id":"a"}}\n']),
        ]
        for ask in asked:
            with pytest.raises(ApiError) as raised:
                ask()
            assert is_passing(raised.value)
        assert "in front of it" in reason_of(raised.value) and body.decode()[:20] in reason_of(raised.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_waits_behind_a_proxy_that_knows_no_server(kind: str) -> None:
    """It failed for good ('the index is gone'), or took 'nothing was ever deleted' for said."""
    with answering(HTML) as (url, _):
        for item in (Item("a", 4, b'{"n":1}'), Item("a", 5, None)):
            with pytest.raises(SinkUnavailable, match="in front of it"):
                ElasticsearchSink(config(kind, url)).write("thing", [item])


@pytest.mark.parametrize(
    ("kind", "headers", "body"),
    [
        ("elasticsearch", OWN["elasticsearch"], MISSING),
        ("opensearch", OWN["opensearch"], MISSING),
        ("opensearch", {}, MISSING),
        ("opensearch", {}, b'{"error":"alias [x] missing","status":404}'),
    ],
)
def test_a_servers_own_404_is_what_it_says(kind: str, headers: dict[str, str], body: bytes) -> None:
    with answering(body, headers) as (url, asked), connect(read_settings(config(kind, url))) as client:
        assert client.indices.exists(index="x").body is False
        # A HEAD has no body: where no header says who answers, the same is asked for with one.
        assert asked == (["HEAD"] if headers else ["HEAD", "GET"])
        assert "error" in client.options(ignore_status=404).indices.get_alias(name="x").body
        with pytest.raises(NotFoundError):
            client.bulk(index="x", operations=[b'{"delete":{"_id":"a"}}\n'])


@pytest.mark.parametrize("body", [b'{"_index":"x","_id":"a","found":false}', b'{"_index":"x","result":"not_found"}'])
def test_a_document_that_is_not_there(body: bytes) -> None:
    for kind in KINDS:
        with (
            answering(body, OWN["elasticsearch"] if kind == "elasticsearch" else {}) as (url, _),
            connect(read_settings(config(kind, url))) as client,
        ):
            assert client.options(ignore_status=404).get(index="x", id="a").meta.status == 404
