"""What stands in front of a search server (an ingress, a gateway with a page, a hosted cluster in its restart) says no
word of the server's: nothing is taken for gone, or there, by it. The server is a real one of HTTP, that answers what it
is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from elastic_transport import TransportError
from elasticsearch import ApiError, NotFoundError

from cdc.errors import SinkRefused, SinkUnavailable
from sinks.contract import Item
from sinks.elasticsearch.client import connect, is_passing, reason_of
from sinks.elasticsearch.settings import read_settings
from sinks.elasticsearch.sink import ElasticsearchSink

HTML = b"<html><h1>404 Not Found</h1>nginx</html>"
MISSING = b'{"error":{"type":"index_not_found_exception","reason":"no such index [x]"},"status":404}'
PAGE = b"<html>Page found: we are back soon</html>"
JSON_PAGES = [
    b'{"status":"maintenance"}',
    b'{"error":{"code":503,"message":"maintenance"}}',
    b'{"message":"maintenance","details":[]}',
    b'{"message":"maintenance","details":{}}',
]
PAGES = [
    (200, PAGE),
    *((200, page) for page in JSON_PAGES),
    (302, PAGE),
    (303, b""),
    (307, PAGE),
    (520, PAGE),
    (530, b""),
]
KINDS = ("elasticsearch", "opensearch")
# What Elasticsearch says of itself in every answer, and OpenSearch 3 (a hosted one need not).
OWN = {"elasticsearch": {"X-elastic-product": "Elasticsearch"}, "opensearch": {"X-OpenSearch-Version": "OpenSearch/3"}}


@contextmanager
def answering(body: bytes, headers: dict[str, str] | None = None, status: int = 404) -> Iterator[tuple[str, list[str]]]:
    """Whatever is asked: the same; and what was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append(self.command)
            self.send_response(status)
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
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
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
            with pytest.raises((ApiError, TransportError)) as raised:
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


@pytest.mark.parametrize(("status", "body"), PAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_a_gateway_passes(kind: str, status: int, body: bytes) -> None:
    """A sink failed for good: by a raw TypeError, or as one whose fences are gone, or whose server is another."""
    with answering(body, status=status) as (url, _), connect(read_settings(config(kind, url))) as client:
        asked = [
            lambda: client.indices.exists(index="x"),
            lambda: client.options(ignore_status=404).get(index="x", id="highest"),
            lambda: client.bulk(index="x", operations=[b'{"delete":{"_id":"a"}}\n']),
        ]
        for ask in asked:
            with pytest.raises((ApiError, TransportError)) as raised:
                ask()
            assert is_passing(raised.value), raised.value
        assert body.decode()[:20] in reason_of(raised.value) and str(status) in reason_of(raised.value)
        sink = ElasticsearchSink(config(kind, url) | {"give_up_seconds": 0.1})
        for item in (Item("a", 4, b'{"n":1}'), Item("a", 5, None)):
            with pytest.raises(SinkUnavailable, match=str(status)):
                sink.write("thing", [item])
        for ask in (sink.setup, lambda: sink.there("thing"), lambda: sink.living("thing")):
            with pytest.raises(SinkUnavailable, match=str(status)):
                ask()


@pytest.mark.parametrize("headers", OWN.values())
def test_a_page_that_looks_like_a_servers_answer_makes_no_fence_gone(headers: dict[str, str]) -> None:
    kind = next(kind for kind in KINDS if OWN[kind] == headers)
    with answering(b'{"error":{"code":7}}', headers, 200) as (url, _):
        sink = ElasticsearchSink(config(kind, url) | {"give_up_seconds": 0.1})
        for item in (Item("a", 4, b'{"n":1}'), Item("a", 5, None)):
            with pytest.raises(SinkUnavailable, match="in front of it"):
                sink.write("thing", [item])
        for ask in (lambda: sink.versions("thing", ["a"]), lambda: sink.there("thing"), lambda: sink.living("thing")):
            with pytest.raises(SinkUnavailable, match="in front of it"):
                ask()
        with pytest.raises(SinkUnavailable, match="in front of it"):
            sink.setup()


def test_where_a_redirect_leads_is_told_without_its_secrets() -> None:
    to = {"location": "https://u:pa55@login.example.org/in?state=5ecret#5ecret"}
    for kind in KINDS:
        with answering(PAGE, to, 302) as (url, _), connect(read_settings(config(kind, url))) as client:
            with pytest.raises((ApiError, TransportError)) as raised:
                client.mget(index="x", ids=["a"])
            said = reason_of(raised.value)
            assert "login.example.org/in" in said and "5ecret" not in said and "pa55" not in said


@pytest.mark.parametrize("status", [301, 308, 501, 505])
@pytest.mark.parametrize("kind", KINDS)
def test_what_stays_is_final(kind: str, status: int) -> None:
    with answering(PAGE, {"location": "http://127.0.0.1:9/"}, status) as (url, _):
        sink = ElasticsearchSink(config(kind, url))
        with pytest.raises(SinkRefused, match=str(status)):
            sink.there("thing")


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b'{"nodes":{}}', b'{"x_g1":{"aliases":{}}}', b'{"acknowledged":true}', b'{"errors":false,"took":3}'),
        *(b'{"_index":"x","_id":"a","_version":4,"found":true}', b'{"a":{"b":"%s"}}' % (b"c" * 9000)),
    ],
)
def test_a_server_that_does_not_name_itself_is_known_by_what_it_says(body: bytes) -> None:
    with answering(body, status=200) as (url, asked), connect(read_settings(config("opensearch", url))) as client:
        assert client.indices.exists(index="x").body is True
        assert asked == ["HEAD", "GET"]
        assert len(client.indices.get(index="x").body) > 0 or body == b"{}"
    with answering(body, status=200) as (url, _), pytest.raises(SinkRefused, match="set `type: opensearch`"):
        ElasticsearchSink(config("elasticsearch", url)).there("thing")
