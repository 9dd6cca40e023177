"""History: every event of a table as a row, and the rule by which a cut takes whole transactions of it. Pure.

A row carries two places in the source's log, both packed as in cdc/records/position.py. ``_hw_position`` orders the
events of one row. ``_hw_after`` orders transactions: it is the LSN of the last commit before the row's own transaction,
so all rows of a transaction share it, and it grows in the order in which transactions were committed. A cut at C is all
rows with ``_hw_after < C``: whole transactions, whatever the order of their rows' LSNs. docs/decisions/history.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from cdc.records.change import Change, Op
from cdc.records.debezium_json import STREAMED, WRITTEN, lsn_of

# What a column of ours begins with.
OURS = "_hw_"
OP, POSITION, AFTER, TX, TIME = "_hw_op", "_hw_position", "_hw_after", "_hw_tx", "_hw_commit_time"
PARTITION, OFFSET, SOURCE, MISSING = "_hw_partition", "_hw_offset", "_hw_source", "_hw_missing"
# Name -> Spark's type, behind the table's own columns.
COLUMNS: Mapping[str, str] = {
    OP: "string",
    POSITION: "bigint",
    AFTER: "bigint",
    TX: "bigint",
    TIME: "timestamp",
    PARTITION: "int",
    OFFSET: "bigint",
    SOURCE: "string",
    MISSING: "array<string>",
}
# Behind the name of a column that was dropped, once another one has its name.
DROPPED = "__dropped"
# Of a version: from when to when it was the current one, and whether it still is.
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
READ, DELETED = "read", "delete"
# A commit's time is taken before its record is put into the log, by less than this: of two commits that are further
# apart the older one stands before the other.
EARLY_US = 1_000_000
WORDS: Mapping[Op, str] = {
    Op.READ: READ,
    Op.CREATE: "insert",
    Op.UPDATE: "update",
    Op.DELETE: DELETED,
    Op.TOMBSTONE: DELETED,
}


def after_of(source: Mapping[str, Any], base: int, snapshot_lsn: int) -> int:
    """The last commit before an event's transaction, packed.

    A row that a snapshot has read stands just before the snapshot's position: a cut at that position has it. The first
    transaction after a snapshot knows of no commit before it: that is the snapshot.

    Args:
        source: the event's ``source`` block.
        base: the packed epoch.
        snapshot_lsn: of the initial snapshot, in bytes.

    Raises:
        ValueError, TypeError: there is no usable LSN.
    """
    if source.get(WRITTEN):
        return base | int(source[WRITTEN])
    if source.get("snapshot") not in STREAMED:
        return base | (lsn_of(dict(source)) - 1)
    sequence = source["sequence"]
    before = orjson.loads(sequence)[0] if sequence else None
    return base | (snapshot_lsn if before is None else int(before))


def cut_at_lsn(lsn: int, straddling: Iterable[int]) -> int:
    """The cut through an LSN.

    ``_hw_after < lsn`` takes every transaction that was committed at or before it, and perhaps the one that was next.
    If that one has written behind the LSN, it was certainly committed behind it, and stays out, whole.

    Args:
        lsn: packed.
        straddling: ``_hw_after`` of streamed rows that stand at or behind ``lsn`` and follow a commit before it.
    """
    return min((after for after in straddling if after < lsn), default=lsn)


def cut_at_time(frontier: int, later: Iterable[int]) -> int:
    """The cut through a moment: everything before the first transaction, in the order of commits, that was later.

    Commits' times are not quite in the commits' order: one that is a moment younger may stand before an older one.

    Args:
        frontier: up to where history is complete, packed.
        later: ``_hw_after`` of streamed rows that were committed after the moment.
    """
    return min((after for after in later if after < frontier), default=frontier)


def cut_behind(after: int, frontier: int, later: Iterable[int]) -> int:
    """The cut right behind a transaction: the next one in the order of commits is not in it.

    Args:
        after: the transaction's ``_hw_after``, packed.
        frontier: up to where history is complete, packed; behind ``after``.
        later: ``_hw_after`` of streamed rows of other transactions.
    """
    return cut_at_time(frontier, (one for one in later if one > after))


def begins_at(snapshot: int, reads: Sequence[int]) -> int:
    """The first cut at which a table's history is whole.

    Args:
        snapshot: position of the initial snapshot, packed.
        reads: ``_hw_after`` of the rows that a snapshot has read.

    Returns:
        the snapshot's position; of a table that was captured later, where its last row was read.
    """
    return snapshot if not reads or min(reads) < snapshot else max(reads) + 1


# -- texts -------------------------------------------------------------------------------------------------------------


def quoted_by(mark: str, names: Iterable[str]) -> list[str]:
    """Names in quotes of an engine's own: Spark's are backticks."""
    return [mark + name.replace(mark, mark * 2) + mark for name in names]


def _by_key(key: Sequence[str], floats: Collection[str], mark: str) -> str:
    """What events of one row share. Floats go by their text: 0.0 and -0.0 are two rows, and one number."""
    names = zip(key, quoted_by(mark, key), strict=True)
    return ", ".join(f"CAST({name} AS STRING)" if one in floats else name for one, name in names)


def as_of_sql(
    columns: Sequence[str], key: Sequence[str], place: str, cut: int, mark: str = '"', floats: Collection[str] = ()
) -> str:
    """SQL that gives a table as of a cut.

    Args:
        columns: of the table, without ours.
        key: its key's columns.
        place: what follows FROM: a table, a function.
        cut: packed.
        mark: what names are quoted with.
        floats: those of the key's columns that are floats.
    """
    shown, keys = ", ".join(quoted_by(mark, columns)), _by_key(key, floats, mark)
    return (
        f"SELECT {shown} FROM (SELECT *, row_number() OVER (PARTITION BY {keys} "  # noqa: S608 (names are quoted)
        f"ORDER BY {POSITION} DESC, {OFFSET} DESC) AS {OURS}nth FROM {place} WHERE {AFTER} < {cut}) "
        f"WHERE {OURS}nth = 1 AND {OP} <> '{DELETED}'"
    )


def set_aside(
    columns: Sequence[str], own: Collection[str] = (), were: Mapping[str, Collection[str]] | None = None
) -> dict[str, list[str]]:
    """Column -> the columns beside it that hold what was written while it had another type. Pure.

    Args:
        columns: of a history, which puts such a column aside as ``<column>__<old type>``, and another one that had the
            name before it as ``<column>__dropped``.
        own: those that are the source's: one may be called as if it had been put aside.
        were: column -> the names that it has had, for one that the source has dropped may be called so too; None where
            that is not known.
    """
    ours = [one for one in columns if one not in own]

    def is_aside(one: str, name: str) -> bool:
        named = one.startswith(f"{name}__") and not one.startswith(name + DROPPED)
        return named and (were is None or name in were.get(one, ()))

    found = {name: [one for one in ours if is_aside(one, name)] for name in columns}
    return {name: others for name, others in found.items() if others}


def versions_sql(
    columns: Sequence[str], key: Sequence[str], place: str, mark: str = '"', floats: Collection[str] = ()
) -> str:
    """SQL that gives every version of every row, and from when to when it was the current one; arguments as
    ``as_of_sql``. A name of ours that the table has itself (in whatever case) is the table's: ours begins with ``OURS``
    then, as no column of a source may."""
    taken = {name.lower() for name in columns}
    since, until, current = (OURS + name if name in taken else name for name in (VALID_FROM, VALID_TO, IS_CURRENT))
    shown, keys = ", ".join(quoted_by(mark, columns)), _by_key(key, floats, mark)
    order = f"OVER (PARTITION BY {keys} ORDER BY {POSITION}, {OFFSET})"
    return (
        f"SELECT {shown}, {TIME} AS {since}, {OURS}until AS {until}, {OURS}last AS {current}, "  # noqa: S608
        f"{OP}, {POSITION}, {AFTER}, {TX} FROM (SELECT *, lead({TIME}) {order} AS {OURS}until, "
        f"lead({OFFSET}) {order} IS NULL AS {OURS}last FROM {place}) WHERE {OP} <> '{DELETED}'"
    )


def op_of(change: Change) -> str:
    """What is written of a change's operation."""
    return WORDS[change.op]
