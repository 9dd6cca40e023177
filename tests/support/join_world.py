"""Tables, random views over them, and a log that the cleaner thins out; the truth of it is in join_loops.py.

Everything is driven by a ``random.Random``-like source of choices, so that hypothesis or a plain seed can lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from cdc.catalogue import Column, Table
from cdc.join.incoming import Incoming, RowMaker, newest
from cdc.join.tree import Aggregate, Function, Node, Order
from cdc.join.view import JoinedView
from cdc.records.change import Change, Op

TABLES = ("a", "b", "c", "d")
VALUES = ("n", "amount", "note", "f")

# A table's key columns (name, type) and the keys that it may have: texts are those that break names, tags and patterns.
Keys = tuple[tuple[tuple[str, str], ...], tuple[tuple[Any, ...], ...]]
KEYS: tuple[Keys, ...] = (
    ((("id", "int4"),), ((0,), (1,), (2,), (3,), (4,), (5,))),
    ((("id", "text"),), (("",), ("{}",), ("a|b%7B\\",), ("é",), ("%",), ("*",))),
    ((("id", "int4"), ("sub", "text")), ((0, ""), (0, "é{x}|"), (1, ""), (1, "|"), (2, ""), (2, "{"))),
)
# Beside each of them, a unique key that may be NULL: its columns, and the values that it may have.
UNIQUE: tuple[Keys, ...] = (
    ((("u", "text"),), (("",), ("x|%",), ("é",), ("{}",))),
    ((("u", "int4"),), ((0,), (1,), (2,), (3,))),
    ((("u", "text"), ("w", "int4")), (("", 0), ("", 1), ("é{", 0), ("|", 1))),
)
FLOATS = (0.0, -0.0, 1.5, -2.25, "NaN", "Infinity", "-Infinity", None)

Row = dict[str, Any]
PartOf = tuple[str, int]


def table(name: str, keys: Keys) -> Table:
    """A table with two keys, a nullable reference to either of every table (itself too), and values of many types."""
    columns = [Column(column, kind, kind, nullable=False) for column, kind in keys[0]]
    unique = unique_of(keys)[0]
    columns += [Column(column, kind, kind) for column, kind in unique]
    columns += [Column(f"{other}_{column}", kind, kind) for other in TABLES for column, kind in (*keys[0], *unique)]
    columns += [
        Column("n", "integer", "int4"),
        Column("amount", "numeric(10,2)", "numeric", precision=10, scale=2),
        Column("note", "text", "text"),
        Column("f", "double precision", "float8"),
    ]
    primary = tuple(column for column, _ in keys[0])
    return Table("public", name, tuple(columns), primary, unique_keys=(tuple(column for column, _ in unique),))


def unique_of(keys: Keys) -> Keys:
    """The unique key that goes with a primary one."""
    return UNIQUE[KEYS.index(keys)]


# -- random views -------------------------------------------------------------------------------------------

FUNCTIONS: tuple[tuple[Function, bool, str | None], ...] = (
    ("count", False, None),
    ("count", False, "n"),
    ("count", True, "note"),
    ("count", True, "f"),
    ("sum", False, "n"),
    ("sum", False, "amount"),
    ("sum", False, "f"),
    ("avg", False, "amount"),
    ("min", False, "note"),
    ("max", False, "amount"),
    ("min", False, "n"),
    ("min", False, "f"),
    ("max", False, "f"),
    ("sum", False, "n * 2"),
)
# What Spark SQL would compute for them; of `n * 2` only rows count of which `n > 0` is true.
CONDITION = "n > 0"


def computed(aggregate: Aggregate, row: Row) -> Any:
    """The value of a computed aggregate over a row."""
    n = row["n"]
    return n * 2 if aggregate.computed and n is not None and n > 0 else None


def random_view(random: Random, *, small: bool = False) -> JoinedView:
    """A view over up to eight places of the tables, three levels deep; or a small one, in which more meets."""
    keys = random.choice(KEYS)
    if small:
        joined = random.choice((keys, unique_of(keys)))[0]
        own = tuple((column, f"a_{column}") for column, _ in joined)
        edge = tuple((f"b_{column}", column) for column, _ in joined)
        kid = Node("k", "child", table("b", keys), own, (*((c, c) for c, _ in keys[0]), ("n", "n")))
        ref = Node("r", "ref", table("b", keys), edge, (("n", "n"),))
        sums = (
            Aggregate("count", table("b", keys), own, "count"),
            Aggregate("sum", table("b", keys), own, "sum", False, "n"),
        )
        columns = tuple((column, column) for column, _ in keys[0])
        root = Node("root", "root", table("a", keys), (), columns, (ref,), (kid,), sums)
        return JoinedView("v", root.table, root.table.primary_key, root.columns, root=root)
    root = _node(random, keys, "root", "root", random.choice(TABLES), (), depth=0)
    return JoinedView("v", root.table, root.table.primary_key, root.columns, root=root)


def first_only(view: JoinedView) -> JoinedView:
    """The small view, showing of its children only the one with the greatest ``n``."""
    (kid,) = view.tree.children
    first = replace(kid, order_by=(Order("n", True, False),), limit=1)
    return replace(view, root=replace(view.tree, children=(first,)))


def as_it_was(view: JoinedView) -> JoinedView:
    """The small view with its reference shown as it was when the root's ``n`` says; the rest is of another table."""
    tree, keys = view.tree, next(keys for keys in KEYS if _same(keys, view.table, view.table.primary_key))
    other = table("c", keys)
    kids = tuple(replace(kid, table=other) for kid in tree.children)
    sums = tuple(replace(item, table=other) for item in tree.aggregates)
    own = tuple((f"b_{column}", column) for column, _ in keys[0])
    refs = tuple(replace(ref, on=own, as_of="n") for ref in tree.refs)
    return replace(view, root=replace(tree, refs=refs, children=kids, aggregates=sums))


# How often a nested row is said to be a value, hidden, or the only one that points at the row above.
WORDS = 0.2


def _node(random: Random, keys: Keys, name: str, kind: Any, of: str, on: Any, depth: int) -> Node:
    named = [column for column, _ in keys[0]]
    one = kind == "child" and random.random() < WORDS
    if depth and random.random() < WORDS:
        value = random.choice((*named, *VALUES))
        order, limit = ((), None) if one else _order(random, kind)
        node = Node(name, kind, table(of, keys), on, ((value, value),), (), (), (), order, limit)
        return replace(node, one=one, value=value)
    picked = (*named, *(c for c in VALUES if random.random() < 0.4))
    refs, children, aggregates = [], [], []

    def joined() -> tuple[str, ...]:
        """The primary key or the unique one."""
        return tuple(column for column, _ in random.choice((keys, keys, unique_of(keys)))[0])

    def own() -> tuple[tuple[str, str], ...]:
        return tuple((column, f"{of}_{column}") for column in joined())

    # What a hidden row leads to stands beside what is in the row above: no name may be there twice.
    above = name if depth else ""
    if depth < 3:
        for number in range(random.choice((0, 1, 1, 2) if depth < 2 else (0, 0, 1))):
            other = random.choice(TABLES)
            edge = tuple((f"{other}_{column}", column) for column in joined())
            refs.append(_node(random, keys, f"{above}r{number}", "ref", other, edge, depth + 1))
        for number in range(random.choice((0, 1, 1, 2) if depth < 2 else (0, 0, 1))):
            other = random.choice(TABLES)
            children.append(_node(random, keys, f"{above}k{number}", "child", other, own(), depth + 1))
    for number in range(random.choice((0, 0, 1, 3))):
        function, distinct, value = random.choice(FUNCTIONS)
        other = table(random.choice(TABLES), keys)
        where, sql = (CONDITION, "int") if value == "n * 2" else (None, None)
        aggregates.append(Aggregate(f"g{number}", other, own(), function, distinct, value, where, sql))
    order, limit = ((), None) if one else _order(random, kind)
    hide = bool(depth) and bool(refs or children) and random.random() < 2 * WORDS
    columns = () if hide else tuple((c, c if random.random() < 0.8 else f"{c}_renamed") for c in picked)
    if hide:
        aggregates = []
    node = Node(name, kind, table(of, keys), on, columns, tuple(refs), tuple(children), tuple(aggregates), order, limit)
    return replace(node, one=one, hide=hide)


def _order(random: Random, kind: str) -> tuple[tuple[Order, ...], int | None]:
    if kind != "child" or random.random() >= 0.4:
        return (), None
    order = Order(random.choice(("n", "note", "amount")), random.random() < 0.5, random.random() < 0.5)
    return (order,), random.choice((None, 1, 2))


class Version(NamedTuple):
    """A row of a table as it once was: since when (ms), its key, and whether it was made then; None when it ended."""

    since: int
    key: int
    row: Row | None
    created: bool


class Tables(dict[str, dict[int, Row]]):
    """Tables by name, and what their rows were before.

    Attributes:
        history: ``name`` -> versions, the oldest first.
    """

    def __init__(self) -> None:
        super().__init__({name: {} for name in TABLES})
        self.history: dict[str, list[Version]] = {name: [] for name in TABLES}


# -- the log --------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Tables and the log of their changes: (table, key % 2) -> records.

    Attributes:
        gone: (partition, offset) of records that the cleaner has removed; offsets stay.
        parts: of each topic.
        rows: how many keys a table has.
        clock: now, in milliseconds.
        versioned: tables of which the view shows rows as they were; their topics are not cleaned.
        pace: how likely a change has a position of its own. Where many share one, versions run ahead of positions.
    """

    view: JoinedView
    tables: Tables = field(default_factory=Tables)
    log: dict[PartOf, list[Change]] = field(default_factory=dict)
    gone: set[tuple[PartOf, int]] = field(default_factory=set)
    lsn: int = 1000
    parts: int = 2
    pace: float = 0.5
    rows: int = 3
    clock: int = 1
    versioned: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        named = self.view.table.primary_key
        self.keys = next(keys for keys in KEYS if _same(keys, self.view.table, named))
        self.columns = [column.name for column in self.view.table.columns]
        self.unique = unique_of(self.keys)
        layouts = self.view.layout.tables
        # Where rows are joined by a unique key, they exchange it now and then.
        self.exchanged = [of.table.name for of in layouts.values() if self.unique[0][0][0] in of.routes]
        self.names = sorted(table.name for table in self.view.tree.tables().values())
        self.versioned = [of.table.name for of in layouts.values() if of.versions]
        self.makers = {name: RowMaker(layout) for name, layout in layouts.items()}

    def emit(self, name: str, key: int, row: Row | None, op: Op) -> None:
        """Append one change; a delete is followed by its tombstone."""
        part = (name, key % self.parts)
        records = self.log.setdefault(part, [])
        after = None if row is None else dict(row)
        named = dict(zip((column for column, _ in self.keys[0]), self.keys[1][key], strict=True))
        at = (f"t.{name}", key % self.parts)
        place = (self.lsn, *at, len(records), self.clock)
        records.append(Change(f"public.{name}", op, named, after, *place, snapshot=op is Op.READ))
        self.tables.history[name].append(Version(self.clock, key, after, op is Op.CREATE))
        if row is None:
            records.append(Change(f"public.{name}", Op.TOMBSTONE, named, None, 0, *at, len(records), 0))

    def transaction(self, random: Random) -> None:
        """One to three random changes; changes of one transaction may share a position."""
        keys = self.rows
        if self.versioned:
            self.clock += random.random() < self.pace
        for _ in range(random.choice((1, 1, 2, 3))):
            self.lsn += random.random() < self.pace
            name = random.choice(self.names)
            rows = self.tables[name]
            key = random.randrange(keys)
            kind = random.random()
            if kind > 0.88 and key in rows:  # written again as it is
                self.emit(name, key, rows[key], Op.UPDATE)
            elif kind < 0.03:  # TRUNCATE, row by row, as our trigger does it
                for gone in list(rows):
                    del rows[gone]
                    self.emit(name, gone, None, Op.DELETE)
            elif kind < 0.25:
                if rows.pop(key, None) is not None:
                    self.emit(name, key, None, Op.DELETE)
            elif kind < 0.32 and key in rows:  # a primary key changes
                moved = random.randrange(keys)
                if moved not in rows:
                    rows[moved] = {**rows.pop(key), **self._key(moved)}
                    self.emit(name, key, None, Op.DELETE)
                    self.emit(name, moved, rows[moved], Op.CREATE)
            elif kind < 0.45 and key in rows and name in self.exchanged:
                self._exchange(random, name, key)
            else:
                old = rows.get(key)
                rows[key] = self._row(random, key, old)
                self.emit(name, key, rows[key], self._made(random, name, key) if old is None else Op.UPDATE)
        self.lsn += random.random() < self.pace

    def _made(self, random: Random, name: str, key: int) -> Op:
        """How a row comes: of one that a snapshot has read nobody knows since when it is there."""
        unknown = name in self.versioned and all(one.key != key for one in self.tables.history[name])
        return Op.READ if unknown and random.random() < 0.7 else Op.CREATE

    def _exchange(self, random: Random, name: str, key: int) -> None:
        """A row takes a unique value, and whoever has it gets this one's, or none: at the end of a transaction it is
        unique again (a deferred constraint); in between the log may show two rows with one value, or none with it."""
        rows, named = self.tables[name], [column for column, _ in self.unique[0]]
        wanted = random.choice(((None, *self.unique[1][0][1:]), *self.unique[1]))
        mine = [rows[key][column] for column in named]
        holders = [other for other in rows if other != key and wanted == tuple(rows[other][c] for c in named)]
        if None in wanted:
            holders = []
        moved = {key: wanted, **{other: random.choice((mine, mine, (None,) * len(named))) for other in holders}}
        for one in random.sample(sorted(moved), len(moved)):
            rows[one] = {**rows[one], **dict(zip(named, moved[one], strict=True))}
            self.emit(name, one, rows[one], Op.UPDATE)

    def _key(self, key: int) -> Row:
        return dict(zip((column for column, _ in self.keys[0]), self.keys[1][key], strict=True))

    def _row(self, random: Random, key: int, old: Row | None) -> Row:
        row = dict(old) if old else {**dict.fromkeys(self.columns), "n": 0, **self._key(key)}
        for name in random.sample((*self.names, *VALUES), random.choice((1, 2, 4))):
            if name in TABLES:
                for keys, most in ((self.keys, self.rows), (self.unique, len(self.unique[1]))):
                    to = random.choice((None, 0, 1, 2, 2, most - 1))
                    values = (None,) * len(keys[0]) if to is None else keys[1][to]
                    row |= {f"{name}_{column}": v for (column, _), v in zip(keys[0], values, strict=True)}
            elif name == "n":
                row[name] = random.choice((None, random.randrange(-5, 6)))
                if self.versioned:  # a moment, in microseconds: mostly of a little ago, now and then of tomorrow
                    back = random.choice((-4, -1, 0, 0, 1, 2, 3, 8))
                    row[name] = random.choice((None, (self.clock - back) * 1000, (self.clock - back) * 1000 - 1))
            elif name == "amount":
                row[name] = random.choice((None, f"{random.randrange(-300, 300) / 100:.2f}"))
            elif name == "f":
                row[name] = random.choice(FLOATS)
            else:
                row[name] = random.choice((None, "x", "y", "é", "ab", ""))
        return row

    # -- what readers and the cleaner do ------------------------------------------------------------------------------

    def read(self, part: PartOf, start: int, end: int) -> list[Change]:
        """The records of a range that are still there."""
        return [c for c in self.log[part][start:end] if (part, c.offset) not in self.gone]

    def changes(self, records: Iterable[Change]) -> list[Incoming]:
        """The newest change of each row of this view."""
        found: dict[tuple[str, str], Incoming] = {}
        for change in records:
            maker = self.makers.get(change.table)
            if maker is not None and not (change.op is Op.TOMBSTONE and maker.layout.versions):
                values = [computed(a, change.after or {}) if change.after else None for a in maker.layout.aggregates]
                made = maker.make(change, values)
                found[made.table, made.key] = newest(found.get((made.table, made.key)), made)
        return list(found.values())

    def clean(self, random: Random, upto: Callable[[PartOf], int] | None = None) -> None:
        """The cleaner removes superseded records of closed segments.

        Args:
            random: where segments end.
            upto: partition -> first offset that is too young to be cleaned.
        """
        for part, records in self.log.items():
            if part[0] in self.versioned:
                continue  # its topic keeps what it has had
            end = random.randint(0, len(records) if upto is None else min(upto(part), len(records)))
            last = {tuple(change.key.values()): change.offset for change in records[:end]}
            for change in records[:end]:
                if change.offset != last[tuple(change.key.values())]:
                    self.gone.add((part, change.offset))


def _same(keys: Keys, of: Table, named: tuple[str, ...]) -> bool:
    kinds = tuple((column, of.by_name[column].type_name) for column in named)
    return kinds == keys[0]
