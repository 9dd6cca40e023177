"""A pooler before Postgres: what we set for our session stays in none that the application gets. Its libpq is real."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import SourceError, SourceUnavailable
from cdc.pipeline import Source
from connectors import postgres
from connectors.postgres import connect, is_pooled
from connectors.preflight import server as preflight
from connectors.preflight.model import Level
from tests.support.connector_cases import pipeline


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


READY = message(b"Z", b"I")
INT4 = message(b"T", struct.pack("!H", 1) + b"c\0" + struct.pack("!IHIhIH", 0, 0, 23, 4, 0xFFFFFFFF, 0))


WAITED = b"SFATAL\0VFATAL\0C08P01\0Mquery_wait_timeout\0\0"
FULL = b"SFATAL\0VFATAL\0C53300\0Mno more connections allowed\0\0"


class Server:
    """Tells each client a process number, does its statements in one, and keeps what was set in that.

    Args:
        processes: of each client in turn, what its statements are done by; the last one stays, 0 for none. It takes no
            other.
        told: what all clients are told; None for the process that they have.
    """

    def __init__(self, *processes: list[int], told: int | None = None) -> None:
        self.processes, self.told = list(processes), told
        self.set: list[tuple[int, str]] = []
        self.clients = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def serve(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            processes = self.processes[self.clients] if self.clients < len(self.processes) else []
            self.clients += 1
            threading.Thread(target=self._answer, args=(line, processes), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _answer(self, line: socket.socket, processes: list[int]) -> None:
        with suppress(OSError), line, line.makefile("rb") as incoming:
            incoming.read(struct.unpack("!I", incoming.read(4))[0] - 4)
            if not processes:
                line.sendall(message(b"E", FULL))
                return
            told = processes[0] if self.told is None else self.told
            version = message(b"S", b"server_version\x0017.5\x00") + message(b"S", b"client_encoding\x00UTF8\x00")
            key = message(b"K", struct.pack("!II", told, 1))
            line.sendall(message(b"R", struct.pack("!I", 0)) + version + key + READY)
            while (kind := incoming.read(1)) == b"Q":
                text = incoming.read(struct.unpack("!I", incoming.read(4))[0] - 4).rstrip(b"\0").decode()
                process = processes.pop(0) if len(processes) > 1 else processes[0]
                if not process:
                    line.sendall(message(b"E", WAITED))
                    return
                line.sendall(INT4 + self._rows(text, process) + READY)
            assert kind in (b"X", b"")

    def _rows(self, text: str, process: int) -> bytes:
        rows = 1
        if "set_config" in text or text.startswith("SET"):
            guard = re.search(r"pg_backend_pid\(\) OPERATOR\(pg_catalog\.=\) (\d+)$", text)
            rows = int(guard is None or int(guard[1]) == process)
            if rows:
                self.set.append((process, text))
        number = str(process).encode()
        row = message(b"D", struct.pack("!HI", 1, len(number)) + number)
        return row * rows + message(b"C", b"SELECT %d\0" % rows)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port may come again."""
    monkeypatch.setattr(postgres, "_keeping", set())


@contextmanager
def server(*processes: list[int], told: int | None = None) -> Iterator[Server]:
    made = Server(*processes, told=told)
    threading.Thread(target=made.serve, daemon=True).start()
    try:
        yield made
    finally:
        made.close()


def source(of: Server) -> Source:
    return Source(
        host="127.0.0.1", port=of.port, database="shop", user="headwater", tables=("public.a",), sslmode="disable"
    )


def test_postgres_itself_is_set_up_in_one_statement() -> None:
    """Under another DateStyle, of the role or the database, each verb ended in a traceback once there was a moment."""
    with server([41]) as itself, connect(source(itself)) as connection:
        assert not is_pooled(connection) and itself.clients == 1
    ((process, text),) = itself.set
    assert process == 41
    for name, value in (
        ("search_path", "pg_catalog, pg_temp"),
        ("DateStyle", "ISO, YMD"),
        ("standard_conforming_strings", "on"),
        ("default_transaction_read_only", "off"),
        ("statement_timeout", "60s"),
    ):
        assert f"('{name}', '{value}')" in text


@pytest.mark.parametrize(
    "processes",
    [
        ([41], [41]),  # nobody else is at work: both get the one that was given back last
        ([41, 41, 42], [43]),  # somebody is, and took it
        ([41, 41, 41, 42], [43]),  # it got its own back once
        ([41, 41, 41, 41, 41], [43, 44, 41]),  # the other got it, later
        ([41] * 9 + [42], [43]),  # only the last statement would have gone elsewhere
    ],
)
def test_a_pooler_that_shares_its_sessions_is_refused_before_anything_is_set(processes: tuple[list[int], ...]) -> None:
    """`relation "orders" does not exist` said the application's sessions afterwards, which had got our search path."""
    with server(*processes, told=7) as pooler, pytest.raises(SourceError, match="is a connection pooler") as caught:
        connect(source(pooler))
    assert not caught.value.transient and "Postgres's own address" in caught.value.fix
    assert pooler.set == []


def test_a_pooler_with_a_session_for_each_client_is_let_through() -> None:
    with server([41], [42], told=7) as pooler, connect(source(pooler)) as connection:
        assert [process for process, _ in pooler.set] == [41] and is_pooled(connection)


def test_that_sessions_are_kept_is_asked_once() -> None:
    """Each look at the source made a second login, and waited 3 s where the pool had no room for it."""
    with server([41], [42], [43], [44, 45, 46, 47], [48], told=7) as pooler:
        with connect(source(pooler)), connect(source(pooler)):
            assert pooler.clients == 3 and [process for process, _ in pooler.set] == [41, 43]
        with pytest.raises(SourceError, match="is a connection pooler"):  # it is another one by now
            connect(source(pooler))
        assert len(pooler.set) == 2


def test_check_warns_of_a_pooler_that_keeps_sessions() -> None:
    """Logical replication goes through Neon's proxy, and `check` called it a pooler through which none does."""
    made = pipeline()

    def execute(query: str, **_: bool) -> Any:
        return SimpleNamespace(fetchone=lambda: (41,) if "pg_backend_pid" in query else (False,))

    db = SimpleNamespace(execute=execute, info=SimpleNamespace(backend_pid=7, server_version=170005))
    site: Any = SimpleNamespace(pipeline=made, source=db, setup=None, db=db, setting=lambda _: "UTF8")
    [found] = preflight.run(site)
    assert found.level is Level.WARNING and "stands before Postgres" in found.message
    assert "`replication` tells" in found.message, "it opens such a session"


def test_a_pooler_that_has_room_for_no_other_client_is_let_through() -> None:
    with server([41], told=7) as pooler, connect(source(pooler)):
        assert [process for process, _ in pooler.set] == [41] and pooler.clients == 2


@pytest.mark.parametrize("other", [[], [43, 0]])
def test_what_nobody_could_be_asked_about_is_asked_again(other: list[int]) -> None:
    """A full pool was taken for one that keeps sessions, for as long as the process lived."""
    with server([41], other, [44], [44], told=7) as pooler:
        with connect(source(pooler)):
            assert pooler.clients == 2
        with pytest.raises(SourceError, match="is a connection pooler"):
            connect(source(pooler))
        assert [process for process, _ in pooler.set] == [41]


def test_a_pooler_that_has_no_session_for_a_statement_is_waited_for() -> None:
    """It lets everybody in first; "does not answer … start the server" was said of it."""
    with server([0], told=7) as pooler, pytest.raises(SourceUnavailable, match="query_wait_timeout") as caught:
        connect(source(pooler))
    assert caught.value.what.startswith("Postgres lets nobody in for now") and "max_client_conn" in caught.value.fix
