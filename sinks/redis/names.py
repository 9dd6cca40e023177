"""Key names. Pure.

======================  =====================================  =========================================
value                   ``<key_prefix><view>:<id>``            the JSON document; plain GET reads it
version                 ``hw:v:{<that key>}``                  decimal digits; stays after a delete (fence)
======================  =====================================  =========================================

Redis Cluster places a key by what stands between its first braces, so the version key always lands in its value's slot
and one script may touch both. That only works if the value key itself has no braces, so in an id ``%``, ``{`` and ``}``
are percent-encoded (``%25``, ``%7B``, ``%7D``); any other id is used as it is.
"""

from __future__ import annotations

VERSION_PREFIX = b"hw:v:{"
_ENCODE = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


def prefix_of(key_prefix: str, view: str) -> bytes:
    """What every value key of a view begins with."""
    return f"{key_prefix}{view}:".encode()


def value_key(prefix: bytes, key: str) -> bytes:
    """Where the document lies."""
    return prefix + key.translate(_ENCODE).encode()


def version_key(value: bytes) -> bytes:
    """Where its version lies."""
    return VERSION_PREFIX + value + b"}"


def id_of(prefix: bytes, value: bytes) -> str:
    """The document id of a value key; the inverse of ``value_key``."""
    encoded = value[len(prefix) :].decode(errors="replace")
    if "%" not in encoded:
        return encoded
    return encoded.replace("%7B", "{").replace("%7D", "}").replace("%25", "%")


def pattern(prefix: bytes) -> bytes:
    """A glob for SCAN that matches exactly the keys that begin with ``prefix``."""
    out = bytearray()
    for byte in prefix:
        if byte in b"*?[]\\":
            out += b"\\"
        out.append(byte)
    return bytes(out) + b"*"
