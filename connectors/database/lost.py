"""Stretches of the source's log that are in no topic: noted in the database, for whoever asks what was so then.

A slot that was lost is made anew (``resnapshot.py``). What was committed between the last that was read and the new
slot's beginning is in no topic; rows are read again, and missed deletes swept. From then on every sink is right, but
nobody will ever know what the tables held in between: a cut of a history there would show rows of before as if they
had still been so (docs/decisions/history.md).

The same is so of a table that was not what was captured for a while, or was not published whole (``changed.py``). Such
a stretch begins where all tables were last seen to be whole: ``run`` notes that now and then.

Noted before the slot is made, or the table put right, so that a kill in between leaves a stretch that has no end yet,
and not none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import sql

from cdc.records.history import EARLY_US
from connectors.names import Names
from connectors.postgres import Connection, explained, has_table

# Rows of the witness table, with where the stretch begins; no runner is called like this, for theirs are UUIDs.
PREFIX = "lost:"
# The row that says where all captured tables were whole when they were last looked at.
WHOLE = "whole:"


@dataclass(frozen=True)
class Lost:
    """Commits behind ``since`` and at or before ``until`` may be in no topic.

    Attributes:
        since: the last LSN that was read, in bytes.
        since_us: when that was committed, in microseconds since 1970; 0 where it is not known.
        until: where the log was when all tables had been read again and swept; None until they are.
        until_us: when that was; None until then.
    """

    since: int
    since_us: int
    until: int | None
    until_us: int | None

    def hides(self, lsn: int, least: int | None = None) -> bool:
        """Whether what the tables held at a position, or at one from ``least`` to it, may be unknown because of it."""
        return self.since < lsn and (self.until is None or (lsn if least is None else least) <= self.until)

    def hides_moment(self, at_us: int) -> bool:
        """Whether what they held at a moment may be."""
        return self.since_us < at_us and (self.until_us is None or at_us <= self.until_us)


def note_lost(connection: Connection, names: Names, since: int, since_us: int) -> None:
    """Note that what was committed behind a position is lost; its end comes with ``end_lost``.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    upsert = sql.SQL(
        "INSERT INTO {} (runner, count) VALUES (%s, 0) ON CONFLICT (runner) DO UPDATE SET count = 0, at = now()"
    ).format(names.identifier(names.witness))
    with explained("noting what a slot has lost"):
        connection.execute(upsert, [f"{PREFIX}{since}:{since_us}"])


def note_whole(connection: Connection, names: Names, lsn: int) -> None:
    """Note that all captured tables were whole at a position, which was read before they were looked at.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    # The position lies in the token: tokens of writes bear the greatest count (``write_tokens.py``), and databases that
    # were applied before know no exception.
    upsert = sql.SQL(
        "INSERT INTO {} (runner, token, at) VALUES (%s, %s, now() - make_interval(secs => %s))"
        " ON CONFLICT (runner) DO UPDATE SET token = excluded.token, at = excluded.at"
    )
    values = [WHOLE, UUID(int=lsn), EARLY_US / 1_000_000]
    _write(connection, names, "noting that the captured tables are whole", upsert, values)


def note_missing(connection: Connection, names: Names) -> None:
    """Note that changes of a table are missing since all were last seen whole; its end comes with ``end_lost``.

    Nothing is noted where a stretch has no end yet: it began before. Where nobody has seen them whole, it is all.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    select = sql.SQL("SELECT token, (extract(epoch FROM at) * 1000000)::bigint FROM {} WHERE runner = %s").format(
        names.identifier(names.witness)
    )
    with explained("noting that changes of a table are missing"):
        if not has_table(connection, names.schema, names.witness):
            return
        if any(one.until is None for one in read_lost(connection, names)):
            return
        row = connection.execute(select, [WHOLE]).fetchone()
    note_lost(connection, names, *((row[0].int, int(row[1])) if row else (0, 0)))


def end_lost(connection: Connection, names: Names) -> None:
    """All tables have been read again, and swept: stretches without an end, end here.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    update = sql.SQL(
        "UPDATE {} SET count = pg_current_wal_insert_lsn() - '0/0'::pg_lsn, at = clock_timestamp()"
        " WHERE starts_with(runner, %s) AND count = 0"
    )
    _write(connection, names, "noting what a slot has lost", update, [PREFIX])


def _write(connection: Connection, names: Names, doing: str, statement: sql.SQL, values: Sequence[Any]) -> None:
    """Change the witness table, where there is one."""
    with explained(doing):
        if has_table(connection, names.schema, names.witness):
            connection.execute(statement.format(names.identifier(names.witness)), values)


def read_lost(connection: Connection, names: Names) -> list[Lost]:
    """Every stretch, in the log's order.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    with explained("reading what slots have lost"):
        if not has_table(connection, names.schema, names.witness):
            return []
        select = sql.SQL(
            "SELECT runner, nullif(count, 0), (extract(epoch FROM at) * 1000000)::bigint FROM {}"
            " WHERE starts_with(runner, %s)"
        ).format(names.identifier(names.witness))
        rows = connection.execute(select, [PREFIX]).fetchall()
    found = []
    for name, until, at_us in rows:
        since, since_us = name.removeprefix(PREFIX).split(":")
        found.append(Lost(int(since), int(since_us), until, None if until is None else at_us))
    return sorted(found, key=lambda one: one.since)
