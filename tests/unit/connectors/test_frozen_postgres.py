"""A Postgres that is frozen: it takes every byte, and never answers. Who asks it lets go."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from cdc.errors import SourceUnavailable
from cdc.pipeline import Source, load
from connectors import postgres, resized
from connectors.captured import tablewatch
from connectors.gaps import source_gaps
from connectors.postgres import connect, within
from operations.freshness import log
from operations.run import wal_watch
from operations.run.source_watch import SourceWatch
from operations.schema import watch
from operations.schema.watch import ShapeWatch
from tests.support.lone_cache import FILE

READY = b"Z" + struct.pack("!i", 5) + b"I"
LOGGED_IN = b"R" + struct.pack("!ii", 8, 0) + READY
DONE = b"C" + struct.pack("!i", 8) + b"SET\x00" + READY
# Statements that `connect` asks before a connection is anybody's.
SETTINGS = 1


class Frozen:
    """Lets whoever comes in, answers so many statements, and is frozen from then on."""

    answers = 0

    def __init__(self) -> None:
        self._listener, self._lines = socket.create_server(("127.0.0.1", 0)), list[socket.socket]()
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            self._lines.append(line)
            line.recv(4096)
            line.sendall(LOGGED_IN)
            for _ in range(self.answers):
                line.recv(4096)
                line.sendall(DONE)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for line in self._lines:
            line.close()


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    server = Frozen()
    yield server
    server.close()


def test_whoever_asks_lets_go_in_time(frozen: Frozen) -> None:
    with psycopg.connect(f"host=127.0.0.1 port={frozen.port} user=u dbname=d sslmode=disable") as connection:
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError), within(connection, 0.3):
            connection.execute("SELECT 1")
        assert 0.25 < time.monotonic() - began < 5 and connection.closed


def test_connecting_to_it_is_an_answer_that_did_not_come(frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", 1)
    source = Source(
        host="127.0.0.1",
        port=frozen.port,
        database="d",
        user="u",
        password=SecretStr("x"),
        tables=["public.t"],
        slot="s",
        publication="p",
    )
    began = time.monotonic()
    with pytest.raises(SourceUnavailable, match="does not answer"):
        connect(source)
    assert time.monotonic() - began < 5


def test_who_looks_how_far_the_log_goes_lets_go_and_looks_again(
    frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the keeper does, once a second, for ever."""
    frozen.answers = SETTINGS
    monkeypatch.setattr(log, "ANSWER_SECONDS", 0.3)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        FILE.format(folder=tmp_path / "state").replace("port: 1,", f"port: {frozen.port}, sslmode: disable,")
    )
    source = log.SourceLog(load(path))
    try:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(SourceUnavailable, match="reading the database's history"):
                source.look(())
            assert time.monotonic() - began < 5
        assert len(frozen._lines) == 2, "the second time by a connection of its own"
    finally:
        source.close()


def test_who_watches_the_source_lets_go_and_looks_again(
    frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was held for good, so that a standby that was promoted in place of a frozen server was never followed."""
    frozen.answers = SETTINGS
    for module in (tablewatch, wal_watch, watch, source_gaps, resized):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.3)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        FILE.format(folder=tmp_path / "state").replace("port: 1,", f"port: {frozen.port}, sslmode: disable,")
    )
    pipeline, asked = load(path), 0
    tables, wal, shapes = (
        tablewatch.TableWatch(pipeline),
        wal_watch.WalWatch(pipeline, lambda: None),
        ShapeWatch(pipeline),
    )
    shapes.close()  # its thread; asked by hand
    shapes._watching.join(5)
    before = len(frozen._lines)
    sizes = SourceWatch(pipeline)._size
    for look in (tables.look, wal.look, shapes._work, sizes, lambda: source_gaps.check_source(pipeline, None)):
        for _ in range(2):
            began, asked = time.monotonic(), asked + 1
            assert not look()
            assert time.monotonic() - began < 5
    assert len(frozen._lines) - before == asked, "each time by a connection of its own"


def test_an_answer_in_time_leaves_the_connection_as_it_is(frozen: Frozen) -> None:
    before = threading.active_count()  # other tests' threads too
    with psycopg.connect(f"host=127.0.0.1 port={frozen.port} user=u dbname=d sslmode=disable") as connection:
        with within(connection, 0.2):
            pass
        time.sleep(0.4)
        assert not connection.closed and threading.active_count() <= before + 1
        connection.close()


def test_a_host_that_is_gone_without_a_word_ends_a_connection_within_a_minute() -> None:
    network = postgres.DEAD_NETWORK
    assert network["tcp_user_timeout"] <= 60_000
    assert network["keepalives_idle"] + network["keepalives_interval"] * network["keepalives_count"] <= 60
