"""What `init` puts into no document, by its name: what looks like a secret, and what Elasticsearch has itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc.catalogue import Column, Table
from cdc.masking import looks_secret
from cdc.pipeline.checks import SEARCH_FIELDS
from cdc.types import supported, type_key
from connectors.survey import LeftOut

# Whoever knows one is logged in; ``session_id`` is more often a visit that somebody counts.
_SESSION = re.compile(r"session[._-]?(?:key|data)", re.IGNORECASE)
_WORDS = frozenset(("text", "varchar", "bpchar", "citext", "bytea", "json", "jsonb"))


def shown_columns(table: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the columns to write down, those that are left out because of their names); no columns to write for all of them.

    What looks like a password does not belong into an index, and Elasticsearch has fields of its own.
    """
    every = [column.name for column in supported(table).columns]
    hidden = [c.name for c in supported(table).columns if is_secret(c) or c.name in SEARCH_FIELDS]
    hidden = [name for name in hidden if name not in table.primary_key]
    return (tuple(name for name in every if name not in hidden), tuple(hidden)) if hidden else ((), ())


def hidden_columns(tables: Mapping[str, Table]) -> list[LeftOut]:
    """The columns that ``shown_columns`` leaves out of every document, each with the reason."""
    return [
        LeftOut(
            f"{name}.{column}", _why_hidden(table.by_name[column]), "name it in a view's `columns` to have it there"
        )
        for name, table in tables.items()
        for column in shown_columns(table)[1]
    ]


def _why_hidden(column: Column) -> str:
    if is_secret(column):
        return "in no document: it looks like a secret, by its name (it is captured, with its table)"
    return "in no document: Elasticsearch has a field of that name"


def is_secret(column: Column) -> bool:
    """Whether a column seems to hold passwords, keys or tokens: text or bytes, and called so."""
    return type_key(column) in _WORDS and bool(looks_secret(column.name) or _SESSION.search(column.name))


def has_secret_key(table: Table) -> bool:
    """Whether documents of a table would be called by what looks like a secret: sessions, tokens.

    A text that is the whole key counts by the table's name, too: ``authtoken_token`` has its tokens in ``key``.
    """
    key = [table.by_name[name] for name in table.primary_key]
    of_secrets = looks_secret(table.name) or "session" in table.name.lower()
    alone = len(key) == 1 and of_secrets and type_key(key[0]) in _WORDS
    return alone or any(is_secret(column) for column in key)


def without_view(table: str) -> LeftOut:
    """That a table of ``has_secret_key`` has no view."""
    why = "in no document: what would name it looks like a secret (it is captured)"
    return LeftOut(table, why, "write a view of it to have it there")
