"""Kafka Connect and the schema registry behind https, with a certificate that a company's own authority has signed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cdc.errors import ConnectError, ConnectUnavailable, RegistryError
from cdc.log.registry import Schemas
from cdc.pipeline import Connect
from cdc.pipeline.source import Registry
from connectors.preflight import registry
from connectors.preflight.model import Site
from connectors.rest import ConnectClient
from tests.support.tls import https, own_authority

SCHEMA = {"schema": json.dumps({"type": "record", "name": "a", "fields": [{"name": "x", "type": "int"}]})}
TOLD = {"/schemas/types": ["AVRO"], "/schemas/ids/1": SCHEMA}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(TOLD.get(self.path.partition("?")[0], [])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def ca(tmp_path: Path) -> str:
    return str(own_authority(tmp_path))


@pytest.fixture
def url(ca: str) -> Iterator[str]:
    with https(Path(ca), Answers) as address:
        yield address


def asked(settings: Connect) -> dict[str, str]:
    return ConnectClient(settings, patience_seconds=0.1).plugins()


def preflight(settings: Registry) -> list[str]:
    source = SimpleNamespace(registry=settings, format="json")
    site = cast(Site, SimpleNamespace(pipeline=SimpleNamespace(source=source), failed=set()))
    return [f"{found.message}: {found.fix}" for found in registry.run(site)]


def test_a_worker_is_reached_by_the_authority_that_is_named(url: str, ca: str) -> None:
    assert asked(Connect(url=url, ca_certs=ca)) == {}


def test_a_worker_that_is_not_trusted_is_not_called_away(url: str) -> None:
    """It was "does not answer … start the worker", tried again for half a minute."""
    with pytest.raises(ConnectError, match="certificate verify failed") as refused:
        asked(Connect(url=url))
    assert not refused.value.transient and "connect.ca_certs" in refused.value.fix


def test_a_worker_without_tls_is_not_called_away() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as plain:
        threading.Thread(target=plain.serve_forever, daemon=True).start()
        with pytest.raises(ConnectError, match=r"(?i)wrong version number|record layer failure") as refused:
            asked(Connect(url=f"https://127.0.0.1:{plain.server_port}"))
        plain.shutdown()
    assert not refused.value.transient and "http or https" in refused.value.fix


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_authorities_that_is_none_is_named(url: str, tmp_path: Path, content: str | None) -> None:
    """requests' own error for one that is not there is none of its family."""
    file = tmp_path / "other.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConnectError) as refused:
        asked(Connect(url=url, ca_certs=str(file)))
    assert not refused.value.transient and "connect.ca_certs" in refused.value.fix
    with pytest.raises(RegistryError, match=r"source\.registry\.ca_certs"):
        Schemas({"url": url, "ca_certs": str(file)}).get(1)
    assert "source.registry.ca_certs" in preflight(Registry(url=url, ca_certs=str(file)))[0]


def test_a_worker_that_goes_away_in_the_handshake_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                line.recv(1)
                line.shutdown(socket.SHUT_WR)
                line.recv(65536)
                line.close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(ConnectUnavailable):
            asked(Connect(url=f"https://127.0.0.1:{server.getsockname()[1]}"))
        server.shutdown(socket.SHUT_RDWR)


def test_a_registry_is_read_by_the_authority_that_is_named(url: str, ca: str) -> None:
    settings = Registry(url=url, ca_certs=ca)
    assert Schemas(settings.client()).get(1) is not None
    assert preflight(settings) == []


def test_a_registry_that_is_not_trusted_is_not_called_away(url: str) -> None:
    with pytest.raises(RegistryError, match="certificate verify failed") as refused:
        Schemas({"url": url}).get(1)
    assert not refused.value.transient and "source.registry.ca_certs" in refused.value.fix
    assert "source.registry.ca_certs" in preflight(Registry(url=url))[0]
