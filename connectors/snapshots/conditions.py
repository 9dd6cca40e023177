"""Is ``--where`` one condition on a table's rows?

Debezium puts the text into its queries as it stands. So it is read here first, for what would end the condition or be
taken for something of JDBC's, and then by Postgres, as part of a query that is planned and never run.
"""

from __future__ import annotations

import psycopg

from cdc.errors import ConfigError, SourceError
from connectors.names import identifier
from connectors.postgres import Connection, explained

# What would end the condition, hide its end, or be read by JDBC.
FORBIDDEN = (";", "--", "/*", "$", "{", "}")
OPENING, CLOSING = "([", ")]"
# Classes of SQLSTATE that are about the text: syntax or names, data, not supported, cardinality.
MISTAKES = ("42", "22", "0A", "21")
INSUFFICIENT_PRIVILEGE = "42501"


def check_condition(connection: Connection, table: str, condition: str) -> None:
    """Refuse what is not one SQL condition on the table.

    Args:
        connection: as the replication role, which will run it.
        table: ``schema.table``; it must be there.
        condition: what stands after WHERE.

    Raises:
        ConfigError: says what is wrong, in Postgres's words where it is the one that refuses (terminal).
    """
    if trouble := unfit(condition):
        raise _refusal(table, condition, trouble)
    query = b"EXPLAIN SELECT FROM " + identifier(table).as_bytes(connection) + b" WHERE (" + condition.encode() + b")"
    try:
        with explained(f"reading the condition on {table}"), connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY")
            connection.execute(query, prepare=True)  # a prepared statement is one statement
    except SourceError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error) or (cause.sqlstate or "")[:2] not in MISTAKES or error.transient:
            raise
        if cause.sqlstate == INSUFFICIENT_PRIVILEGE:
            raise
        hint = f" ({cause.diag.message_hint})" if cause.diag.message_hint else ""
        raise _refusal(table, condition, f"{cause.diag.message_primary or cause}{hint}") from error


def _refusal(table: str, condition: str, why: str) -> ConfigError:
    return ConfigError(
        f"--where {condition!r} is not a condition on {table}: {why}",
        means="nothing was asked for",
        fix="give what would stand after WHERE in a query of this one table, such as: --where \"status = 'open'\"",
    )


def unfit(condition: str) -> str | None:
    """What keeps a text from being one condition, whatever it says; None if nothing does. Pure."""
    outside = _outside_quotes(condition)
    if outside is None:
        return "a quote is not closed"
    if not outside.strip():
        return "it is empty"
    for text in FORBIDDEN:
        if text in outside:
            return f"{text} is not allowed in it, outside of quotes"
    if "?" in outside:
        return "an operator with ? can't be used here; use its function, such as jsonb_exists(column, 'key')"
    return _unbalanced(outside)


def _unbalanced(text: str) -> str | None:
    depth = 0
    for char in text:
        depth += (char in OPENING) - (char in CLOSING)
        if depth < 0:
            return "it closes a parenthesis that it has not opened"
    return "a parenthesis is not closed" if depth else None


def _outside_quotes(condition: str) -> str | None:
    """The text with what is quoted left out; None if a quote is open at its end, or a backslash makes that unclear."""
    out, quote, before = [], "", ""
    for char in condition:
        if quote:
            if char == quote and before == "\\":
                return None  # in E'…' the backslash would hide it
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
            out.append(" x ")
        else:
            out.append(char)
        before = char
    return None if quote else "".join(out)
