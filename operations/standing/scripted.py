"""Queries that have a script in them. Pure."""

from __future__ import annotations

from typing import Any

# What a script's text, or the id of a stored one, stands under (in `script`). A field may be called `script` too, as in
# `{"term": {"script": "x"}}`.
_PARENTS = frozenset(("script", "script_score", "filter", "_script"))
_SOURCES = frozenset(("source", "inline"))
# How many terms of a `terms_set` must match.
_MUST_MATCH = "minimum_should_match_script"


def script_in(query: Any) -> str | None:
    """What in a query has a script, by the key that it stands under; None if nothing has."""
    left: list[tuple[str, Any]] = [("", query)]
    while left:
        parent, one = left.pop()
        if isinstance(one, list):
            left += [(parent, each) for each in one]
        elif isinstance(one, dict):
            if "terms" in one and _MUST_MATCH in one:
                return _MUST_MATCH
            if _is_script(one.get("script"), parent):
                return parent
            left += one.items()
    return None


def _is_script(found: Any, parent: str) -> bool:
    if isinstance(found, dict):
        return not _SOURCES.isdisjoint(found) or (parent in _PARENTS and "id" in found)
    return isinstance(found, str) and parent in _PARENTS
