"""The list of captured tables and how each one's rows came, or are to come, into its topic; kept in the database.

``initial``: by the connector's first snapshot. ``wanted``: the table was added later; its rows must still be asked for.
``requested``: a signal for an incremental snapshot is sent. ``done``: every row is in the topic. A signal can be lost
(Debezium notes that it was read before it has begun): a request that nobody works on is sent again.

A table that is read again (``headwater resnapshot``) becomes ``wanted`` once more, with the condition on the rows, if
only some are meant, and with ``sweep`` when deletes that were missed are to be found after its end.

It also remembers what each table was when it was captured, and the gap of one that is not that any more
(``changed.py``). Then it is read again as well; the gap stays noted until that has come to its end.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from psycopg import sql

from cdc.records.position import parse_lsn
from connectors.actions import Action, statements
from connectors.captured.topic_begins import TOPIC, Begins
from connectors.database.lost import note_missing
from connectors.database.number import check_number
from connectors.database.sightings import Files, Sighting, look
from connectors.names import Names
from connectors.postgres import Connection, explained, has_columns, has_table

if TYPE_CHECKING:
    from connectors.servers import Servers


# How a reason begins that a topic has lost records (``lost_records.py``).
LOST = "has lost records"


@dataclass(frozen=True)
class Gap:
    """Changes of a table are missing in its topic.

    Attributes:
        reasons: what happened to it, in words.
        key: its key is another one: its topic must be made anew.
        mending: it is being read again, and nothing has happened to it since that began.
    """

    reasons: tuple[str, ...]
    key: bool = False
    mending: bool = False

    @property
    def unsent(self) -> bool:
        """What is missing never came: what a topic has lost was in it, and history may have read it."""
        return not all(reason.startswith(LOST) for reason in self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Gap:
        """What ``to_dict`` gave."""
        return cls(tuple(raw["reasons"]), bool(raw["key"]), bool(raw["mending"]))


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
        identity: what the table was when it was captured; None if an older version has captured it.
        gap: changes of it are missing; None if not.
        begins: partition -> first offset of its topic when it was last read whole; without those that begin at 0.
        topic_id: of its topic then; None if that is not known.
        read_through: where the source's log was (LSN in bytes) when all of its rows were in that topic for the first
            time; None if that is not known.
    """

    table: str
    state: str
    signal_id: str | None
    changed_at: datetime
    condition: str | None = None
    sweep: bool = False
    identity: Sighting | None = None
    gap: Gap | None = None
    begins: Mapping[int, int] = field(default_factory=dict)
    topic_id: str | None = None
    read_through: int | None = None


def read_captured(connection: Connection, names: Names) -> dict[str, Captured]:
    """The list, by table; empty when nothing was applied yet."""
    return _read(connection, names, sql.SQL("IS NULL"))


def read_left(connection: Connection, names: Names) -> dict[str, Captured]:
    """Tables that were captured once, and whose topics are still there unless somebody has deleted them.

    Each with the gap that it has if it comes back: what was deleted meanwhile must not stay in its topic.
    """
    away = Gap(("was not captured for a while",))
    return {
        table: replace(entry, gap=replace(away, key=entry.identity is None))  # whether its key is the same is not known
        for table, entry in _read(connection, names, sql.SQL("IS NOT NULL")).items()
    }


def _read(connection: Connection, names: Names, left: sql.SQL) -> dict[str, Captured]:
    with explained("reading the list of captured tables"):
        if not has_table(connection, names.schema, names.captured):
            return {}
        check_number(connection, names)
        # Through JSON: a list that an older version made lacks the last columns until the next apply.
        select = sql.SQL(
            "SELECT table_name, snapshot, signal_id, changed_at, to_jsonb(c) ->> 'condition',"
            " coalesce((to_jsonb(c) ->> 'sweep')::boolean, false), nullif(to_jsonb(c) -> 'identity', 'null'),"
            " nullif(to_jsonb(c) -> 'gap', 'null'), coalesce(nullif(to_jsonb(c) -> 'begins', 'null'), '{{}}'),"
            " nullif(to_jsonb(c) -> 'read_through', 'null')"
            " FROM {} c WHERE to_jsonb(c) ->> 'left_at' {}"
        ).format(names.identifier(names.captured), left)
        return {row[0]: _entry(*row) for row in connection.execute(select)}


def _entry(*row: Any) -> Captured:
    table, state, signal_id, changed_at, condition, sweep, identity, gap, begins, through = row
    topic = begins.get(TOPIC)
    return Captured(
        table,
        state,
        signal_id,
        changed_at,
        condition,
        sweep,
        None if identity is None else Sighting.from_dict(identity),
        None if gap is None else Gap.from_dict(gap),
        {int(partition): int(at) for partition, at in begins.items() if partition != TOPIC},
        topic,
        parse_lsn(through["lsn"]) if through is not None and through.get(TOPIC) == topic else None,
    )


def plan_captured(
    names: Names,
    publication: str,
    tables: Iterable[str],
    captured: Mapping[str, Captured],
    *,
    fresh: bool,
    emptied: Collection[str],
    gaps: Mapping[str, Gap],
) -> tuple[list[Action], list[Action]]:
    """Changes to the list. Pure.

    Args:
        names: the pipeline's.
        publication: its name.
        tables: captured tables, as the file says.
        captured: the list as it is.
        emptied: tables whose topic is gone, or is made anew: all of their rows must be read again.
        gaps: tables that are to be read again because changes of theirs are missing, and why.
        fresh: there is no connector yet: its first snapshot will read all of them.

    Returns:
        Actions to do before the connector changes, and after it.
    """
    wanted = sorted(tables)
    state = "initial" if fresh else "wanted"
    come = [table for table in wanted if table not in captured or table in emptied or table in gaps]
    if fresh:  # what an earlier, dropped capture remembers is void
        come = [table for table in wanted if table not in captured or captured[table].state != "initial"]
    before, begins, files = [], Begins(come), Files(come)
    for table in come:
        was = captured.get(table)
        gap = None if fresh else gaps.get(table) or (was.gap if was else None)
        sweep = gap is not None and table not in emptied
        before.append(_note(names, publication, table, state, was, gap, begins, files, sweep=sweep))
    unknown = [t for t in wanted if t in captured and t not in come and captured[t].identity is None]
    if unknown:
        before.append(_identify(names, publication, unknown))
    return before, [_forget(names, table) for table in sorted({*captured} - {*wanted})]


def _note(
    names: Names,
    publication: str,
    table: str,
    state: str,
    was: Captured | None,
    gap: Gap | None,
    begins: Begins,
    files: Files,
    *,
    sweep: bool,
) -> Action:
    how = "by the initial snapshot" if state == "initial" else "by an incremental snapshot of this table alone"
    upsert = sql.SQL(
        "INSERT INTO {0} AS t (table_name, snapshot, sweep, identity, gap, begins)"
        " VALUES (%s, %s, %s, %s::jsonb, %s::jsonb, %s::jsonb)"
        " ON CONFLICT (table_name) DO UPDATE SET snapshot = excluded.snapshot, signal_id = NULL, changed_at = now(),"
        " condition = NULL, sweep = excluded.sweep, identity = excluded.identity, gap = excluded.gap,"
        " begins = excluded.begins, left_at = NULL, read_through = CASE WHEN {1} THEN t.read_through END"
    ).format(names.identifier(names.captured), sql.Literal(sweep))  # swept is what stays in its topic
    kept = None if gap is None else json.dumps(gap.to_dict())
    missing = gap is not None and gap.unsent

    def run(servers: Servers) -> None:
        if missing:
            note_missing(servers.setup, names)
        # Looked at after the publication has it: its row there is a part of what is remembered.
        now = look(servers.setup, publication, [table]).by_name.get(table)
        if now is not None and state == "initial":  # before there is a slot: see connectors/captured/rewritten.py
            now = replace(now, files=files.of(servers.setup, table))
        identity = None if now is None else json.dumps(now.to_dict())
        with explained(f"noting the capture of {table}"):
            servers.setup.execute(upsert, [table, state, sweep, identity, kept, begins.of(servers, table)])

    why = f"; it {'; '.join(gap.reasons)}" if gap is not None else ""
    return Action("snapshot", table, f"rows will be read {how}{why}", was.state if was else None, state, run)


def _identify(names: Names, publication: str, tables: list[str]) -> Action:
    """An older version has captured these: what they are now is what they are taken for."""
    update = sql.SQL("UPDATE {} SET identity = %s::jsonb WHERE table_name = %s AND identity IS NULL").format(
        names.identifier(names.captured)
    )

    def run(servers: Servers) -> None:
        seen = look(servers.setup, publication, tables).by_name
        with explained("noting what the captured tables are"):
            for table, now in seen.items():
                servers.setup.execute(update, [json.dumps(now.to_dict()), table])

    detail = "remember what these tables are, so that one that takes their name is noticed"
    return Action("table", ", ".join(tables), detail, None, "identity", run, tuple(tables))


def _forget(names: Names, table: str) -> Action:
    # Its topic stays, and `drop --topics` must find it.
    leave = sql.SQL("UPDATE {} SET left_at = now(), gap = NULL WHERE table_name = {}").format(
        names.identifier(names.captured), sql.Literal(table)
    )
    run = statements(f"forgetting the capture of {table}", leave)
    detail = "no longer captured; its topic and the rows that sinks have of it stay: put it back to erase one"
    return Action("snapshot", table, detail, "captured", None, run)


def mark(connection: Connection, names: Names, tables: Iterable[str], state: str, signal_id: str | None = None) -> None:
    """Set the state of some tables.

    Args:
        connection: as the owner of the list.
        names: the pipeline's.
        tables: ``schema.table``, in the list.
        state: see ``Captured``.
        signal_id: of the signal that asks for them; None while there is none.
    """
    with explained("updating the list of captured tables"):
        update = sql.SQL(
            "UPDATE {} SET snapshot = %s, signal_id = %s, changed_at = now() WHERE table_name = ANY(%s)"
        ).format(names.identifier(names.captured))
        connection.execute(update, [state, signal_id, sorted(tables)])


def want_again(
    connection: Connection, names: Names, tables: Iterable[str], condition: str | None, *, sweep: bool
) -> None:
    """Note that tables, or their rows under a condition, are to be read again.

    Args:
        connection: as the owner of the list.
        names: the pipeline's.
        tables: ``schema.table``, in the list.
        condition: SQL on the rows; None for all.
        sweep: look for missed deletes when they are read.
    """
    with explained("updating the list of captured tables"):
        update = sql.SQL(
            "UPDATE {} SET snapshot = 'wanted', signal_id = NULL, changed_at = now(), condition = %s, sweep = %s"
            " WHERE table_name = ANY(%s)"
        ).format(names.identifier(names.captured))
        connection.execute(update, [condition, sweep, sorted(tables)])


def leave_unswept(connection: Connection, names: Names, tables: Iterable[str]) -> None:
    """Note that missed deletes of tables which are being read again are not to be looked for.

    Args:
        connection: as the owner of the list.
        names: the pipeline's.
        tables: ``schema.table``, in the list.
    """
    with explained("updating the list of captured tables"):
        update = sql.SQL("UPDATE {} SET sweep = false WHERE table_name = ANY(%s)").format(
            names.identifier(names.captured)
        )
        connection.execute(update, [sorted(tables)])


def settle(connection: Connection, names: Names, entries: Iterable[Captured]) -> set[str]:
    """Note that tables which were read are complete, and swept if that was asked for; and of those that are so for the
    first time where the log is: what is read of them behind it is read again.

    Args:
        connection: as the owner of the list.
        names: the pipeline's.
        entries: as they were when what is complete now was looked at.

    Returns:
        Those that are noted: not one that somebody has asked for again since, or has noted as complete.
    """
    noted = sql.SQL("")
    # Not where an older version has made the list, until the next apply.
    if has_columns(connection, names.schema, names.captured, "begins", "read_through"):
        noted = sql.SQL(
            ", read_through = CASE WHEN c.condition IS NULL AND (c.read_through IS NULL OR"
            " c.read_through ->> 'topic' IS DISTINCT FROM c.begins ->> 'topic') THEN jsonb_build_object("
            "'lsn', pg_current_wal_insert_lsn()::text, 'topic', c.begins ->> 'topic') ELSE c.read_through END"
        )
    # Whatever changes a table's state or its signal writes the moment, too.
    update = sql.SQL(
        "UPDATE {} c SET snapshot = 'done', signal_id = NULL, changed_at = now(), condition = NULL, sweep = false{}"
        " FROM unnest(%s::text[], %s::text[], %s::timestamptz[]) AS seen (table_name, signal_id, changed_at)"
        " WHERE c.table_name = seen.table_name AND c.signal_id IS NOT DISTINCT FROM seen.signal_id"
        " AND c.changed_at = seen.changed_at RETURNING c.table_name"
    ).format(names.identifier(names.captured), noted)
    seen = sorted(entries, key=lambda entry: entry.table)
    asked = [[e.table for e in seen], [e.signal_id for e in seen], [e.changed_at for e in seen]]
    with explained("updating the list of captured tables"):
        return {table for (table,) in connection.execute(update, asked)}
