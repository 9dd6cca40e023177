"""Answers that lead elsewhere, of what is never followed: where to, and what to do about it."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

# Those that stay; any other may be a page that a gateway shows for a while.
MOVED = frozenset((301, 308))


def led_to(url: str, location: str) -> str:
    """Where a redirect leads, as it may be printed: what else an address has may be secret.

    Args:
        url: what was asked for.
        location: the answer's header; empty if it has none.
    """
    to = urlsplit(urljoin(url, location))
    return f"{to.scheme}://{to.netloc.rpartition('@')[2]}{to.path}"


def remedy(key: str) -> str:
    """What to do about a redirect.

    Args:
        key: of the pipeline file, which has the address.
    """
    return f"give {key} the address that it leads to; a page for a login or while a gateway is mended passes"
