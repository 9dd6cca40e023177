"""What a gateway in front of Kafka Connect answers is no word of Connect's: a page, or the way to another address."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cdc.errors import ConnectError, ConnectUnavailable
from cdc.pipeline import Connect
from connectors.rest import ConnectClient


class Gateway:
    """What it answers, whatever is asked; and what was asked."""

    status, body, location = 200, b"<html>Sign in</html>", ""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []  # the first ones, if they are others
        self.asked: list[str] = []
        self.url = ""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    made = Gateway()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            made.asked.append(f"{self.command} {self.path}")
            status, body = made.answers.pop(0) if made.answers else (made.status, made.body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if made.location:
                self.send_header("Location", made.location)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        yield made
        server.shutdown()


def client(gateway: Gateway) -> ConnectClient:
    return ConnectClient(Connect(url=gateway.url), patience_seconds=0.1)


def test_a_page_in_place_of_an_answer_is_an_outage(gateway: Gateway) -> None:
    """It was an error that nobody takes for one of Connect's: `run` broke its look at the connector off for it."""
    for body in (b"<html>Sign in</html>", b"\xff\xfe", b"   "):
        gateway.body = body
        with pytest.raises(ConnectUnavailable, match="is not Kafka Connect"):
            client(gateway).status("x")


@pytest.mark.parametrize(("status", "kind"), [(301, ConnectError), (308, ConnectError), (302, ConnectUnavailable)])
def test_a_redirect_is_told_and_not_followed(gateway: Gateway, status: int, kind: type[ConnectError]) -> None:
    """A POST became a GET there, without its body, and its answer was taken for that of the POST."""
    gateway.status, gateway.body = status, b""
    gateway.location = "https://user:hidden@elsewhere:8443/connect/connectors?token=hidden"
    with pytest.raises(ConnectError, match=r"leads to https://elsewhere:8443/connect/connectors \(") as raised:
        client(gateway).request("POST", "/connectors", {"name": "x"})
    assert type(raised.value) is kind and "hidden" not in str(raised.value)
    assert set(gateway.asked) == {"POST /connectors"}


def test_a_redirect_to_a_path_is_told_whole(gateway: Gateway) -> None:
    gateway.status, gateway.location = 301, "/login"
    with pytest.raises(ConnectError, match=f"leads to {gateway.url}/login "):
        client(gateway).status("x")


def test_a_404_that_is_no_object_is_not_connects_own(gateway: Gateway) -> None:
    gateway.status = 404
    for body in (b"5", b'["error_code"]', b'"error_code"'):
        gateway.body = body
        with pytest.raises(ConnectUnavailable, match="knows no"):
            client(gateway).config("x")


NONE = (404, b'{"error_code": 404, "message": "Connector x not found"}')
LOST = (502, b"<html>Bad gateway</html>")
ALREADY = (409, b'{"error_code": 409, "message": "Connector x already exists"}')


def test_a_connector_that_was_made_although_the_answer_was_lost_is_there(gateway: Gateway) -> None:
    """It was asked for again for half a minute, each time refused as existing, and that told as a rebalance."""
    gateway.answers = [NONE, LOST, (200, b'{"name": "x"}')]
    gateway.status, gateway.body = ALREADY
    ConnectClient(Connect(url=gateway.url), patience_seconds=5).create_stopped("x", {})
    assert gateway.asked == ["GET /connectors/x/config", "POST /connectors", "GET /connectors/x/config"]


def test_a_rebalance_is_waited_for_before_a_connector_is_made(gateway: Gateway) -> None:
    gateway.answers = [NONE, ALREADY, NONE, (201, b"{}")]
    ConnectClient(Connect(url=gateway.url), patience_seconds=5).create_stopped("x", {})
    assert gateway.asked.count("POST /connectors") == 2
    gateway.answers = [NONE, *[ALREADY, NONE] * 9]
    with pytest.raises(ConnectUnavailable, match=r"cannot do POST /connectors now \(409\)"):
        client(gateway).create_stopped("x", {})
