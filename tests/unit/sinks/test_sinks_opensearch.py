"""What is otherwise with OpenSearch: types of fields, what a request says, and who signs it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from cdc.errors import ConfigError
from cdc.pipeline import OpenSearchSink, loads
from cdc.pipeline.problems import PipelineFileError
from sinks.configure import plain_config
from sinks.elasticsearch.client import connect
from sinks.elasticsearch.opensearch import field_types
from sinks.elasticsearch.settings import read_settings

KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI")
FILE = """
version: 1
name: p
source: {host: h, database: d, user: u, password: secret, tables: [public.customers]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
views: {customer: {root: customers}}
sinks:
  search: {type: opensearch, url: "http://localhost:9200", view: customer, KEYS}
"""


def test_types_of_fields_by_their_names_there() -> None:
    inner = {"type": "flattened", "ignore_above": 9}
    assert field_types(
        {
            "tags": {"type": "flattened", "ignore_above": 8191, "depth_limit": 3},
            "name": {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 256}}},
            "lines": {"type": "nested", "properties": {"tags": inner, "type": {"type": "keyword"}}},
        }
    ) == {
        "tags": {"type": "flat_object"},
        "name": {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 256}}},
        "lines": {"type": "nested", "properties": {"tags": {"type": "flat_object"}, "type": {"type": "keyword"}}},
    }


def test_only_one_way_to_be_let_in() -> None:
    with pytest.raises(PipelineFileError, match="api_key and signer exclude each other"):
        loads(FILE.replace("KEYS", 'api_key: k, signer: "our:signer"'), "p.yaml", {})


def test_the_file_names_the_signer() -> None:
    pipeline = loads(FILE.replace("KEYS", 'signer: "our.aws:signer"'), "p.yaml", {})
    assert isinstance(pipeline.sinks["search"], OpenSearchSink)
    assert read_settings(plain_config(pipeline, "search", 1, ["customer"])).signer == "our.aws:signer"


class Signer:
    """As opensearch-py's, in the few lines that matter."""

    def sign(self, method: str, url: str, body: bytes | None, headers: dict[str, str] | None = None) -> dict[str, str]:
        request = AWSRequest(method=method, url=url, data=body, headers=headers)
        SigV4Auth(KEYS, "es", "eu-central-1").add_auth(request)
        return dict(request.headers)


def config(url: str, **over: Any) -> dict[str, Any]:
    return {"type": "opensearch", "name": "search", "url": url, "targets": {"thing": {}}} | over


def module(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    made = ModuleType("our_aws")
    made.__dict__.update(parts)
    monkeypatch.setitem(sys.modules, "our_aws", made)


Seen = list[tuple[str, str, bytes, dict[str, str]]]


@contextmanager
def recording() -> Iterator[tuple[str, Seen]]:
    """A server that answers all with an empty object."""
    seen: Seen = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            seen.append((self.command, self.path, body, {k.lower(): v for k, v in self.headers.items()}))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/behind", seen
    finally:
        server.shutdown()
        server.server_close()


def test_requests_are_in_plain_json() -> None:
    with recording() as (url, seen), connect(read_settings(config(url, api_key="abc"))) as client:
        client.bulk(index="a", operations=[b"{}"], require_alias=True)
        client.mget(index="a", ids=["1"])
    kinds = [(headers["content-type"], headers["accept"]) for *_, headers in seen]
    assert kinds == [("application/x-ndjson", "application/json"), ("application/json", "application/json")]
    assert [path for _, path, *_ in seen] == ["/behind/a/_bulk?require_alias=true", "/behind/a/_mget"]
    assert all(headers["authorization"] == "ApiKey abc" for *_, headers in seen)


def test_what_is_sent_is_what_was_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature that the receiver can compute again from what has come: method, address, body and headers."""
    module(monkeypatch, signer=Signer)
    with recording() as (url, seen), connect(read_settings(config(url, signer="our_aws:signer"))) as client:
        client.mget(index="a b", ids=["ü"], source=False)
        client.nodes.info(filter_path="nodes.*.version")
    assert len(seen) == 2
    for method, path, body, headers in seen:
        signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
        again = AWSRequest(method=method, url=url.removesuffix("/behind") + path, data=body or None)
        for name in signed:
            again.headers[name] = headers[name]
        again.context["timestamp"] = headers["x-amz-date"]
        auth = SigV4Auth(KEYS, "es", "eu-central-1")
        told = headers["authorization"].rpartition("Signature=")[2]
        assert auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again) == told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module_of_ours:signer", "ModuleNotFoundError"),
        ("our_aws:missing", "AttributeError"),
        ("our_aws:fails", "no keys here"),
        ("our_aws:nothing", "has no `sign`"),
    ],
)
def test_a_signer_that_can_not_be_had(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    def fails() -> None:
        raise RuntimeError("no keys here")

    module(monkeypatch, fails=fails, nothing=lambda: None)
    with pytest.raises(ConfigError, match=said) as caught:
        connect(read_settings(config("http://127.0.0.1:9", signer=name)))
    assert name in str(caught.value)
