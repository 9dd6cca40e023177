"""A Postgres whose TLS is not what source.sslmode wants: no outage, told in all of libpq's words. Its libpq is real."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from cdc.errors import SourceError
from cdc.pipeline import Source
from connectors.postgres import connect
from connectors.refused_login import of_tls
from operations.propose.proposal import look
from tests.support.tls import own_authority

FATAL = b'SFATAL\0VFATAL\0C28000\0Mrole "u" is not permitted to log in\0\0'


@contextmanager
def postgres(certificate: Path | None) -> Iterator[int]:
    """The port of a server that refuses each login; without a certificate one that has no TLS."""

    def answer(line: socket.socket) -> None:
        line.recv(8)  # whether it has TLS
        if certificate is None:
            line.sendall(b"N")
            line.recv(1000)
            return
        line.sendall(b"S")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        context.set_alpn_protocols(["postgresql"])
        with context.wrap_socket(line, server_side=True) as inside:
            inside.recv(1000)
            inside.sendall(b"E" + (len(FATAL) + 4).to_bytes(4, "big") + FATAL)

    def serve() -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            with suppress(OSError), line:
                answer(line)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    return own_authority(tmp_path)


def source(port: int, mode: str, roots: Path | str | None = None, host: str = "127.0.0.1") -> Source:
    return Source(
        host=host,
        port=port,
        database="d",
        user="u",
        tables=("public.t",),
        sslmode=mode,
        sslrootcert=str(roots) if roots else None,
    )


def refused(of: Source) -> SourceError:
    with pytest.raises(SourceError) as caught:
        connect(of)
    assert not caught.value.transient
    return caught.value


def test_a_server_without_tls_is_not_called_away() -> None:
    with postgres(None) as port:
        error = refused(source(port, "require"))
    assert "server does not support SSL, but SSL was required" in error.what and "source.sslmode" in error.fix


def test_authorities_that_are_not_there_are_named(ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason was cut off: it stands in the line before the last one."""
    monkeypatch.setenv("HOME", str(ca.parent))
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    with postgres(ca) as port:
        for roots in (None, ca.parent / "none.pem"):
            error = refused(source(port, "verify-full", roots))
            assert "root certificate file" in error.what and "does not exist" in error.what
            assert "source.sslrootcert" in error.fix and "start the server" not in error.fix


def test_the_authority_that_is_named_is_trusted(ca: Path) -> None:
    with postgres(ca) as port:
        assert "not permitted to log in" in refused(source(port, "verify-full", ca)).what


@pytest.mark.parametrize(
    ("mode", "roots", "host", "said"),
    [
        ("verify-full", "system", "127.0.0.1", "certificate verify failed"),
        ("require", "system", "127.0.0.1", "weak sslmode"),
        ("verify-full", "ca.pem", "localhost", "does not match host name"),
        ("verify-full", "key.pem", "127.0.0.1", "could not read root certificate file"),
    ],
)
def test_what_is_not_trusted_is_not_called_away(ca: Path, mode: str, roots: str, host: str, said: str) -> None:
    with postgres(ca) as port:
        error = refused(source(port, mode, roots if roots == "system" else ca.with_name(roots), host))
    assert said in error.what and "source.sslrootcert" in error.fix


def test_a_server_that_asks_clients_for_certificates_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ("connection requires a valid client certificate", 'certificate authentication failed for user "u"'):

        def refuse(*_: object, words: str = words, **__: object) -> None:
            raise psycopg.OperationalError(f'connection to server at "h", port 1 failed: FATAL:  {words}')

        monkeypatch.setattr(psycopg, "connect", refuse)
        assert "PGSSLCERT" in refused(source(1, "require")).fix


def test_a_host_that_is_called_so_may_be_away() -> None:
    """Quoted are names; the reason is not."""
    for said in (
        'connection to server at "certificates.example" (10.0.0.1), port 5432 failed: Connection refused',
        "failed to resolve host 'certificates.example': [Errno -2] Name or service not known",
    ):
        assert of_tls(psycopg.OperationalError(said)) == ""


def test_init_asks_for_what_the_address_lacks() -> None:
    """It was "correct user, password and database of the address"."""
    with postgres(None) as port, pytest.raises(SourceError) as caught:
        look(source(port, "require"), [])
    assert "sslmode" in caught.value.fix and "password" not in caught.value.fix
