"""A warehouse behind https, with a certificate of a company's own authority: refused, and not waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import SinkRefused, SinkUnavailable
from sinks.iceberg import storage
from sinks.iceberg.catalogues.rest import RestCatalogue
from tests.support.tls import https, own_authority

# Each variable takes the place of the system's store, and webhooks go by the first as well.
ALL = "a PEM file with all authorities that are to be trusted (the system's, and the one that signed the certificate)"
# What a bucket's client and a catalogue's are told is in the environment that Python begins with.
ASK = """
import json, sys
from types import SimpleNamespace
from cdc.errors import HeadwaterError
from sinks.iceberg import storage
from sinks.iceberg.catalogues.rest import RestCatalogue
place = SimpleNamespace(**json.loads(sys.argv[1]))
try:
    catalogue = RestCatalogue(place)
    with catalogue.open("lake", catalogue.pyiceberg_properties()):
        print("opened")
    storage.check(place)
except HeadwaterError as error:
    print(error)
"""


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"defaults": {}, "overrides": {}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return own_authority(tmp_path)


@pytest.fixture
def url(ca: Path) -> Iterator[str]:
    with https(ca, Answers) as address:
        yield address


def described(url: str) -> dict[str, Any]:
    nothing = ("rest_warehouse", "token", "credential", "scope", "oauth_uri", "s3_region", "s3_path_style")
    known = {"catalog_uri": url, "warehouse": "s3://lake/w", "namespace": "n", "s3_endpoint": url}
    return {**dict.fromkeys(nothing), **known}


def place(url: str) -> Any:
    return SimpleNamespace(**described(url))


def opened(url: str) -> None:
    catalogue = RestCatalogue(place(url))
    with catalogue.open("lake", catalogue.pyiceberg_properties()):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["authority", "name"])
def test_a_catalogue_that_is_not_trusted_is_refused_with_the_way_out(url: str, host: str) -> None:
    """And one whose certificate is for another name."""
    with pytest.raises(SinkRefused, match=r"can't be trusted.*certificate verify failed") as raised:
        opened(url.replace("127.0.0.1", host))
    assert not raised.value.transient and f"{ALL} in REQUESTS_CA_BUNDLE" in raised.value.fix


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["authority", "name"])
def test_so_is_a_bucket(url: str, host: str) -> None:
    with pytest.raises(SinkRefused, match=r"can't be trusted.*SSL peer certificate") as raised:
        storage.check(place(url.replace("127.0.0.1", host)))
    assert not raised.value.transient and f"{ALL} in SSL_CERT_FILE" in raised.value.fix


def test_a_catalogue_whose_authorities_are_not_where_they_are_named_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`requests` raises what is none of its own errors."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(SinkRefused, match=rf"catalogue of lake at {url} can't be trusted.*none\.pem") as raised:
        opened(url)
    assert not raised.value.transient and f"{ALL} in REQUESTS_CA_BUNDLE" in raised.value.fix


def test_other_trouble_of_this_machine_is_left_to_who_knows_it() -> None:
    with pytest.raises(OSError, match="No space left"), RestCatalogue(place("https://h"))._named("lake"):
        raise OSError(28, "No space left on device")


def test_a_server_that_has_no_tls_is_refused_by_both(ca: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}"
        with pytest.raises(SinkRefused, match="has no TLS"):
            opened(url)
        with pytest.raises(SinkRefused, match="has no TLS"):
            storage.check(place(url))
        server.shutdown()


def test_one_that_is_away_is_waited_for(ca: Path) -> None:
    for ask in (opened, lambda url: storage.check(place(url))):
        with pytest.raises(SinkUnavailable):
            ask("https://127.0.0.1:1")


def test_the_environment_names_the_authority_to_both(url: str, ca: Path) -> None:
    """As docs/operations.md says. The bucket is asked, and is not there."""
    told = {"REQUESTS_CA_BUNDLE": str(ca), "SSL_CERT_FILE": str(ca)}
    argv = [sys.executable, "-c", ASK, json.dumps(described(url))]
    done = subprocess.run(argv, env={**os.environ, **told}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"opened\nthere is no bucket lake at {url}")
