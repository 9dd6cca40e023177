"""Captured tables that are not what was captured any more: noticed, remembered until it is mended, refused by name.

The list of captured tables (``captured.py``) remembers what each table was. Whoever looks (``run`` every few seconds,
``check``, ``plan``, ``apply``, ``status``) compares; a difference means that changes are missing in the table's topic.
That stays so when the table gets its name back: the *gap* is noted in the list, and is taken out of it only when the
table was read again and what is gone was deleted (``snapshot.py``).

Docs: docs/decisions/changed-tables.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from cdc.errors import TableChanged
from cdc.same_key import KeyPart, same_key
from connectors.captured.captured import LOST, Captured, Gap, read_captured, settle
from connectors.database.lost import note_missing
from connectors.database.sightings import Seen, Sighting, look
from connectors.debezium import pattern
from connectors.names import Names
from connectors.postgres import Connection, explained

# A table's oid, and its key, as the sinks know them.
KeptKey = tuple[int, Sequence[KeyPart]]
RENAMED = "was renamed to"
NOT_IN = "is not in publication"
WAS_OUT = "was out of publication"
LEFT_OUT = "was left out of the connector's table.include.list"
# Of all tables, by the setting that does it.
DROPS = "had changes left out by the connector's"
SKIPPED = f"{DROPS} skipped.operations"
# Settings of Debezium's that narrow what comes, and that we never make.
NARROWING = ("table.exclude.list", "schema.include.list", "schema.exclude.list", "column.include.list")
READ_AGAIN = "`headwater apply FILE --wait` reads it again, and deletes what is gone"
TOPIC_ANEW = (
    "`headwater apply FILE --wait` makes its topic anew and reads it again; a `headwater run` that is alive then builds"
    " the next generation of each sink that reads it (without one: `headwater rebuild FILE SINK --auto`)"
)


@dataclass(frozen=True)
class Change:
    """What happened to a table.

    Attributes:
        what: in words, to stand behind its name.
        key: records in its topic have another key than those that come: the topic can't be gone on with.
        gone: there is no table of that name now.
    """

    what: str
    key: bool = False
    gone: bool = False


def difference(known: Sighting, now: Sighting | None, elsewhere: Sighting | None, publication: str) -> Change | None:
    """What happened to a table since it was captured; None if nothing did. Pure.

    Args:
        known: the table when it was captured.
        now: what bears its name now.
        elsewhere: the captured table, under whatever name it has.
        publication: for the message.
    """
    if now is None:
        return Change(f"{RENAMED} {elsewhere.name}" if elsewhere else "was dropped", gone=True)
    said = []
    if now.oid != known.oid:
        said.append(
            f"{RENAMED} {elsewhere.name}, and another table has its name" if elsewhere else "was dropped and made again"
        )
    elif now.named != known.named and now.owner == known.owner:
        said.append("was renamed, and renamed back")
    if now.member is None:
        said.append(f"{NOT_IN} {publication}")
    elif now.oid == known.oid and now.member != known.member and not now.lacks:
        said.append(f"{WAS_OUT} {publication} for a while, or under a filter there")
    if now.lacks:
        said.append(f"does not get {now.lacks} sent by publication {publication}")
    key = not known.same_key(now)
    if key:
        said.append(_other_key(known, now))
    elif not now.carried and known.carried:
        said.append("has a replica identity that lacks its key")
    elif now.oid == known.oid and now.carried and known.named_keyless(now):
        said.append("had a replica identity that lacks its key for a while")
    return Change(", ".join(said), key=key) if said else None


def _other_key(known: Sighting, now: Sighting) -> str:
    if now.key != known.key:
        return f"has the key ({', '.join(now.key)}), and had ({', '.join(known.key)})"
    new, old = (", ".join(f"{part.name} {part.type_name}" for part in one.parts) for one in (now, known))
    if new != old:
        return f"has the key ({new}), and had ({old})"
    if same_key([replace(part, labels=()) for part in known.parts], now.parts, numbered=known.oid == now.oid):
        return f"has the key ({new}), and labels of it were given other names"
    return f"has the key ({new}) of another column, which was given that name"


def differences(captured: Mapping[str, Captured], seen: Seen, publication: str) -> dict[str, Change]:
    """Captured tables that differ from what is remembered of them. Pure."""
    out = {}
    for table, entry in captured.items():
        if entry.identity is None:
            continue
        now, same = seen.by_name.get(table), seen.by_oid.get(entry.identity.oid)
        if change := difference(entry.identity, now, same, publication):
            out[table] = change
    return out


def left_out(
    captured: Mapping[str, Captured], config: Mapping[str, str], options: Mapping[str, object] = {}
) -> dict[str, Change]:
    """Tables whose changes the connector drops, because somebody has narrowed its list or its operations. Pure.

    One that is still to be read may not be in the list yet: ``apply`` notes a table before it tells the connector.

    Args:
        captured: the list of captured tables. Those with a gap are read again in any case.
        config: the connector's, as it runs.
        options: the file's `connect.options`: what they skip is meant.
    """
    done = [t for t, e in captured.items() if e.state == "done" and (e.gap is None or e.gap.mending)]
    if _skipped(config) - _skipped(options):
        return {table: Change(SKIPPED) for table in done}
    for name in NARROWING:
        if config.get(name) and not options.get(name):
            return {table: Change(f"{DROPS} {name}") for table in done}
    listed = config.get("table.include.list")
    if not listed:
        return {}  # every table
    entries = [one.strip() for one in re.findall(r"(?:\\.|[^,\\])+", listed, re.DOTALL)]
    return {table: Change(LEFT_OUT) for table in done if not any(_matches(one, table) for one in entries)}


def _skipped(config: Mapping[str, object]) -> set[str]:
    """Which of inserts, updates and deletes a connector is told to drop; a TRUNCATE is dropped always."""
    return {one.strip().lower() for one in str(config.get("skipped.operations", "")).split(",")} & {"c", "u", "d"}


def _matches(entry: str, table: str) -> bool:
    """Whether an entry names a table: ours name one each, but a list that was edited may hold any expression."""
    try:
        return entry == pattern([table]) or re.fullmatch(entry, table, re.IGNORECASE) is not None
    except re.error:  # Java's expressions are others, and a table that is read for nothing is not lost
        return False


def look_at(connection: Connection, publication: str, captured: Mapping[str, Captured]) -> Seen:
    """Look at all captured tables, under their names and wherever they are now."""
    oids = [entry.identity.oid for entry in captured.values() if entry.identity is not None]
    return look(connection, publication, sorted(captured), oids)


def find_changed(connection: Connection, names: Names, publication: str) -> dict[str, TableChanged]:
    """Every captured table that has a gap, noted or only seen now; notes nothing.

    Raises:
        SourceError: the list can't be read (SourceUnavailable: transient).
    """
    captured = read_captured(connection, names)
    found = differences(captured, look_at(connection, publication, captured), publication)
    return refusals(captured, found)


def refusals(captured: Mapping[str, Captured], found: Mapping[str, Change]) -> dict[str, TableChanged]:
    """An error for each table with a gap, noted or found. Pure."""
    out = {}
    for table, entry in captured.items():
        if entry.gap is not None or table in found:
            out[table] = refusal(table, merged(entry.gap, found.get(table)), gone=table in found and found[table].gone)
    return out


def merged(gap: Gap | None, change: Change | None, *, mending: bool = False) -> Gap:
    """A gap with what was found now. Pure."""
    said = list(gap.reasons) if gap else []
    if change and change.what not in said:
        more = change.what.startswith(LOST)  # and more of the same: the newest tells it all
        back = f"{WAS_OUT} " in change.what  # a table that is in the publication again was noted as being out of it
        old = (LOST,) * more + (NOT_IN,) * back
        said = [one for one in said if not one.startswith(old)] + [change.what]
    return Gap(tuple(said), bool((gap and gap.key) or (change and change.key)), mending)


def refusal(table: str, gap: Gap, *, gone: bool = False) -> TableChanged:
    """The error for a table with a gap. Pure."""
    fix = TOPIC_ANEW if gap.key else READ_AGAIN
    if gone:
        named = "take it out of source.tables if it is named there"
        renamed = any(reason.startswith(RENAMED) for reason in gap.reasons)
        anew = ", or write its new name into the file" if renamed else ""
        fix = f"give {table} its name back{anew}, or, if it is gone for good, {named}; then {fix}"
    state = " (it is being read again)" if gap.mending else ""
    return TableChanged(
        f"table {table} {'; '.join(gap.reasons)}{state}",
        means="changes of it are in no topic: rows may be missing, out of date or left over in each sink that reads it",
        fix=fix,
    )


def note_gaps(
    connection: Connection, names: Names, captured: Mapping[str, Captured], found: Mapping[str, Change]
) -> None:
    """Remember gaps until they are mended; of tables that are still remembered as they were when they were compared.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    update = sql.SQL("UPDATE {} SET gap = %s::jsonb WHERE table_name = %s AND identity = %s::jsonb").format(
        names.identifier(names.captured)
    )
    with explained("noting a gap in the list of captured tables"):
        for table, change in found.items():
            entry = captured[table]
            gap = merged(entry.gap, change)
            if gap == entry.gap or entry.identity is None:
                continue
            note_missing(connection, names)
            identity = json.dumps(entry.identity.to_dict())
            connection.execute(update, [json.dumps(gap.to_dict()), table, identity])


def complete_keys(
    connection: Connection, names: Names, captured: Mapping[str, Captured], kept: Mapping[str, KeptKey]
) -> dict[str, Captured]:
    """Remember what an older version has not of the tables' keys, before anything is compared with them.

    Returns:
        The list as it is now; a table that somebody else has noted meanwhile is as it was.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    update = sql.SQL("UPDATE {} SET identity = %s::jsonb WHERE table_name = %s AND identity = %s::jsonb").format(
        names.identifier(names.captured)
    )
    out = dict(captured)
    with explained("noting the captured tables' keys"):
        for table, entry in captured.items():
            known = entry.identity
            if known is None or table not in kept or (held := known.completed(*kept[table])) == known:
                continue
            texts = [json.dumps(one.to_dict()) for one in (held, known)]
            if connection.execute(update, [texts[0], table, texts[1]]).rowcount:
                out[table] = replace(entry, identity=held)
    return out


def remember(connection: Connection, names: Names, captured: Mapping[str, Captured], seen: Seen) -> None:
    """Remember tables of which nothing was remembered yet, new owners, and new indexes.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    update = sql.SQL("UPDATE {} SET identity = %s::jsonb WHERE table_name = %s").format(
        names.identifier(names.captured)
    )
    with explained("noting what the captured tables are"):
        for table, entry in captured.items():
            now, known = seen.by_name.get(table), entry.identity
            if now is not None and (held := _kept(known, now)) != known:
                connection.execute(update, [json.dumps(held.to_dict()), table])


def _kept(known: Sighting | None, now: Sighting) -> Sighting:
    """What is remembered of a table that was looked at. Pure."""
    if known is None:
        return now
    if known.oid != now.oid:
        return known
    return now if known.owner != now.owner else known.with_indexes(now).with_key(now)


def complete(connection: Connection, names: Names, publication: str, entries: Iterable[Captured]) -> set[str]:
    """Note tables that were read as complete, and forget their gaps, unless something has happened to them since.

    In one transaction: a gap that stayed without anybody who reads the table would stop its flows for ever, and one
    that somebody has noted since, with a new wish to read it, is not ours to forget.

    Args:
        connection: as the owner of the list.
        names: the pipeline's.
        publication: its name.
        entries: as they were when what is complete now was looked at.

    Returns:
        The tables that are complete; not those that somebody has asked for again since.

    Raises:
        TableChanged: something has happened to one: it must be read again (terminal).
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    seen = {entry.table: entry for entry in entries}
    gaps = {t: e for t, e in read_captured(connection, names).items() if t in seen and e.gap is not None}
    found = differences(gaps, look_at(connection, publication, gaps), publication)  # in a transaction of its own
    with explained("updating the list of captured tables"), connection.transaction():
        settled = settle(connection, names, seen.values())
        again = _close_gaps(connection, names, {t: e for t, e in gaps.items() if t in settled}, found)
    for error in again:
        raise error
    return settled


def _close_gaps(
    connection: Connection, names: Names, gaps: Mapping[str, Captured], found: Mapping[str, Change]
) -> list[TableChanged]:
    """Forget the gaps of tables that were read again; those that must be read once more keep theirs, and are told."""
    note_gaps(connection, names, gaps, {table: change for table, change in found.items() if table in gaps})
    clear = sql.SQL("UPDATE {} SET gap = NULL WHERE table_name = %s AND (gap ->> 'mending')::boolean").format(
        names.identifier(names.captured)
    )
    return [
        refusal(table, merged(entry.gap, found.get(table)))
        for table, entry in gaps.items()
        if table in found or connection.execute(clear, [table]).rowcount == 0
    ]
