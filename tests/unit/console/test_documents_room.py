"""Documents that are built for who asks by a process of its own: how many at once, for how long, and for whom."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import psutil
import pytest

from cdc.polling import poll
from console.http import documents, reports
from console.http.server import serving
from tests.support.hanging import hangs
from tests.support.watched import ROOT, nowhere

SOON = 60.0


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a server whose explanations hang."""
    nowhere(monkeypatch, tmp_path)
    monkeypatch.setattr(documents, "explained", hangs)
    file, said = tmp_path / "pipeline.yaml", list[str]()
    file.write_text((ROOT / "examples/flights/pipeline.yaml").read_text())
    with serving([file], "127.0.0.1", 0, said.append):
        yield said[0].split()[-1]


def path_of(key: Path) -> str:
    return f"/v1/explain?sink=search&expected=1&key={quote(str(key))}"


@contextmanager
def asking(url: str, path: str) -> Iterator[None]:
    """Somebody asks, waits for the answer, and goes before it came."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname or "", where.port or 0)) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        yield


def begun(*keys: Path) -> list[int]:
    found = poll(
        lambda: [int(key.read_text()) for key in keys if key.exists()], lambda x: len(x) == len(keys), SOON, 0.05
    )
    assert len(found) == len(keys)
    return found


def gone(*numbers: int) -> bool:
    return (
        poll(lambda: any(psutil.pid_exists(number) for number in numbers), lambda there: not there, SOON, 0.05) is False
    )


def test_no_more_than_some_are_built_at_once_and_none_for_who_has_gone(url: str, tmp_path: Path) -> None:
    """Forty who asked again and again were forty virtual machines, each of which went on for nobody."""
    keys = [tmp_path / f"k{n}" for n in range(4)]
    with ExitStack() as two:
        for key in keys[: documents.AT_ONCE]:
            two.enter_context(asking(url, path_of(key)))
        numbers = begun(*keys[: documents.AT_ONCE])
        refused = httpx.get(url + path_of(keys[2]), timeout=SOON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too-many-waits")
        assert refused.json()["error"]["transient"] and "2 previews or explanations" in refused.json()["error"]["what"]
    assert gone(*numbers)
    with asking(url, path_of(keys[3])):  # there is room again
        [number] = begun(keys[3])
    assert gone(number) and not keys[2].exists()


def test_one_that_takes_too_long_is_ended(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LONGEST_SECONDS", 0.0)
    told = httpx.get(url + path_of(tmp_path / "key"), timeout=60.0)
    assert told.status_code == 500 and "was not built within" in told.json()["error"]["what"]


def test_a_probe_is_answered_while_all_who_ask_servers_wait(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood in line behind them, and a server that was only asked much was taken for dead."""
    away, asked = threading.Event(), list[int]()

    def silent(_pipeline: Any) -> dict[str, Any]:
        asked.append(1)
        away.wait(30.0)
        return {}

    monkeypatch.setattr(reports, "generations_report", silent)
    with ExitStack() as many:
        for _ in range(60):
            many.enter_context(asking(url, "/v1/generations"))
        held = poll(lambda: len(asked), lambda count: count >= 40, SOON, 0.05)
        try:
            assert held >= 40 and httpx.get(f"{url}/healthz", timeout=5.0).json() == {"status": "ok"}
        finally:
            away.set()
