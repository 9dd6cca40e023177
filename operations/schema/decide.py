"""What a changed table means for one view of one sink. Pure: docs/schema-changes.md is made by it.

The view is resolved under the old shape and under the new one, and what its documents have is compared: so a view that
names its columns is hardly ever concerned, and one that takes all of them nearly always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cdc import types
from cdc.catalogue import Column
from cdc.errors import ConfigError
from cdc.join.columns import document_columns
from cdc.join.view import JoinedView
from cdc.pipeline import SearchSink
from cdc.pipeline.sinks import Sink
from cdc.same_key import key_parts, same_key
from cdc.shapes import ColumnChange, Shape, column_changes, used_changes
from cdc.sql_names import quoted
from cdc.used import used_columns
from cdc.view import View
from sinks.configure import merged, plain
from sinks.iceberg.types import widens

ALL_ROWS = ""


class Verdict(IntEnum):
    """What is done, in the order of what it costs."""

    NOTHING = 0
    IN_PLACE = 1
    READ_AGAIN = 2
    NEW_GENERATION = 3
    REFUSE = 4

    @property
    def words(self) -> str:
        """As people read it."""
        return WORDS[self]


WORDS = {
    Verdict.NOTHING: "nothing",
    Verdict.IN_PLACE: "in place",
    Verdict.READ_AGAIN: "in place and read again",
    Verdict.NEW_GENERATION: "new generation",
    Verdict.REFUSE: "refuse",
}


@dataclass(frozen=True)
class Decision:
    """What is done for one view of one sink.

    Attributes:
        verdict: see ``Verdict``.
        why: in words; empty for nothing.
        read: which rows of the table are read again: a condition, or ``ALL_ROWS``; None for none.
        stops: the generation that is there can take nothing more of this table.
    """

    verdict: Verdict
    why: tuple[str, ...] = ()
    read: str | None = None
    stops: bool = False


def decide(old: Shape, new: Shape, was: View, now: View | ConfigError, sink: Sink) -> Decision:
    """What a change of one table means for a view in a sink.

    Args:
        old: the table as it was.
        new: as it is.
        was: the view, resolved with the table as it was.
        now: resolved with the table as it is, or why it can't be.
        sink: the sink's part of the pipeline file.

    Returns:
        one decision; of several changes at once the one that costs most.
    """
    table = new.table.qualified
    if isinstance(now, ConfigError):
        return Decision(Verdict.REFUSE, (now.what,), stops=True)
    if other_key(old, new):
        # Its topic is made anew, by `headwater apply`: connectors/changed.py.
        return Decision(Verdict.NEW_GENERATION, (f"the key is ({', '.join(new.table.primary_key)})",), stops=True)
    used = set(used_columns(was, table) | used_columns(now, table))
    changes = list(used_changes(column_changes(old, new), used))
    lost = sorted(_said(was, table) - {*new.table.by_name, *(former for former, _ in new.table.renamed)})
    if not changes:
        return Decision(Verdict.NOTHING)
    if lost or (broken := sorted(_said(was, table) - new.table.by_name.keys())):
        return Decision(Verdict.REFUSE, (f"its Spark SQL names {', '.join(lost or broken)}",), stops=True)
    why = tuple(change.words for change in changes)
    read = ALL_ROWS if _replaced(old, new, used) else _read(changes, was, now, table, sink)
    if _needs_new(changes, was, now, table, sink):
        whole = read == ALL_ROWS or any(change.unlogged for change in changes)
        return Decision(Verdict.NEW_GENERATION, why, ALL_ROWS if whole else None)
    return Decision(Verdict.READ_AGAIN if read == ALL_ROWS else Verdict.IN_PLACE, why, read)


def other_key(old: Shape, new: Shape) -> bool:
    """Whether records of a table have another key than those that its topic holds. Pure."""
    return not same_key(key_parts(old.table), key_parts(new.table), numbered=old.oid == new.oid)


def together(decisions: Sequence[Decision]) -> str | None:
    """Which rows of a table are read again for all of its views; None for none. Pure."""
    return combined([one.read for one in decisions if one.read is not None])


def combined(asked: Sequence[str]) -> str | None:
    """One condition for several; None for none. Pure."""
    if not asked:
        return None
    if len(set(asked)) == 1:
        return asked[0]
    return ALL_ROWS if ALL_ROWS in asked else " OR ".join(f"({text})" for text in dict.fromkeys(asked))


def _replaced(old: Shape, new: Shape, used: set[str]) -> bool:
    """Whether another column bears a name that is used: records of before have the other one's values under it."""
    return any(
        old.table.by_name[name].ordinal != new.table.by_name[name].ordinal
        for name in used & old.table.by_name.keys() & new.table.by_name.keys()
        if old.oid == new.oid
    )


def _said(view: View, table: str) -> set[str]:
    """Columns of a table that Spark SQL of a view names."""
    if isinstance(view, JoinedView):
        return set()  # refused when it is resolved or analysed
    if view.table.qualified != table:
        return set()
    return set(used_columns(view, table)) - {source for source, _ in view.columns} - set(view.key)


def _needs_new(changes: Sequence[ColumnChange], was: View, now: View, table: str, sink: Sink) -> bool:
    """Whether what is there can't hold what comes."""
    if isinstance(was, JoinedView) and isinstance(now, JoinedView):
        if now.layout.renamed(was.layout.description()) != now.layout.description():
            return True
    elif now.needs_spark and _retyped(changes, _said(now, table)) and sink.type != "redis":
        return True  # what Spark SQL makes of another type may be of another type
    if isinstance(sink, SearchSink):
        return _differ(_properties(was, sink), _properties(now, sink))
    if sink.form == "columns":
        if isinstance(was, JoinedView) and isinstance(now, JoinedView) and _nested(was) != _nested(now):
            return True  # a struct with other fields, or fields of other types
        pairs = _same_fields(was, now)
        return any(not widens(types.spark_type(old), types.spark_type(new)) for old, new in pairs)
    return False


def _nested(view: JoinedView) -> dict[str, str]:
    """What of a table's columns is not the root's own, with its type."""
    own = {out for _, out in view.columns}
    return {name: kind for name, kind in document_columns(view) if name not in own}


def _retyped(changes: Sequence[ColumnChange], names: set[str]) -> bool:
    return any(change.kind == "retyped" and change.new is not None and change.new.name in names for change in changes)


def _properties(view: View, sink: SearchSink) -> dict[str, Any]:
    return merged(view.elasticsearch_mapping(), plain(sink.mapping))


def _differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a field that both have is mapped otherwise; new fields can be added to an index."""
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        if "properties" in old and "properties" in new:
            rest = {k: v for k, v in old.items() if k != "properties"} != {
                k: v for k, v in new.items() if k != "properties"
            }
            if rest or _differ(old["properties"], new["properties"]):
                return True
        elif old != new:
            return True
    return False


def _outs(view: View) -> dict[str, Column]:
    """Field -> the column of the root that it shows."""
    return {out: view.table.by_name[source] for source, out in view.columns}


def _same_fields(was: View, now: View) -> list[tuple[Column, Column]]:
    before, after = _outs(was), _outs(now)
    return [(before[out], after[out]) for out in before.keys() & after.keys()]


def _read(changes: Sequence[ColumnChange], was: View, now: View, table: str, sink: Sink) -> str | None:
    """Which rows are read again, where the target can hold what comes."""
    if any(change.unlogged for change in changes):
        return ALL_ROWS
    if isinstance(was, JoinedView) or was.table.qualified != table:
        return None  # a change of what is stored makes a new generation, which reads the log from its beginning
    before, after = _outs(was), _outs(now)
    fields = sink.form != "columns"  # a table's column is renamed and dropped for all rows at once
    if fields and before.keys() - after.keys():
        return ALL_ROWS
    if any(old.ordinal != new.ordinal for old, new in _same_fields(was, now)):
        return ALL_ROWS  # another column bears the name
    added = [change.new.name for change in changes if change.kind == "added" and change.new is not None]
    # Their values are in the log; but the records around the change may have been read without them. Not IS NOT NULL,
    # which is false of a composite with one null in it.
    return " OR ".join(f"{quoted(name)} IS DISTINCT FROM NULL" for name in added) if added else None
