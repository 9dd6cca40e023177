"""A POST of a large body to somebody who takes it slowly, over a real socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from operations.push import posting
from operations.push.delivery import Taken
from operations.push.posting import Posting

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STEP = 256 << 10
# More than sockets take in by themselves.
BODY = b"0123456789abcdef" * (1 << 20)


class Lease:
    """Counts how often it was made longer; raises from some call on."""

    def __init__(self, lost_at: int | None = None) -> None:
        self.holds, self.lost_at = 0, lost_at

    def hold(self, fields: Mapping[str, Any] | None = None) -> None:
        self.holds += 1
        if self.lost_at is not None and self.holds >= self.lost_at:
            raise Taken

    def kept(self) -> Mapping[str, str]:
        return {}


@contextmanager
def listening(take: Callable[[socket.socket], None]) -> Iterator[str]:
    """Somebody who is connected to once."""

    def serve() -> None:
        taken, _ = server.accept()
        with taken:
            taken.settimeout(30)
            take(taken)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/in"
        thread.join(30)


def post(url: str, lease: Lease) -> posting.Answered:
    found = Posting(url, SECRET)
    try:
        return found.post("msg_1", BODY, lease)
    finally:
        found.close()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(posting, "HOLD_SECONDS", 0.2)


def test_a_body_that_is_taken_slowly_is_taken_and_the_lease_is_held_meanwhile() -> None:
    """The time to connect was that of the whole body: a document of many MiB was sent for ever, and all waited."""
    got = bytearray()

    def take(taken: socket.socket) -> None:
        while not got.endswith(BODY[-16:]) or len(got) < len(BODY):
            got.extend(taken.recv(STEP))
            time.sleep(0.03)
        taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    lease, began = Lease(), time.monotonic()
    with listening(take) as url:
        assert post(url, lease) == (200, "", None)
    assert time.monotonic() - began > 1.5 and lease.holds >= 3
    head, _, body = bytes(got).partition(b"\r\n\r\n")
    assert body == BODY
    assert f"Content-Length: {len(BODY)}".encode() in head and b"chunked" not in head


def test_who_takes_nothing_more_is_given_up() -> None:
    over = threading.Event()

    def take(taken: socket.socket) -> None:
        taken.recv(STEP)
        over.wait(30)

    with listening(take) as url:
        began = time.monotonic()
        answered = post(url, Lease())
        over.set()
    assert answered.status is None and answered.error.startswith("no answer")
    assert time.monotonic() - began < 10


def test_whoever_has_lost_the_lease_ends_in_the_middle_of_a_body() -> None:
    got = bytearray()

    def take(taken: socket.socket) -> None:
        while some := taken.recv(STEP):
            got.extend(some)
            time.sleep(0.03)

    with listening(take) as url, pytest.raises(Taken):
        post(url, Lease(lost_at=2))
    assert 0 < len(got) < len(BODY)


def test_who_takes_all_and_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "ANSWER_SECONDS", 0.3)
    over = threading.Event()

    def take(taken: socket.socket) -> None:
        left = len(BODY)
        while left > 0:
            left -= len(taken.recv(STEP))
        over.wait(5)

    with listening(take) as url:
        began = time.monotonic()
        answered = post(url, Lease())
        took = time.monotonic() - began
        over.set()
    assert answered == (None, "no answer (ReadTimeout)", None) and took < 4


# -- what is told ------------------------------------------------------------------------------------------------------


def test_why_there_was_no_answer_does_not_tell_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who knows a webhook's path or query may post to it; reasons go to status, metrics, letters and the log."""
    path, host = "hooks/T0SECRET?token=hunter2", "hooks.secret.example"
    real = socket.getaddrinfo

    def resolve(name: Any, *args: Any, **more: Any) -> Any:
        if name == host:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(name, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"  # closed by then
    said = [post(f"http://{where}/{path}", Lease()).error for where in (nobody, host)]
    with listening(lambda taken: None) as url:
        said.append(post(f"{url}/{path}", Lease()).error)
    assert [one for one in said if not one.startswith("no answer (")] == []
    for secret in ("T0SECRET", "hunter2", "hooks", host, "127.0.0.1", nobody.rpartition(":")[2]):
        assert not any(secret in one for one in said), said
