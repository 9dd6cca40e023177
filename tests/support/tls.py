"""A server that speaks https, with a certificate that no public authority has signed."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NAMES = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])


def own_authority(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that is its own authority; its key is beside it, as ``key.pem``.

    Args:
        folder: for both files.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a company's own")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    now = datetime.now(UTC)
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = made.add_extension(NAMES, critical=False).sign(key, hashes.SHA256())
    held = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(held)
    (folder / "ca.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return folder / "ca.pem"


@contextmanager
def https(certificate: Path, answers: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server.

    Args:
        certificate: of ``own_authority``.
        answers: what it says.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
