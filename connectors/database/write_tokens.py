"""Write tokens in the database: the function that makes them, and what has become of a token's transaction.

An application calls ``SELECT headwater.token_<pipeline>()`` inside its transaction, or with ``true`` after its COMMIT,
in the same session. The function reads as its owner what no application may: the table of witnesses. It changes
nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import psycopg
from psycopg import sql

from cdc.token import History
from connectors.actions import Action, statements
from connectors.database.history import INSTALLATION
from connectors.database.life import read_life
from connectors.names import Names
from connectors.postgres import Connection, explained

# With synchronous_commit = off a crash may take back a transaction whose token exists: no token then; nor where nobody
# has noted the server's life yet. An LSN that is taken while something is being written would be too early.
_BODY = """
SELECT CASE WHEN current_setting('synchronous_commit') <> 'off' THEN
    (CASE WHEN after_commit AND pg_current_xact_id_if_assigned() IS NULL THEN 'a1.' ELSE 'x1.' END)
    || to_hex((pg_control_system()).system_identifier)
    || '.' || ltrim(lower(left(pg_walfile_name(pg_current_wal_lsn()), 8)), '0')
    || '.' || (SELECT left(replace(token::text, '-', ''), 8) FROM {witness} WHERE runner = {installation})
    || '.' || (SELECT left(replace(number::text, '-', ''), 8) FROM {life})
    || '.' || (SELECT to_hex(max(count)) FROM {witness})
    || '.' || to_hex(CASE WHEN after_commit AND pg_current_xact_id_if_assigned() IS NULL
                          THEN (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint
                          ELSE pg_current_xact_id()::text::bigint END)
END
"""

_HISTORY = """
SELECT (pg_control_system()).system_identifier, pg_is_in_recovery(),
       CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       (SELECT left(replace(token::text, '-', ''), 8) FROM {witness} WHERE runner = {installation}),
       (SELECT max(count) FROM {witness})
"""

Fate = Literal["committed", "aborted", "in progress", "unknown"]


@dataclass(frozen=True)
class Standing:
    """What the database says of itself and of transactions, at one moment.

    Attributes:
        fates: transaction id -> what became of it; ``unknown`` if the server has forgotten, or never had it.
        insert_lsn: how far the log went *after* that was asked, in bytes: what was committed then lies at or before it.
        confirmed_lsn: what the slot has confirmed, asked last; None without a slot.
    """

    fates: dict[int, Fate]
    insert_lsn: int
    confirmed_lsn: int | None


def plan_write_tokens(connection: Connection, names: Names) -> list[Action]:
    """Actions that make the function, and let every role call it: nothing else in the schema is open to them."""
    body = _filled(connection, names, _BODY)
    with explained("reading the function of write tokens"):
        found = connection.execute(
            "SELECT prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE nspname = %s AND proname = %s",
            [names.schema, names.token_function],
        ).fetchone()
        open_to_all = connection.execute(
            "SELECT has_schema_privilege('public', n.oid, 'USAGE')"
            " AND coalesce(has_function_privilege('public', p.oid, 'EXECUTE'), true)"
            " FROM pg_namespace n LEFT JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = %s WHERE nspname = %s",
            [names.token_function, names.schema],
        ).fetchone()
    name, changed = names.qualified(names.token_function), found is None or found[0] != body
    if not changed and open_to_all and open_to_all[0]:
        return []
    function = names.identifier(names.token_function)
    create = sql.SQL(
        "CREATE OR REPLACE FUNCTION {}(after_commit boolean DEFAULT false) RETURNS text LANGUAGE sql VOLATILE"
        " SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {}"
    ).format(function, sql.Literal(body))
    usage = sql.SQL("GRANT USAGE ON SCHEMA {} TO PUBLIC").format(sql.Identifier(names.schema))
    call = sql.SQL("GRANT EXECUTE ON FUNCTION {}(boolean) TO PUBLIC").format(function)
    detail = "create" if found is None else "change" if changed else "open"
    detail += (
        " function (tokens of an application's writes), which every role may call; the schema's tables stay closed"
    )
    return [Action("function", name, detail, None, "function", statements(f"creating {name}", create, usage, call))]


def _filled(connection: Connection, names: Names, text: str) -> str:
    witness = names.identifier(names.witness).as_string(connection)
    life = names.identifier(names.life).as_string(connection)
    return text.replace("{witness}", witness).replace("{life}", life).replace("{installation}", f"'{INSTALLATION}'")


def read_history(connection: Connection, names: Names) -> History | None:
    """In which history the database is; None on a standby, which knows nothing for certain of what is being written.

    Raises:
        SourceError: there is no witness table: an older Headwater has applied the pipeline.
    """
    with explained("reading the database's history", fix="run `headwater apply FILE`"):
        row = connection.execute(_filled(connection, names, _HISTORY).encode()).fetchone()
    assert row is not None
    system, standby, timeline, installation, witness = row
    if standby or installation is None:
        return None
    life = read_life(connection, names)
    if life is None:
        return None
    return History(int(system) & (2**64 - 1), int(timeline, 16), str(installation), life, int(witness or 0))


def read_standing(connection: Connection, slot: str, transactions: Collection[int]) -> Standing:
    """What became of transactions, how far the log goes, and what the slot has confirmed, asked in this order.

    Args:
        connection: to the primary, in autocommit.
        slot: the replication slot's name.
        transactions: their ids (xid8).

    Raises:
        SourceUnavailable: no answer (transient).
    """
    with explained("asking what became of transactions"):
        fates = _fates(connection, transactions)
        row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        confirmed = connection.execute(
            "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone()
    return Standing(fates, int(row[0]), None if confirmed is None or confirmed[0] is None else int(confirmed[0]))


def _fates(connection: Connection, transactions: Collection[int]) -> dict[int, Fate]:
    if not transactions:
        return {}
    try:
        rows = connection.execute(
            "SELECT id, pg_xact_status(id::xid8) FROM unnest(%s::text[]) AS t(id)", [[str(n) for n in transactions]]
        ).fetchall()
    except psycopg.DataError:  # one of them lies in the future: a history that had it is not this one
        if len(transactions) == 1:
            return dict.fromkeys(transactions, "unknown")
        return {number: fate for one in transactions for number, fate in _fates(connection, [one]).items()}
    known = ("committed", "aborted", "in progress")
    return {int(number): found if found in known else "unknown" for number, found in rows}


def beat(connection: Connection, names: Names) -> None:
    """Touch the heartbeat row, so that the slot moves past what was committed just before.

    What it proves is what stands before it in the log, and no standby need have it for that: who waited for one that
    does not answer would wait for ever, for Postgres bounds that by no timeout.

    Raises:
        SourceUnavailable: no answer (transient).
    """
    statement = sql.SQL("UPDATE {} SET beat = beat + 1, at = now() WHERE id = 1")
    with explained("touching the heartbeat row"), connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        connection.execute(statement.format(names.identifier(names.heartbeat)))
