"""Digests of documents: both sides of a comparison make them alike."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from truth.values import canonical

DIGEST_BYTES = 16
# No JSON text begins so.
_NO_JSON = b"\0not JSON: "


def single(value: Any) -> Any:
    """A ``real`` as the one number it is: 1e-45 and 1.4e-45 are two texts of the same four bytes."""
    if isinstance(value, list):
        return [single(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:  # what a sink holds may be anything
            return value
    return value


def digest(document: Any) -> bytes:
    """16 bytes that are equal for equal JSON values, whatever the order of their keys.

    Args:
        document: JSON text as bytes, or a JSON-able value. What is neither has a digest that no document has.
    """
    try:
        text = canonical(document)
    except (ValueError, TypeError, RecursionError):
        text = _NO_JSON + (document if isinstance(document, bytes) else repr(document).encode("utf-8", "replace"))
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()
