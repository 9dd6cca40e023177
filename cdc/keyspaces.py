"""Which keys of a Redis a view may ever use, and whether two views' keys can meet. Pure.

A view's *stem* is ``<key_prefix><view>``. Its documents are at ``<stem>:<id>`` and, of generation N beside the living
one, at ``<stem>@<N>:<id>``; the pointer is ``<stem>@live``; versions have the same names inside of ``hw:v:{…}``. Since
an id may be anything, a view owns all that begins so: dropping, promoting or repairing it touches every such key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Keys of our own: versions, claims of stems (sinks/redis/claims.py), whose the namespaces of row stores are.
VERSIONS, CLAIMS, ROW_STORES = "hw:v:{", "headwater:prefixes", "headwater:rowstores"

# Where the stem of a view ends whose keys hold all keys of a longer one.
_ENDS = re.compile(r"(?=:|@[0-9]+(?::|$))")


def outer_stems(stem: str) -> Iterator[str]:
    """Stems of all views whose keys would hold this one's: ``shop`` for ``shop:order``, and for ``shop@2``."""
    for found in _ENDS.finditer(stem):
        yield stem[: found.start()]


def is_reserved(stem: str) -> bool:
    """Whether a view of this stem would hold keys of Headwater's own."""
    return any(key.startswith(f"{stem}:") for key in (VERSIONS, CLAIMS, ROW_STORES))


def owner_of(pipeline: str, name: str) -> str:
    """As whom a sink claims keys and tables, which do not say by themselves whose they are. Pure."""
    return f"{pipeline}/{name}" if pipeline else name
