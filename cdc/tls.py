"""What a client of ours has against a server's TLS: waiting does not help, as it does where a server is away."""

from __future__ import annotations

import re

# OpenSSL's words, in whatever layers of a client's errors, without its file and line. A server that goes away in the
# middle of a handshake will be there again.
_SAID = re.compile(r"\[(?:SSL|X509)(?!: UNEXPECTED_EOF)[^\]]*\] ([^()\]]+)")


def refused(error: Exception) -> str:
    """Why no encrypted connection can be had, in OpenSSL's words; empty if the error is another one."""
    found = _SAID.search(str(error))
    return found.group(1).strip() if found else ""


def remedy(key: str) -> str:
    """What to do about it.

    Args:
        key: the part of the pipeline file that has ``url`` and ``ca_certs``.
    """
    return (
        f"name the authority that signed the certificate in {key}.ca_certs (a PEM file), or correct {key}.url (http or"
        " https, and the name that the certificate is for)"
    )
