"""Queries that have a script in them. Pure."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import orjson

# What a script's text, or the id of a stored one, stands under (in `script`). A field may be called `script` too, as in
# `{"term": {"script": "x"}}`.
_PARENTS = frozenset(("script", "script_score", "filter", "_script"))
_SOURCES = frozenset(("source", "inline"))
# How many terms of a `terms_set` must match.
_MUST_MATCH = "minimum_should_match_script"
# Fields that `inner_hits` makes, whose names are anybody's.
_MADE = "script_fields"
# A query that holds another one as base64. A field may be called so too: of these queries a field's is a text.
WRAPPER = "wrapper"
_OF_TEXT = frozenset(("match", "match_phrase", "match_phrase_prefix", "match_bool_prefix"))


def script_in(query: Any) -> str | None:
    """What in a query has a script, by the key that it stands under; None if nothing has.

    ``wrapper``: there is one of which nobody can say, for it is no base64 of JSON.
    """
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
            if (made := _made(one.get(_MADE))) is not None:
                return made
            if _wraps(one.get(WRAPPER)):
                try:
                    # Each has less than it stands in, so there is an end to those in one another.
                    left.append(("", orjson.loads(b64decode(one[WRAPPER]["query"], validate=True))))
                except ValueError:
                    if parent not in _OF_TEXT:
                        return WRAPPER
            left += one.items()
    return None


def _is_script(found: Any, parent: str) -> bool:
    if isinstance(found, dict):
        return not _SOURCES.isdisjoint(found) or (parent in _PARENTS and "id" in found)
    return isinstance(found, str) and parent in _PARENTS


def _made(fields: Any) -> str | None:
    named = fields.items() if isinstance(fields, dict) else ()
    return next((name for name, field in named if isinstance(field, dict) and "script" in field), None)


def _wraps(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("query"), str)
