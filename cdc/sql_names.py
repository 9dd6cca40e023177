"""Names in SQL that a message gives to be run: as they are where Postgres reads them so, else in quotes."""

from __future__ import annotations

import re

# What Postgres folds to itself, and of its reserved words those that people call things by.
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(("all", "check", "column", "default", "desc", "end", "for", "from", "grant", "group", "limit"))
_RESERVED |= frozenset(("offset", "order", "primary", "references", "select", "table", "to", "user", "when", "window"))


def sql_name(name: str) -> str:
    """One name: ``orders``, ``"Order"``."""
    return name if _PLAIN.fullmatch(name) and name not in _RESERVED else quoted(name)


def quoted(name: str) -> str:
    """One name in quotes, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(schema: str, table: str) -> str:
    """A table in quotes."""
    return f"{quoted(schema)}.{quoted(table)}"


def sql_table(qualified: str) -> str:
    """A table that is known as ``schema.table``; its schema ends at the first dot."""
    schema, _, table = qualified.partition(".")
    return f"{sql_name(schema)}.{sql_name(table)}" if table else sql_name(schema)
