"""The list of captured tables and how each one's rows came, or are to come, into its topic; kept in the database.

``initial``: by the connector's first snapshot. ``wanted``: the table was added later; its rows must still be asked for.
``requested``: a signal for an incremental snapshot is sent. ``done``: every row is in the topic. A signal can be lost
(Debezium notes that it was read before it has begun): a request that nobody works on is sent again.

A table that is read again (``headwater resnapshot``) becomes ``wanted`` once more, with the condition on the rows, if
only some are meant, and with ``sweep`` when deletes that were missed are to be found after its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from connectors.actions import Action, statements
from connectors.names import Names
from connectors.postgres import Connection, explained, has_table


@dataclass(frozen=True)
class Captured:
    """A captured table's snapshot.

    Attributes:
        table: ``schema.table``.
        state: ``initial``, ``wanted``, ``requested`` or ``done``.
        signal_id: of the signal, once requested; Debezium's notifications carry it.
        changed_at: when ``state`` changed.
        condition: SQL on the rows that are to be read; None for all.
        sweep: deletes that were missed are to be looked for when the rows are read.
    """

    table: str
    state: str
    signal_id: str | None
    changed_at: datetime
    condition: str | None = None
    sweep: bool = False


def read_captured(connection: Connection, names: Names) -> dict[str, Captured]:
    """The list, by table; empty when nothing was applied yet."""
    with explained("reading the list of captured tables"):
        if not has_table(connection, names.schema, names.captured):
            return {}
        # Through JSON: a list that an older version made lacks the last two columns until the next apply.
        select = sql.SQL(
            "SELECT table_name, snapshot, signal_id, changed_at, to_jsonb(c) ->> 'condition',"
            " coalesce((to_jsonb(c) ->> 'sweep')::boolean, false) FROM {} c"
        ).format(names.identifier(names.captured))
        return {row[0]: Captured(*row) for row in connection.execute(select)}


def plan_captured(
    names: Names, tables: Iterable[str], captured: dict[str, Captured], *, fresh: bool, emptied: Collection[str] = ()
) -> tuple[list[Action], list[Action]]:
    """Changes to the list. Pure.

    Args:
        names: the pipeline's.
        tables: captured tables, as the file says.
        captured: the list as it is.
        emptied: tables whose topic is gone: all of their rows must be read again.
        fresh: there is no connector yet: its first snapshot will read all of them.

    Returns:
        Actions to do before the connector changes, and after it.
    """
    wanted = sorted(tables)
    state = "initial" if fresh else "wanted"
    come = [table for table in wanted if table not in captured or table in emptied]
    if fresh:  # what an earlier, dropped capture remembers is void
        come = [table for table in wanted if table not in captured or captured[table].state != "initial"]
    before = [_note(names, table, state, captured.get(table)) for table in come]
    return before, [_forget(names, table) for table in sorted(set(captured) - set(wanted))]


def _note(names: Names, table: str, state: str, was: Captured | None) -> Action:
    how = "by the initial snapshot" if state == "initial" else "by an incremental snapshot of this table alone"
    upsert = sql.SQL(
        "INSERT INTO {0} (table_name, snapshot) VALUES ({1}, {2})"
        " ON CONFLICT (table_name) DO UPDATE SET snapshot = excluded.snapshot, signal_id = NULL, changed_at = now(),"
        " condition = NULL, sweep = false"
    ).format(names.identifier(names.captured), sql.Literal(table), sql.Literal(state))
    run = statements(f"noting the capture of {table}", upsert)
    return Action("snapshot", table, f"rows will be read {how}", was.state if was else None, state, run)


def _forget(names: Names, table: str) -> Action:
    delete = sql.SQL("DELETE FROM {} WHERE table_name = {}").format(
        names.identifier(names.captured), sql.Literal(table)
    )
    run = statements(f"forgetting the capture of {table}", delete)
    return Action("snapshot", table, "no longer captured; its topic stays as it is", "captured", None, run)


def mark(connection: Connection, names: Names, tables: Iterable[str], state: str, signal_id: str | None = None) -> None:
    """Set the state of some tables."""
    with explained("updating the list of captured tables"):
        update = sql.SQL(
            "UPDATE {} SET snapshot = %s, signal_id = %s, changed_at = now() WHERE table_name = ANY(%s)"
        ).format(names.identifier(names.captured))
        connection.execute(update, [state, signal_id, sorted(tables)])


def want_again(
    connection: Connection, names: Names, tables: Iterable[str], condition: str | None, *, sweep: bool
) -> None:
    """Note that tables, or their rows under a condition, are to be read again."""
    with explained("updating the list of captured tables"):
        update = sql.SQL(
            "UPDATE {} SET snapshot = 'wanted', signal_id = NULL, changed_at = now(), condition = %s, sweep = %s"
            " WHERE table_name = ANY(%s)"
        ).format(names.identifier(names.captured))
        connection.execute(update, [condition, sweep, sorted(tables)])


def settle(connection: Connection, names: Names, tables: Iterable[str]) -> None:
    """Note that tables which were read again are complete, and swept."""
    with explained("updating the list of captured tables"):
        update = sql.SQL(
            "UPDATE {} SET snapshot = 'done', changed_at = now(), condition = NULL, sweep = false"
            " WHERE table_name = ANY(%s)"
        ).format(names.identifier(names.captured))
        connection.execute(update, [sorted(tables)])
