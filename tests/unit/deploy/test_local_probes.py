"""Servers of this machine are asked directly, whatever proxy the shell names."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.local.services.connect import PLUGIN
from deploy.local.services.registry import SERVICES
from deploy.local.site import Site
from deploy.local.sparkcluster import SparkCluster
from tests.support.cluster_faults import end_applications

# What a server in health says, by the last part of what is asked.
WELL = {
    "health": {"status": "green"},
    "connector-plugins": [{"class": PLUGIN}],
    "types": ["AVRO"],
    "json": {"status": "ALIVE", "activeapps": [{"id": "app-1"}]},
    "kill": {},
}


class Healthy(BaseHTTPRequestHandler):
    """Any of the servers."""

    def do_GET(self) -> None:
        said = json.dumps(WELL[self.path.partition("?")[0].strip("/").rpartition("/")[2]]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where it listens; the shell's proxy is away."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize("name", ["connect", "elasticsearch", "elasticsearch-9", "opensearch", "registry"])
def test_a_healthy_server_is_well(name: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = SERVICES[name]
    monkeypatch.setattr(type(service), "address", lambda *_: f"http://127.0.0.1:{port}")
    assert service.ailment(Site(tmp_path, 15000, None)) is None


def test_a_spark_master_is_asked_and_told(port: int, tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path, web=port)
    assert cluster.state()["status"] == "ALIVE"
    end_applications(cluster)
