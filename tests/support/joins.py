"""A small world for joined views: tables, a log with positions, workers that interleave and crash, and the truth.

Everything is driven by a ``random.Random``-like source of choices, so that hypothesis or a plain seed can lead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import orjson

from cdc.catalogue import Column, Table
from cdc.change import Change, Op
from cdc.errors import UnavailableValue
from cdc.join.incoming import Incoming, RowMaker, newest
from cdc.join.tree import Aggregate, Function, Node, Order
from cdc.join.view import JoinedView
from sinks.rowstore.contract import RowStore
from spark.join.engine import Joiner, Made

TABLES = ("a", "b", "c", "d")
COLUMNS = ("id", *(f"{name}_id" for name in TABLES), "n", "amount", "note")

Row = dict[str, Any]


def table(name: str) -> Table:
    """A table with a key, a nullable reference to every table (itself too), a number, a numeric and a text."""
    columns = [Column("id", "integer", "int4", nullable=False)]
    columns += [Column(f"{other}_id", "integer", "int4") for other in TABLES]
    columns += [
        Column("n", "integer", "int4"),
        Column("amount", "numeric(10,2)", "numeric", precision=10, scale=2),
        Column("note", "text", "text"),
    ]
    return Table("public", name, tuple(columns), ("id",))


# -- random views -------------------------------------------------------------------------------------------

FUNCTIONS: tuple[tuple[Function, bool, str | None], ...] = (
    ("count", False, None),
    ("count", False, "n"),
    ("count", True, "note"),
    ("sum", False, "n"),
    ("sum", False, "amount"),
    ("avg", False, "amount"),
    ("min", False, "note"),
    ("max", False, "amount"),
    ("min", False, "n"),
)


def random_view(random: Random) -> JoinedView:
    """A view over up to eight places of the tables, three levels deep."""
    root = _node(random, "root", "root", random.choice(TABLES), (), depth=0)
    return JoinedView("v", root.table, ("id",), root.columns, root=root)


def _node(random: Random, name: str, kind: Any, of: str, on: Any, depth: int) -> Node:
    picked = ("id", *(c for c in ("n", "amount", "note") if random.random() < 0.4))
    refs, children, aggregates = [], [], []
    if depth < 3:
        for number in range(random.choice((0, 1, 1, 2) if depth < 2 else (0, 0, 1))):
            other = random.choice(TABLES)
            refs.append(_node(random, f"r{number}", "ref", other, ((f"{other}_id", "id"),), depth + 1))
        for number in range(random.choice((0, 1, 1, 2) if depth < 2 else (0, 0, 1))):
            other = random.choice(TABLES)
            children.append(_node(random, f"k{number}", "child", other, (("id", f"{of}_id"),), depth + 1))
    for number in range(random.choice((0, 0, 1, 3))):
        function, distinct, value = random.choice(FUNCTIONS)
        other = table(random.choice(TABLES))
        aggregates.append(Aggregate(f"g{number}", other, (("id", f"{of}_id"),), function, distinct, value))
    order: tuple[Order, ...] = ()
    limit = None
    if kind == "child" and random.random() < 0.4:
        order = (Order(random.choice(("n", "note", "amount")), random.random() < 0.5, random.random() < 0.5),)
        limit = random.choice((None, 1, 2))
    columns = tuple((column, column) for column in picked)
    return Node(name, kind, table(of), on, columns, tuple(refs), tuple(children), tuple(aggregates), order, limit)


# -- the truth, by plain loops --------------------------------------------------------------------------------


def truth(view: JoinedView, tables: dict[str, dict[int, Row]]) -> dict[str, Any]:
    """Every document, straight from the tables."""
    return {str(key): _true(view.tree, row, tables) for key, row in tables[view.table.name].items()}


def _true(node: Node, row: Row, tables: dict[str, dict[int, Row]]) -> dict[str, Any]:
    found = {out: row[source] for source, out in node.columns}
    for ref in node.refs:
        other = tables[ref.table.name].get(row[ref.on[0][0]])
        found[ref.name] = None if other is None else _true(ref, other, tables)
    for child in node.children:
        rows = [r for r in tables[child.table.name].values() if r[child.on[0][1]] == row["id"]]
        rows.sort(key=lambda r: r["id"])
        for order in child.order_by:
            nulls = [r for r in rows if r[order.column] is None]
            rest = [r for r in rows if r[order.column] is not None]
            rest.sort(key=lambda r: _comparable(r[order.column]), reverse=order.descending)
            if order.descending:  # a reversed sort keeps equals in their order
                pass
            rows = nulls + rest if order.nulls_first else rest + nulls
        found[child.name] = [_true(child, r, tables) for r in rows[: child.limit]]
    for aggregate in node.aggregates:
        rows = [r for r in tables[aggregate.table.name].values() if r[aggregate.on[0][1]] == row["id"]]
        found[aggregate.name] = _aggregate(aggregate, rows)
    return found


def _comparable(value: Any) -> Any:
    try:
        return Decimal(value)
    except ArithmeticError:
        return value.encode()


def _aggregate(aggregate: Aggregate, rows: list[Row]) -> Any:  # noqa: PLR0911 (one return a function)
    values = [1 if aggregate.value is None else row[aggregate.value] for row in rows]
    values = [value for value in values if value is not None]
    if aggregate.function == "count":
        return len(set(values)) if aggregate.distinct else len(values)
    if not values:
        return None
    if aggregate.function == "min":
        return min(values, key=_comparable) if aggregate.value != "note" else min(values, key=str.encode)
    if aggregate.function == "max":
        return max(values, key=_comparable)
    if aggregate.value == "n":
        return sum(values)
    total = sum((Fraction(value) for value in values), Fraction(0))
    if aggregate.function == "sum":
        return f"{Decimal(total.numerator) / Decimal(total.denominator):.2f}"
    scaled = total / len(values) * 10**6
    whole = (abs(scaled).numerator * 2 + scaled.denominator) // (scaled.denominator * 2)
    text = f"{whole // 10**6}.{whole % 10**6:06d}"
    return f"-{text}" if scaled < 0 and whole else text


# -- the log --------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Tables and the log of their changes: (table, key % 2) -> records."""

    view: JoinedView
    tables: dict[str, dict[int, Row]] = field(default_factory=lambda: {name: {} for name in TABLES})
    log: dict[tuple[str, int], list[Change]] = field(default_factory=dict)
    lsn: int = 100

    def emit(self, name: str, key: int, row: Row | None, op: Op) -> None:
        """Append one change; a delete is followed by its tombstone."""
        part = (name, key % 2)
        records = self.log.setdefault(part, [])
        after = None if row is None else {c: row[c] for c in COLUMNS}
        records.append(
            Change(f"public.{name}", op, {"id": key}, after, self.lsn, f"t.{name}", key % 2, len(records), 0)
        )
        if row is None:
            records.append(
                Change(f"public.{name}", Op.TOMBSTONE, {"id": key}, None, 0, f"t.{name}", key % 2, len(records), 0)
            )

    def transaction(self, random: Random, keys: int = 3) -> None:
        """One to three random changes; changes of one transaction may share a position."""
        for _ in range(random.choice((1, 1, 2, 3))):
            self.lsn += random.choice((0, 1, 2))
            name = random.choice(TABLES)
            rows = self.tables[name]
            key = random.randrange(keys)
            kind = random.random()
            if kind < 0.03:  # TRUNCATE, row by row, as our trigger does it
                for gone in list(rows):
                    del rows[gone]
                    self.emit(name, gone, None, Op.DELETE)
            elif kind < 0.25:
                if rows.pop(key, None) is not None:
                    self.emit(name, key, None, Op.DELETE)
            elif kind < 0.32 and key in rows:  # a primary key changes
                moved = random.randrange(keys)
                if moved not in rows:
                    rows[moved] = {**rows.pop(key), "id": moved}
                    self.emit(name, key, None, Op.DELETE)
                    self.emit(name, moved, rows[moved], Op.CREATE)
            else:
                old = rows.get(key)
                rows[key] = self._row(random, key, old)
                self.emit(name, key, rows[key], Op.CREATE if old is None else Op.UPDATE)
        self.lsn += 1

    def _row(self, random: Random, key: int, old: Row | None) -> Row:
        row = (
            dict(old) if old else {"id": key, **{f"{n}_id": None for n in TABLES}, "n": 0, "amount": None, "note": None}
        )
        for name in random.sample(COLUMNS[1:], random.choice((1, 2, 6))):
            if name.endswith("_id"):
                row[name] = random.choice((None, 0, 1, 2, 2))
            elif name == "n":
                row[name] = random.choice((None, random.randrange(-5, 6)))
            elif name == "amount":
                row[name] = random.choice((None, f"{random.randrange(-300, 300) / 100:.2f}"))
            else:
                row[name] = random.choice((None, "x", "y", "é", "ab", ""))
        return row


# -- workers --------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """A worker is killed."""


class Worker:
    """One partition's consumer in a thread of its own; it moves only as ``advance`` lets it, step by step."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name, self._work = name, work
        self._go, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._kill = False
        self.done = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._kill:
                self._work()
        except Crash:
            pass
        except BaseException as error:  # handed to the test's own thread
            self.error = error
        self.done = True
        self._rest.release()

    def pause(self) -> None:
        """Called by the worker at each step."""
        self._rest.release()
        self._go.acquire()
        if self._kill:
            raise Crash

    def advance(self, steps: int = 1) -> bool:
        """Let it take steps; True once it has finished."""
        for _ in range(steps):
            if self.done:
                break
            self._go.release()
            self._rest.acquire()
        if self.error is not None:
            raise self.error
        return self.done

    def kill(self) -> None:
        """End it where it stands."""
        self._kill = True
        if not self.done:
            self._go.release()
            self._rest.acquire()


# The worker that makes deferred documents stands among the partitions' workers under this name.
DEFERRED = ("deferred", 0)

Sink = dict[str, tuple[int, Any]]
MakeJoiner = Callable[[JoinedView, RowStore], Joiner]


class Cluster:
    """Workers over one store and one sink.

    Args:
        world: the log.
        store: with a ``step`` hook that this class sets, or a real one (then steps are those of batches).
        joiner: how an engine is made; a mutation passes its own.
    """

    def __init__(self, world: World, store: Any, joiner: MakeJoiner = Joiner) -> None:
        self.world, self.store, self.make = world, store, joiner
        self.sink: Sink = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.live: dict[tuple[str, int], Worker] = {}
        self._here = threading.local()
        self._filling: Joiner | None = None
        store.step = self._step

    def _step(self, _what: str) -> None:
        worker = getattr(self._here, "worker", None)
        if worker is not None:
            worker.pause()

    def behind(self) -> list[tuple[str, int]]:
        """Partitions with something to do."""
        return [p for p, records in self.world.log.items() if p in self.live or self.committed.get(p, 0) < len(records)]

    def start(self, part: tuple[str, int], start: int, end: int) -> Worker:
        """A worker for the records from ``start`` to ``end`` of a partition."""

        def work() -> None:
            self._here.worker = worker
            self._batch(part, self.world.log[part][start:end], start)
            self.committed[part] = max(self.committed.get(part, 0), end)

        worker = Worker(str(part), work)
        self.live[part] = worker
        return worker

    def advance(self, part: tuple[str, int], steps: int) -> None:
        """Let a partition's worker take steps."""
        if self.live[part].advance(steps):
            del self.live[part]

    def crash(self, part: tuple[str, int]) -> None:
        """Kill a partition's worker; its offsets do not move."""
        self.live.pop(part).kill()

    def _batch(self, part: tuple[str, int], records: list[Change], start: int) -> None:
        joiner = self.make(self.world.view, self.store)
        changes, starts = self._changes(records, start)
        for piece in joiner.process(changes, starts, _no_refusal):
            self._write(piece, joiner.documents(piece))
        self.store.note({f"t.{part[0]}/{part[1]}": start + len(records)})

    def _changes(self, records: list[Change], start: int) -> tuple[list[Incoming], dict[tuple[str, int], int]]:
        makers = {name: RowMaker(layout) for name, layout in self.world.view.layout.tables.items()}
        changes: dict[tuple[str, str], Incoming] = {}
        for change in records:
            if change.table in makers:
                made = makers[change.table].make(change)
                changes[made.table, made.key] = newest(changes.get((made.table, made.key)), made)
        return list(changes.values()), {(change.topic, change.partition): start for change in records}

    def _write(self, piece: list[Made], documents: list[bytes | None]) -> None:
        for item, document in zip(piece, documents, strict=True):
            self._step("write")
            if self.sink.get(item.key, (-1, None))[0] <= item.version:
                self.sink[item.key] = (item.version, None if document is None else orjson.loads(document))

    def fill(self, random: Random, crashes: float) -> None:
        """The first fill, slice by slice: rows of all partitions but the root's, then the root's and its documents.

        Workers of one slice interleave; one that crashes begins its part of the slice again.
        """
        root = self.world.view.tree
        apart = [part for part in self.world.log if root.once and part[0] == root.table.name]
        rows = {part: len(records) for part, records in self.world.log.items() if part not in apart}
        self._pass(rows, self._load, random, crashes)
        again = {part: len(self.world.log[part]) for part in self.world.log if part[0] == root.table.name}
        self._pass(again, self._fill if root.once else self._build, random, crashes)
        self.committed = {**rows, **again}

    def _pass(
        self, ends: dict[tuple[str, int], int], work: Callable[..., None], random: Random, crashes: float
    ) -> None:
        done = dict.fromkeys(ends, 0)
        while any(done[part] < end for part, end in ends.items()):
            piece = {p: (done[p], min(end, done[p] + random.choice((1, 3, 9)))) for p, end in ends.items()}
            waiting = {part: bounds for part, bounds in piece.items() if bounds[0] < bounds[1]}
            while waiting:
                part = random.choice(list(waiting))
                if part not in self.live:
                    self._spawn(part, work, *waiting[part])
                elif random.random() < crashes:
                    self.crash(part)
                else:
                    self.advance(part, random.choice((1, 5, 50)))
                    if part not in self.live:
                        done[part] = waiting.pop(part)[1]

    def _spawn(self, part: tuple[str, int], work: Callable[..., None], start: int, end: int) -> None:
        def run() -> None:
            self._here.worker = worker
            work(self.world.log[part][start:end], start)

        worker = Worker(str(part), run)
        self.live[part] = worker

    def _load(self, records: list[Change], start: int) -> None:
        changes, starts = self._changes(records, start)
        self._filler().load(changes, starts, _no_refusal)

    def _fill(self, records: list[Change], start: int) -> None:
        joiner = self._filler()
        changes, starts = self._changes(records, start)
        for piece in joiner.fill(changes, starts, _no_refusal):
            self._write(piece, joiner.documents(piece))

    def _build(self, records: list[Change], _start: int) -> None:
        joiner = self._filler()
        for piece in joiner.build(str(change.key["id"]) for change in records):
            self._write(piece, joiner.documents(piece))

    def _filler(self) -> Joiner:
        """An engine that remembers rows; as in a worker, one serves all slices of a fill."""
        if self._filling is None:
            self._filling = self.make(self.world.view, self.store)
            self._filling.assembler.remember = True
        return self._filling

    def make_deferred(self) -> Worker:
        """A worker that makes what fan-outs have deferred; it may be crashed like any other."""

        def work() -> None:
            self._here.worker = worker
            joiner = self.make(self.world.view, self.store)
            shards = self.store.claim()
            for shard in shards:
                for made in joiner.later(shard):
                    self._write(made, joiner.documents(made))
            self.store.settle(shards)

        worker = Worker("deferred", work)
        self.live[DEFERRED] = worker
        return worker

    def settle(self, random: Random) -> None:
        """Let everything come to rest."""
        while (parts := self.behind()) or self.store.waiting() or DEFERRED in self.live:
            part = random.choice([*parts, DEFERRED])
            if part not in self.live:
                if part == DEFERRED:
                    self.make_deferred()
                else:
                    self.start(part, self.committed.get(part, 0), len(self.world.log[part]))
            self.advance(part, random.choice((1, 3, 50)))

    def held(self) -> dict[str, Any]:
        """The documents that the sink holds."""
        return {key: document for key, (_, document) in self.sink.items() if document is not None}


def _no_refusal(change: Incoming, error: UnavailableValue) -> None:
    raise AssertionError(f"{change} was refused: {error}")


def history(
    seed: int, store: Any, joiner: MakeJoiner = Joiner, crashes: float = 0.04, *, fill: bool = False
) -> str | None:
    """One random history, on an empty sink or after a first fill; what is wrong at rest, or None."""
    random = Random(seed)
    world = World(random_view(random))
    cluster = Cluster(world, store, joiner)
    if fill:
        for _ in range(random.randint(1, 20)):
            world.transaction(random)
        cluster.fill(random, 5 * crashes)
        if (wrong := _wrong(seed, cluster)) is not None:  # at once: what follows makes most documents anew
            return f"after the fill: {wrong}"
    for _ in range(random.randint(3, 10)):
        for _ in range(random.randint(1, 4)):
            world.transaction(random)
        for _ in range(random.randint(0, 12)):
            parts = cluster.behind()
            if not parts:
                break
            part = random.choice([*parts, DEFERRED])
            if part == DEFERRED and part not in cluster.live:
                cluster.make_deferred()
            elif part not in cluster.live:
                done, end = cluster.committed.get(part, 0), len(world.log[part])
                start = done if random.random() < 0.8 else random.randint(0, done)
                cluster.start(part, start, random.randint(min(done + 1, end), end))
            if random.random() < crashes:
                cluster.crash(part)
            else:
                cluster.advance(part, random.choice((1, 1, 2, 5, 20, 100)))
    cluster.settle(random)
    return _wrong(seed, cluster)


def _wrong(seed: int, cluster: Cluster) -> str | None:
    want, got = truth(cluster.world.view, cluster.world.tables), cluster.held()
    if want == got:
        return None
    keys = [key for key in {*want, *got} if want.get(key) != got.get(key)]
    return f"seed {seed}: {keys[0]}: want {want.get(keys[0])}, got {got.get(keys[0])}"


def search(
    seeds: Iterable[int], store: Callable[[], Any], joiner: MakeJoiner = Joiner, *, fill: bool = False
) -> list[str]:
    """What is wrong in many histories."""
    return [wrong for seed in seeds if (wrong := history(seed, store(), joiner, fill=fill)) is not None]
