"""Which views a pipeline begins with, from the tables and their foreign keys. Pure.

One document for each table that is about something: with the rows that it points at, and with the rows that point at
it as long as these are few. Where they are many they are counted. One level each: what is proposed is read by a person,
who can write more, and every level costs rows that have to be kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc.catalogue import Table
from cdc.join.comparable import not_sorted
from cdc.types import supported, type_key
from connectors.survey import LeftOut
from connectors.tables.foreign_keys import ForeignKey, Sizes
from operations.propose import names
from operations.propose.budget import within
from operations.propose.hidden import called, has_secret_key, shown_columns, source_of, taken_by, without_view
from operations.propose.keys import Keys, not_a_join, sides
from operations.propose.proposed import Join, Proposal, Proposed

# Rows that are shown in a document, and up to how many there may be at the row that has most of them. All children of a
# row are read when its document is made.
SHOWN, NEAR = 100, 1_000
# Leaves of a joined document.
MAX_FIELDS = 400
# A table of no more than so many columns beside its key, which points at nothing, only gives names to codes.
LABELS = 1
# Columns that say when a row came to be: the newest are shown first.
_MADE = (
    "created_at",
    "created",
    "created_on",
    "inserted_at",
    "placed",
    "placed_at",
    "posted",
    "posted_at",
    "occurred_at",
)
_CHANGED = re.compile(r"updat|modif|chang|edit|expire|until|last", re.IGNORECASE)
_MOMENTS = frozenset(("timestamptz", "timestamp", "date"))


def propose_views(
    tables: Mapping[str, Table],
    keys: Sequence[ForeignKey],
    sizes: Sizes,
    *,
    joins: bool,
    search: bool = True,
    written: Mapping[str, Sequence[str]] | None = None,
) -> Proposal:
    """Views for some tables.

    Args:
        tables: ``schema.table`` -> those that are captured.
        keys: their foreign keys.
        sizes: how large they are.
        joins: whether the sinks take joined views; else each table is shown whole.
        search: whether one of the sinks is a search server, which has names of its own.
        written: table -> columns that are filled with the time of an insert.
    """
    return _Proposer(tables, keys, sizes, joins=joins, search=search, written=written or {}).proposal()


class _Proposer:
    def __init__(
        self,
        tables: Mapping[str, Table],
        keys: Sequence[ForeignKey],
        sizes: Sizes,
        *,
        joins: bool,
        search: bool,
        written: Mapping[str, Sequence[str]],
    ) -> None:
        self.tables, self.sizes, self.found, self.written = tables, sizes, Proposal(), written
        self.search, self.used = search, names.Taken()
        alike = Counter(name.partition(".")[2] for name in tables)
        # How the file writes a table's name: with its schema where the bare one would not do.
        self.said = {
            name: bare if schema == "public" and alike[bare] == 1 else name
            for name in tables
            for schema, _, bare in (name.partition("."),)
        }
        self.widths = {self.said[name]: len(table.columns) for name, table in tables.items()}
        self.shown = {name: shown_columns(table, search=search) for name, table in tables.items()}
        self.secret = [name for name, table in tables.items() if has_secret_key(table)]
        self.found.left_out += [without_view(name) for name in self.secret]
        self.keys = Keys(self._joining(keys) if joins else ())
        between = {name: sides(table, self.keys.of(name)) for name, table in tables.items()}
        self.between = {name: pair for name, pair in between.items() if pair is not None}

    def _joining(self, keys: Sequence[ForeignKey]) -> list[ForeignKey]:
        """Those that make joins; why the others make none is noted."""
        secret, found = frozenset(self.secret), list[ForeignKey]()
        for key in keys:
            if key.table in secret or key.target in secret:
                continue
            wrong = not_a_join(key, self.tables)
            if wrong is None:
                found.append(key)
            else:
                self.found.left_out.append(wrong)
        return found

    def proposal(self) -> Proposal:
        details = {name: owner for name in self.tables if (owner := self._owner(name)) is not None}
        apart = {*self.between, *details, *self.secret}
        shown = [name for name in self.tables if name not in apart]
        for name in shown:
            self.found.views.append(self._view(self.tables[name]))
        self.found.between, self.found.details = list(self.between), details
        self._in_no_document()
        self._within_a_file()
        return self.found

    def _within_a_file(self) -> None:
        """Fewer joins, if all of them are more than a file takes; then parts of others may need views of their own."""
        while True:
            self.found.views, left_out = within(self.found.views, len(self.tables))
            if not left_out:
                return
            self.found.left_out += left_out
            self._in_no_document()

    # -- what a table is -----------------------------------------------------------------------------------------------

    def _owner(self, name: str) -> str | None:
        """The table of whose documents this one's rows are parts: its key holds that one's, as an order's lines do."""
        if name in self.between:
            return None
        key = set(self.tables[name].primary_key)
        for one in self.keys.of(name):
            owns = one.target != name and set(one.columns) <= key
            if owns and one.target not in self.between and not self._is_label(one.target):
                return one.target
        return None

    def _is_label(self, name: str) -> bool:
        """Whether a table only gives names to codes: documents show it where they point at it."""
        table = self.tables[name]
        return not self.keys.of(name) and len(table.columns) - len(table.primary_key) <= LABELS

    def _near(self, key: ForeignKey) -> bool:
        """Whether the rows that point along a key are few enough to be shown."""
        most = self.sizes.fan_out(key)
        return most is None or most <= NEAR

    def _in_no_document(self) -> None:
        """A part of documents that are not made after all gets one of its own."""
        used = {join.table for view in self.found.views for join in view.joins if join.kind == "children"}
        for name in [*self.found.between, *self.found.details]:
            if self.said[name] not in used:
                self.found.views.append(self._view(self.tables[name]))
                self.found.details.pop(name, None)
                self.found.between = [one for one in self.found.between if one != name]

    # -- a view --------------------------------------------------------------------------------------------------------

    def _view(self, table: Table) -> Proposed:
        label = self._is_label(table.qualified)
        columns, hidden = self.shown[table.qualified]
        taken = names.Taken(taken_by(table.by_name, columns, search=self.search))
        joins: list[Join] = []
        if not label:
            refs = [self._ref(key, taken) for key in self.keys.of(table.qualified)]
            pointing = [self._pointing(key, taken) for key in self.keys.at(table.qualified)]
            lists = [join for found in pointing for join in found if join.kind == "children"]
            counts = [join for found in pointing for join in found if join.kind == "aggregates"]
            # A table of codes that a hundred thousand rows name: to count them all in it is seldom worth a row store.
            joins = self._fitting(table, [*refs, *lists, *counts]) if refs or lists else []
        name = names.snake(names.singular(table.name))
        name = self.used.take(name, names.snake(f"{table.schema}_{name}"))
        kind = "joined" if joins else "plain"
        return Proposed(name, table, self.said[table.qualified], kind, columns, tuple(joins), hidden)

    def _fitting(self, table: Table, joins: list[Join]) -> list[Join]:
        """Joins as long as an index has room for their fields: Elasticsearch takes a thousand, text counts twice."""
        left, kept, over = MAX_FIELDS - len(table.columns), list[Join](), list[Join]()
        for join in joins:
            size = sum(self._width(one) for one in (join, *join.refs))
            if size <= left:
                kept.append(join)
                left -= size
            else:
                over.append(join)
        if over:  # once for a view: the table of users of an ERP has hundreds, which would hide what else is left out
            what = f"{', '.join(f'{one.name} ({one.table})' for one in over)} of {table.qualified}"
            why = f"the document would have more than {MAX_FIELDS} fields, and an index takes not many more"
            self.found.left_out.append(LeftOut(what, why, "choose `columns`, then write it"))
        return kept

    def _width(self, join: Join) -> int:
        if join.kind == "aggregates":
            return 1
        return len(join.columns) or self.widths[join.table]

    def _ref(self, key: ForeignKey, taken: names.Taken) -> Join:
        target = self.tables[key.target]
        name = names.pointed_at(key.columns, target.name, key.keys)
        one = names.field(names.singular(target.name))
        name = taken.take(name, f"{name}_{one}" if name != one else f"{one}_row")
        return Join(name, "refs", self.said[key.target], key.forward, self.shown[key.target][0])

    def _pointing(self, key: ForeignKey, taken: names.Taken) -> list[Join]:
        """What a row shows of those that point at it: they themselves, how many they are, or both."""
        if key in self.between.get(key.table, ()):
            return self._across(key, taken)
        table, itself = self.tables[key.table], key.table == key.target
        if not itself and sorted(key.columns) in [sorted(one) for one in (table.primary_key, *table.unique_keys)]:
            return [self._only(key, taken)]
        several = len([one for one in self.keys.of(key.table) if one.target == key.target]) > 1
        name = names.field(names.plural(table.name))
        if several or itself:
            name = f"{name}_by_{names.pointing(key.columns)}"
        name = names.free(name, taken)
        most, found = self.sizes.fan_out(key), list[Join]()
        # Below itself there would be another level of the same, and nobody knows how many: they are counted.
        if self._near(key) and not itself:
            found.append(self._list(key, taken.take(name)))
        if not found or (most is not None and most > SHOWN):
            total = taken.take(f"{name}_total")
            found.append(Join(total, "aggregates", self.said[key.table], key.backward))
        return found

    def _only(self, key: ForeignKey, taken: names.Taken) -> Join:
        """The row whose key, or whose other unique key, is the foreign key: there is no second one."""
        table = self.tables[key.table]
        one = names.field(names.singular(table.name))
        name = taken.take(one, f"{one}_by_{names.pointing(key.columns)}")
        return Join(name, "children", self.said[key.table], key.backward, self.shown[key.table][0], one=True)

    def _list(self, key: ForeignKey, name: str) -> Join:
        table = self.tables[key.table]
        columns, order = self.shown[key.table][0], newest_first(table, self.written.get(key.table, ()))
        return Join(name, "children", self.said[key.table], key.backward, columns, order, SHOWN)

    def _across(self, key: ForeignKey, taken: names.Taken) -> list[Join]:
        """The rows on the other side of a table between two: its own rows, each with the one that it points at.

        The one place where many-to-many is written.
        """
        one, other = self.between[key.table]
        own = {*self.tables[key.table].primary_key, *one.columns, *other.columns}
        other = one if key == other else other
        table, target = self.tables[key.table], self.tables[other.target]
        far = names.pointed_at(other.columns, target.name, other.keys)
        name = names.free(names.field(names.plural(far)), taken, names.field(names.plural(table.name)))
        if not self._near(key):
            return [Join(taken.take(f"{name}_total"), "aggregates", self.said[key.table], key.backward)]
        if set(table.by_name) <= own:  # it says nothing but which belong together
            ref = Join(taken.take(name), "refs", self.said[other.target], other.forward)
            ref = replace(ref, columns=self.shown[other.target][0])
            step = self._list(key, taken.take(names.field(names.plural(table.name))))
            return [replace(step, columns=(), refs=(ref,), hide=True)]
        shown = self.shown[key.table][0] or tuple(column.name for column in supported(table).columns)
        mine = tuple(pick for pick in shown if source_of(pick) not in table.primary_key)
        mine = mine or tuple(pick for pick in shown if source_of(pick) in other.columns)
        far = names.free(far, taken_by(called(mine), (), search=self.search))
        ref = Join(far, "refs", self.said[other.target], other.forward, self.shown[other.target][0])
        below = replace(self._list(key, taken.take(name)), columns=mine, refs=(ref,))
        return [below]


def newest_first(table: Table, written: Sequence[str] = ()) -> str:
    """How children of a table are sorted; "" for by their key.

    Args:
        table: theirs.
        written: its columns that are filled with the time of an insert.
    """
    moments = [c.name for c in supported(table).columns if type_key(c) in _MOMENTS and not_sorted(c) is None]
    named = [name for name in _MADE if name in moments]
    # The time of the last change often begins as that of the insert.
    named += [name for name in moments if name in written and not _CHANGED.search(name)]
    found = named[:1] or ([m for m in moments if not table.by_name[m].nullable] if len(moments) == 1 else [])
    return f"{ordered(found[0])} desc" if found else ""


def ordered(name: str) -> str:
    """A column's name in ``order_by``."""
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"
