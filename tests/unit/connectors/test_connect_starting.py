"""A worker of Kafka Connect that has just been started answers 404 to everything: that is no word about a connector."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cdc.errors import ConnectUnavailable
from cdc.pipeline import Connect
from connectors.rest import ConnectClient

STARTING = b"<html><title>Error 404 Not Found</title></html>"
UNKNOWN = b'{"error_code":404,"message":"Connector x not found"}'


@pytest.fixture
def worker() -> Iterator[tuple[str, list[bytes]]]:
    """A worker's address, and what it answers; the last of it for ever."""
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()


def test_a_worker_that_starts_is_waited_for(worker: tuple[str, list[bytes]]) -> None:
    url, answers = worker
    answers += [STARTING, STARTING, UNKNOWN]
    assert ConnectClient(Connect(url=url), patience_seconds=10).config("x") is None
    assert answers == [UNKNOWN]


def test_one_that_never_answers_itself_is_unavailable(worker: tuple[str, list[bytes]]) -> None:
    url, answers = worker
    answers.append(STARTING)
    with pytest.raises(ConnectUnavailable, match="knows no /connectors/x/config yet") as error:
        ConnectClient(Connect(url=url), patience_seconds=0.1).config("x")
    assert "connect.url" in error.value.fix
