"""``headwater serve`` as it is started: its page is there with every server away, and it ends at once when told to."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import httpx
import pytest

from console.http.server import _listening
from tests.support.serving import Server
from tests.support.watched import NOWHERE, ROOT


def test_a_server_with_open_pages_ends_when_it_is_told_to(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text((ROOT / "examples/flights/pipeline.yaml").read_text())
    with (
        Server(file, {**os.environ, **NOWHERE, "HEADWATER_HOME": str(tmp_path)}) as server,
        httpx.Client(base_url=server.url, timeout=10) as browser,
        browser.stream("GET", "/v1/events") as events,
    ):
        lines = events.iter_lines()
        assert next(lines) == "retry: 2000"
        until = time.monotonic() + 20
        while next(lines) != "event: seen" or "Postgres does not answer" not in browser.get("/").text:
            assert time.monotonic() < until, "it did not look at its servers"
        assert server._process is not None
        server._process.terminate()
        began = time.monotonic()
        assert server._process.wait(timeout=20) is not None
        assert time.monotonic() - began < 4, "it waited for its streams"
    assert not [line for line in (tmp_path / "serve.log").read_text().splitlines() if "Traceback" in line]


def test_what_is_accepted_answers_in_more_than_one_write_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "pipeline.yaml"
    file.write_text((ROOT / "examples/flights/pipeline.yaml").read_text())
    with (
        _listening([file], "127.0.0.1", 0, (), lambda _: None) as (_, listener),
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
