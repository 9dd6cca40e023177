"""What a changed table means for one view of one sink. Pure: docs/schema-changes.md is made by it.

The view is resolved under the old shape and under the new one, and what its documents have is compared: so a view that
names its columns is hardly ever concerned, and one that takes all of them nearly always.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cdc import types
from cdc.catalogue import Column, Table
from cdc.errors import ConfigError
from cdc.fold import FoldView
from cdc.join.columns import document_columns
from cdc.join.expressions import members, mentions, names
from cdc.join.view import JoinedView
from cdc.pipeline import SearchSink
from cdc.pipeline.sinks import Sink
from cdc.same_key import key_parts, same_key
from cdc.shapes import ColumnChange, Shape, column_changes, used_changes
from cdc.sql_names import quoted
from cdc.timed import MatchView, WindowView
from cdc.used import used_columns
from cdc.view import View
from sinks.configure import merged, plain
from sinks.elasticsearch.mapping import merge
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
        asks: what somebody has to write into the pipeline file, in words: without it no next generation is built.
    """

    verdict: Verdict
    why: tuple[str, ...] = ()
    read: str | None = None
    stops: bool = False
    asks: tuple[str, ...] = ()


def decide(
    old: Shape,
    new: Shape,
    was: View,
    now: View | ConfigError,
    sink: Sink,
    mapped: Mapping[str, Any] | None = None,
) -> Decision:
    """What a change of one table means for a view in a sink.

    Args:
        old: the table as it was.
        new: as it is.
        was: the view, resolved with the table as it was.
        now: resolved with the table as it is, or why it can't be.
        sink: the sink's part of the pipeline file.
        mapped: fields that its index has besides, of columns that are gone: see ``mapped_after``.

    Returns:
        one decision; of several changes at once the one that costs most.
    """
    table = new.table.qualified
    if isinstance(now, ConfigError):
        return Decision(Verdict.REFUSE, (now.what,), stops=True)
    if other_key(old, new):
        # Its topic is made anew, by `headwater apply`: connectors/captured/changed.py.
        return Decision(Verdict.NEW_GENERATION, (f"the key is ({', '.join(new.table.primary_key)})",), stops=True)
    used = set(used_columns(was, table) | used_columns(now, table))
    changes = list(used_changes(column_changes(old, new), used))
    if not changes:
        return Decision(Verdict.NOTHING)
    if lost := sorted(_lost(was, now, table)):
        return Decision(Verdict.REFUSE, (f"its Spark SQL names {', '.join(lost)}",), stops=True)
    why = tuple(change.words for change in changes)
    read = _read(changes, was, now, table, sink)
    if _needs_new(was, now, table, sink, mapped or {}):
        whole = read == ALL_ROWS or any(change.unlogged for change in changes)
        return Decision(Verdict.NEW_GENERATION, why, ALL_ROWS if whole else None, asks=_asks(was, now, sink))
    verdict = Verdict.READ_AGAIN if read == ALL_ROWS else Verdict.IN_PLACE
    return Decision(verdict, why, read, asks=_asks(was, now, sink))


def _asks(was: View, now: View, sink: Sink) -> tuple[str, ...]:
    """What is there goes on without a field that `mapping:` names; what is made of the file is refused for it."""
    if not isinstance(sink, SearchSink):
        return ()
    gone = {out for _, out in was.columns} - {out for _, out in now.columns}
    unless = " unless another view of the sink has it" if len(sink.view_names) != 1 else ""
    return tuple(f"take `{name}` out of `mapping:`{unless}" for name in sorted(gone & sink.mapping.keys()))


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


def _values(view: View) -> list[str]:
    """Its Spark SQL that makes something that documents show, or that a state keeps; not that of a condition."""
    found = list(view.fields.values())
    if isinstance(view, FoldView):
        found.append(view.step)
    if isinstance(view, (WindowView, MatchView)):
        found += view.expressions
    return found


def _lost(was: View, now: View, table: str) -> set[str]:
    """What Spark SQL of a view names and its row has no more. Documents may go on to show it, by the name that the file
    knows; of expressions Spark takes none, and all of the generation would stop."""
    texts = [*_values(was), *([was.where] if was.where else [])]
    gone = _without({name for name, _ in was.spark_schema()}, {name for name, _ in now.spark_schema()})
    lost = set[str]().union(*(names(text, gone) for text in texts))
    if isinstance(was, FoldView):
        return lost | _as_members(texts, gone, lambda before: before == "event")
    if isinstance(was, JoinedView) and isinstance(now, JoinedView):
        lost |= _lost_below(was, now, table, texts)
    return lost


def _lost_below(was: JoinedView, now: JoinedView, table: str, texts: Sequence[str]) -> set[str]:
    """Likewise of a table's rows that are not the root: structs by their columns' own names, and what is aggregated."""
    kept, there = was.layout.tables[table], now.layout.tables[table].table.by_name
    gone = _without(kept.table.by_name, there)
    computed = [text for one in kept.aggregates if one.computed for text in (one.value, one.where) if text]
    lost = set[str]().union(*(names(text, gone) for text in computed))
    nodes = [node for path, node in was.tree.walk() if path]
    mine = {node.name.casefold() for node in nodes if node.table.qualified == table}
    others = {node.name.casefold() for node in nodes} - mine
    return lost | (_as_members(texts, gone, lambda before: before not in others) if mine else set())


def _without(before: Collection[str], after: Collection[str]) -> set[str]:
    there = {name.casefold() for name in after}
    return {name for name in before if name.casefold() not in there}


def _as_members(texts: Sequence[str], columns: Collection[str], of: Callable[[str], bool]) -> set[str]:
    said = {member for text in texts for before, member in members(text) if of(before)}
    return {name for name in columns if name.casefold() in said}


def _needs_new(was: View, now: View, table: str, sink: Sink, mapped: Mapping[str, Any]) -> bool:
    """Whether what is there can't hold what comes."""
    if isinstance(was, JoinedView) and isinstance(now, JoinedView) and _joined_otherwise(was, now, sink):
        return True
    if sink.type != "redis" and _computed_otherwise(was, now, table):
        return True  # what Spark SQL makes of another type may be of another type
    if isinstance(sink, SearchSink):
        return _differ(merge(mapped, _properties(was, sink)), _properties(now, sink))
    if sink.form == "columns":
        if isinstance(was, JoinedView) and isinstance(now, JoinedView) and _nested(was) != _nested(now):
            return True  # a struct with other fields, or fields of other types
        pairs = _same_fields(was, now)
        return any(not widens(types.spark_type(old), types.spark_type(new)) for old, new in pairs)
    return False


def _joined_otherwise(was: JoinedView, now: JoinedView, sink: Sink) -> bool:
    """Whether the row store has other columns, or documents show the same ones under other names: their rows are
    stored as they were, so that reading them again makes no document. A table's column is renamed for all rows at once.
    """
    if now.layout.renamed(was.layout.description()) != now.layout.description():
        return True
    return sink.form != "columns" and _named_otherwise(was, now)


def _named_otherwise(was: JoinedView, now: JoinedView) -> bool:
    before, after = _field_names(was), _field_names(now)
    return any(before[at] != after[at] for at in before.keys() & after.keys())


def _field_names(view: JoinedView) -> dict[tuple[tuple[str, ...], int], set[str]]:
    """(path of an object, number of a column) -> its fields that show the column. By number: two columns that swap
    their names leave an object the same fields."""
    found: dict[tuple[tuple[str, ...], int], set[str]] = {}
    for path, node in view.tree.walk():
        for source, out in node.columns if node.value is None else ():
            found.setdefault((path, node.table.by_name[source].ordinal), set()).add(out)
    return found


def _computed_otherwise(was: View, now: View, table: str) -> bool:
    """Whether Spark SQL of a view makes something of a column that has another type in Spark by now."""
    if not isinstance(was, JoinedView) or not isinstance(now, JoinedView):
        return any(mentions(text, _other_types(was.table, now.table)) for text in _values(was))
    if not (other := _other_types(was.layout.tables[table].table, now.layout.tables[table].table)):
        return False
    of_rows = was.layout.tables[table].aggregates
    if any(
        mentions(one.value, other) for one in of_rows if one.value and one.column is None and one.function != "count"
    ):
        return True
    before, after = dict(was.spark_schema()), dict(now.spark_schema())
    shown = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    return any(mentions(text, shown) for text in _values(was))


def _other_types(old: Table, new: Table) -> set[str]:
    both = old.by_name.keys() & new.by_name.keys()
    return {name for name in both if types.spark_type(old.by_name[name]) != types.spark_type(new.by_name[name])}


def _nested(view: JoinedView) -> dict[str, str]:
    """What of a table's columns is not the root's own, with its type."""
    own = {out for _, out in view.columns}
    return {name: kind for name, kind in document_columns(view) if name not in own}


def _properties(view: View, sink: SearchSink) -> dict[str, Any]:
    return merged(view.elasticsearch_mapping(), plain(sink.mapping))


def mapped_after(
    decision: Decision, was: View, now: View | ConfigError, sink: Sink, mapped: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The fields that an index has after a change, of those that no document shows any more too: a mapping is never
    taken back. Another column may come under such a name, of another type. Pure.

    Args:
        decision: what was decided.
        was: see ``decide``.
        now: likewise.
        sink: likewise.
        mapped: what this gave after the change before; empty before the first.

    Returns:
        ``mapped`` itself if there is nothing to remember.
    """
    follows = decision.verdict in (Verdict.IN_PLACE, Verdict.READ_AGAIN)
    if not follows or isinstance(now, ConfigError) or not isinstance(sink, SearchSink):
        return mapped
    whole, after = merge(mapped, _properties(was, sink)), _properties(now, sink)
    return mapped if merge(whole, after) == after else whole


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
