"""Runners, workers and their misfortunes over one row store and one sink, and the search through histories of them.

A runner cuts the log into batches as Spark does: the next begins when every task of the one before has ended, and a
batch may be committed later than that. Workers interleave at every step in the store and the sink. They crash, or are
frozen and wake up when another does their work; runners are killed, and followed by others; the log's cleaner comes at
any moment; a node of the store is emptied, or goes back to what it held before, alone or with all others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from cdc.errors import Fenced, SinkUnavailable, UnavailableValue
from cdc.join.incoming import Incoming
from sinks.rowstore.contract import RowStore
from spark.join.engine import Joiner, Made
from spark.join.task import Task
from tests.support.join_world import PartOf, World, random_view, truth
from tests.support.memory_store import MemoryStore, Servers

MakeJoiner = Callable[..., Joiner]
Ranges = dict[PartOf, tuple[int, int]]
Sink = dict[str, tuple[int, Any]]

# The worker that makes deferred documents stands among the partitions' workers under this name.
DEFERRED: PartOf = ("deferred", 0)


class Crash(BaseException):
    """A worker is killed."""


class PoorDocument(AssertionError):
    """A document was made of a store that had forgotten, and written."""


class Worker:
    """A task in a thread of its own; it moves only as ``advance`` lets it, step by step."""

    def __init__(self, name: str, work: Callable[[Worker], None]) -> None:
        self.name, self._work = name, work
        self._go, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._kill = False
        self.done = False
        self.frozen = False  # it was given up: another one does its work
        self.confirmed = -1
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._kill:
                self._work(self)
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
        return self.done

    def kill(self) -> None:
        """End it where it stands."""
        self._kill = True
        if not self.done:
            self._go.release()
            self._rest.acquire()


@dataclass
class Batch:
    """A batch that was begun: its number, and what each task reads."""

    number: int
    ranges: Ranges
    left: set[PartOf] = field(default_factory=set)


class Cluster:
    """Runners over one store and one sink.

    Args:
        world: the log.
        store: of the first runner; ``step`` is set by this class.
        joiner: how an engine is made (view, store, epoch); a mutation passes its own.
        random: the source of what happens inside a task.
    """

    def __init__(self, world: World, store: Any, joiner: MakeJoiner = Joiner, random: Random | None = None) -> None:
        self.world, self.store, self.make = world, store, joiner
        self.random = random or Random(0)
        self.said: list[str] = []
        self.sink: Sink = {}
        self.sink_token = self.attempts = self.epoch = self.flushes = 0
        self.committed: list[Batch] = []
        self.done: list[Batch] = []
        self.batch: Batch | None = None
        self.under_way = False
        self.planned: Batch | None = None
        self.live: dict[PartOf, Worker] = {}
        self.zombies: list[Worker] = []
        self.noted = self.base = self.floor = -1
        self.lives = self.whole = 0
        self.copies: list[tuple[list[dict[str, Any]], Ranges]] = []
        self.meanwhile: Callable[[], None] = lambda: None  # what happens while nobody runs
        self._here = threading.local()
        self._filling: Joiner | None = None
        store.step = self._step
        store.repeats = lambda _what: self.random.random() < 0.02
        self.begin_anew()

    def say(self, what: str) -> None:
        """Write down what happens, for whoever looks at a seed that fails."""
        self.said.append(what)

    # -- steps ----------------------------------------------------------------------------------------------------

    def _step(self, what: str) -> None:
        worker = getattr(self._here, "worker", None)
        if worker is not None:
            self.say(f"{worker.name} {what}")
            worker.pause()
            if what == "confirm":
                worker.confirmed = self.flushes

    def _spawn(self, part: PartOf, work: Callable[[Worker], None]) -> None:
        def run(worker: Worker) -> None:
            self._here.worker = worker
            work(worker)

        self.attempts += 1
        self.live[part] = Worker(f"{part[0]}{part[1]}#{self.attempts}", run)

    def advance(self, part: PartOf, steps: int) -> None:
        """Let a partition's worker take steps; a batch all of whose tasks have ended is done."""
        worker = self.live[part]
        if worker.advance(steps):
            del self.live[part]
            if isinstance(worker.error, (SinkUnavailable, Fenced)):
                self.say(f"{worker.name} failed: {worker.error.what}")
                self.restart()
            elif worker.error is not None:
                raise worker.error
            elif self.batch is not None and part in self.batch.left:
                self.batch.left.discard(part)
                self._finish()

    def _finish(self) -> None:
        if self.batch is not None and not self.batch.left:
            self.done.append(self.batch)
            self.batch = self.planned = None

    def wake(self, steps: int) -> None:
        """A frozen worker goes on for some steps."""
        worker = self.random.choice(self.zombies)
        if worker.advance(steps):
            self.zombies.remove(worker)
            if worker.error is not None and not isinstance(worker.error, (SinkUnavailable, Fenced)):
                raise worker.error

    # -- batches ----------------------------------------------------------------------------------------------------

    def place(self, part: PartOf) -> int:
        """The offset at which a partition's next batch begins."""
        ends = [batch.ranges[part][1] for batch in (*self.committed, *self.done) if part in batch.ranges]
        return max(ends, default=0)

    def behind(self) -> list[PartOf]:
        """Partitions with records that no batch has read."""
        return [part for part, records in self.world.log.items() if self.place(part) < len(records)]

    def begin(self, *, whole: bool = False) -> None:
        """Begin the next batch, if there is anything to read and none is under way."""
        if self.batch is not None:
            return
        number = self.base + len(self.committed) + len(self.done) + 1
        if self.planned is not None and self.planned.number == number and self.random.random() < 0.7:
            ranges = self.planned.ranges  # as Spark does: its offsets were written down
        else:
            parts = [part for part in self.behind() if whole or self.random.random() < 0.8]
            ranges = {part: (self.place(part), self._end(part, whole=whole)) for part in parts}
        if ranges:
            self.batch = self.planned = Batch(number, ranges, set(ranges))
            for part in list(ranges):
                self._task(part)

    def _end(self, part: PartOf, *, whole: bool) -> int:
        end = len(self.world.log[part])
        return end if whole else self.random.randint(min(self.place(part) + 1, end), end)

    def _task(self, part: PartOf) -> None:
        assert self.batch is not None
        start, end = self.batch.ranges[part]
        records = self.world.read(part, start, end)
        cuts = sorted(self.random.randint(0, len(records)) for _ in range(self.random.choice((0, 0, 1, 2))))
        pieces = [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True) if a < b]
        task, store, token = Task(self.batch.number, self.attempts + 1), self.store, self.store.token
        self._spawn(part, lambda worker: self._work(worker, task, store, token, pieces))

    def _work(self, worker: Worker, task: Task, store: RowStore, token: int, pieces: Any) -> None:
        joiner = self.make(self.world.view, store, self.epoch)
        for records in pieces:  # Arrow batches
            for made in joiner.process(self.world.changes(records), task, _no_refusal):
                self._write(worker, token, made, joiner.documents(made))
        store.end(task.number)

    def _write(self, worker: Worker, token: int, piece: list[Made], documents: list[bytes | None]) -> None:
        good = self.whole in (self.flushes, worker.confirmed)
        for item, document in zip(piece, documents, strict=True):
            self._step("write")
            if token < self.sink_token:
                raise Fenced("the sink knows a newer token")
            if not good:
                raise PoorDocument(f"{item.key} was made of a store that was emptied")
            if self.sink.get(item.key, (-1, None))[0] <= item.version:
                self.sink[item.key] = (item.version, None if document is None else orjson.loads(document))

    def commit(self) -> None:
        """The oldest batch that is done is committed."""
        if self.done:
            self.committed.append(self.done.pop(0))

    # -- misfortunes --------------------------------------------------------------------------------------------------

    def crash(self, part: PartOf) -> None:
        """Kill a worker; its task is tried again, or the whole query begins anew."""
        self.say(f"crash {self.live[part].name}")
        self.live.pop(part).kill()
        self._again(part)

    def freeze(self, part: PartOf) -> None:
        """A worker is paused for so long that another is given its work."""
        worker = self.live.pop(part)
        worker.frozen = True
        self.zombies.append(worker)
        self.say(f"freeze {worker.name}")
        self._again(part)

    def _again(self, part: PartOf) -> None:
        if self.batch is not None and part in self.batch.left and self.random.random() < 0.5:
            self._task(part)
        elif part != DEFERRED or self.random.random() < 0.5:
            self.restart()

    def restart(self, *, frozen: bool | None = None) -> None:
        """The runner, or its query, begins anew at what is committed; a runner has a new token."""
        frozen = self.random.random() < 0.4 if frozen is None else frozen
        for worker in self.live.values():
            if frozen:
                worker.frozen = True
                self.zombies.append(worker)
            else:
                worker.kill()
        self.live.clear()
        self.under_way = self.batch is not None or bool(self.done) or self.planned is not None
        self.batch, self.done = None, []
        token = self.store.token + (self.random.random() < 0.6)
        self.say(f"restart, token {token}, others {'frozen' if frozen else 'killed'}")
        self.store = self.store.again(token)
        self.sink_token = max(self.sink_token, token)
        self.meanwhile()
        self._take_over()

    def _take_over(self) -> None:
        if self._heal():
            self.store.adopt(self.identity)
            self.whole = self.flushes  # it was put back since, and what it lacks is read again
        else:
            self.say("refused: rebuilt")
            self.begin_anew()

    def _heal(self) -> bool:
        """As spark/join/health.py: False when the store must be built anew."""
        marks = self.store.noted()
        if marks.identity != self.identity:
            return False
        newest = self.base + len(self.committed)
        held, restarted = marks.batch, self.store.server() != self.server
        if marks.epoch < self.epoch and held > self.healed:
            return False
        if restarted:
            held = min(held, self.noted)
        lost = newest > held and (restarted or held < self.noted)
        if lost or (restarted and self.under_way):
            if len(self.store.servers.nodes) > 1:
                return False
            self.epoch, self.healed = self.epoch + 1, held if lost else newest
        self.server = self.store.server()
        if lost:
            if held < self.floor:
                return False
            self.committed = self.committed[: held - self.base]
            self.noted = held
            self.planned = None
            self.say(f"healed: back to batch {held}")
        return True

    def note(self) -> None:
        """The runner tells the store through which batch it is complete."""
        if self.store.server() != self.server or not self.store.noted().identity:
            self.restart()
            return
        newest = self.base + len(self.committed)
        try:
            if newest > self.noted:
                self.store.note(newest, epoch=self.epoch)
                self.noted = newest
        except SinkUnavailable:
            self.restart()

    def begin_anew(self) -> None:
        """The first life of store and sink, or another: everything is read again from offset 0."""
        for worker in self.live.values():
            worker.kill()
        self.live.clear()
        self.lives += 1
        self.identity = f"life {self.lives}"
        self.store = self.store.again(self.store.token + 1)
        self.store.open(self.identity)
        self.store.empty()
        self.sink, self.sink_token = {}, self.store.token
        self.committed, self.done, self.batch, self.planned = [], [], None, None
        self.noted = self.base = self.floor = -1
        self.epoch, self.healed, self.server = 0, -1, self.store.server()
        self.whole, self.copies, self._filling = self.flushes, [], None

    # -- what servers forget ------------------------------------------------------------------------------------------

    def copy(self) -> None:
        """What the nodes have on their disks by now; some older copies are kept too."""
        servers: Servers = self.store.servers
        through: Ranges = {}
        for batch in self.committed:
            if batch.number <= self.noted:
                through |= batch.ranges
        self.copies = [*self.copies[-1:], ([servers.copy(n) for n in range(len(servers.nodes))], through)]

    def lose(self) -> None:
        """All nodes, or one, go back to what they held before; the workers go on until somebody notices."""
        if self.random.random() < 0.5:
            self.rest()
        if self.copies:
            copies, _ = self.random.choice(self.copies)
            nodes = range(len(copies))
            for node in self.random.choice((nodes, [self.random.choice(nodes)])):
                self.say(f"node {node} goes back")
                self.store.servers.restart(node, copies[node])
            if all(node.get("o") for node in self.store.servers.nodes):
                self.whole = self.flushes  # emptied, and put back at once: it has lost some writes, no more
            if self.random.random() < 0.5:
                self.note()

    def flush(self) -> None:
        """A node, or each, is emptied and goes on."""
        self.flushes += 1
        nodes = range(len(self.store.servers.nodes))
        for node in self.random.choice((nodes, [self.random.choice(nodes)])):
            self.say(f"node {node} is emptied")
            self.store.servers.flush(node)

    def young(self, part: PartOf) -> int:
        """Where the records begin that must be there still, because a node may go back to before them."""
        return min((through.get(part, (0, 0))[1] for _, through in self.copies), default=len(self.world.log[part]))

    # -- fills --------------------------------------------------------------------------------------------------------

    def fill(self, crashes: float, clean: Callable[[], None]) -> None:
        """The first fill, slice by slice: rows of all partitions but the root's, then the root's and its documents.

        Workers of one slice interleave; when one crashes, it, or the whole slice, is done again.
        """
        root = self.world.view.tree
        ends = {part: len(records) for part, records in self.world.log.items()}
        rows = {part: end for part, end in ends.items() if not (root.once and part[0] == root.table.name)}
        self._pass(rows, self._load, crashes, clean)
        again = {part: end for part, end in ends.items() if part[0] == root.table.name}
        self._pass(again, self._fill if root.once else self._build, crashes, clean)
        self.store.note(filled=True)
        if self.base >= 0:  # all slices together stand for the last one's number
            self.committed = [Batch(self.base, {part: (0, end) for part, end in ends.items()})]
            self.store.note(self.base, epoch=self.epoch)
            self.noted = self.floor = self.base
            self.base -= 1
        self._filling = None

    def _pass(self, ends: dict[PartOf, int], work: Callable[..., None], crashes: float, clean: Any) -> None:
        at = dict.fromkeys(ends, 0)
        while any(at[part] < end for part, end in ends.items()):
            piece = {p: (at[p], min(end, at[p] + self.random.choice((1, 3, 9)))) for p, end in ends.items()}
            piece = {part: bounds for part, bounds in piece.items() if bounds[0] < bounds[1]}
            self._slice(piece, work, crashes, clean)
            at |= {part: bounds[1] for part, bounds in piece.items()}
            self.base += 1
            clean()

    def _slice(self, piece: Ranges, work: Callable[..., None], crashes: float, clean: Any) -> None:
        waiting = set(piece)
        while waiting:
            part = self.random.choice(sorted(waiting))
            if part not in self.live:
                self._slice_task(part, piece[part], work)
            elif (chance := self.random.random()) < crashes:
                worker = self.live.pop(part)
                if chance < crashes / 2:
                    self.zombies.append(worker)
                    worker.frozen = True
                else:
                    worker.kill()
                clean()
                if self.random.random() < 0.5:  # the whole slice: another runner
                    for other in self.live.values():
                        other.kill()
                    self.live.clear()
                    waiting = set(piece)
                    self.store = self.store.again(self.store.token + 1)
                    self.sink_token = self.store.token
                    self.store.adopt(self.identity)
                    self._filling = None
            elif self.zombies and self.random.random() < 0.1:
                self.wake(self.random.choice((1, 5, 50)))
            elif self.live[part].advance(self.random.choice((1, 5, 50))):
                worker = self.live.pop(part)
                if worker.error is not None:
                    raise worker.error
                waiting.discard(part)

    def _slice_task(self, part: PartOf, bounds: tuple[int, int], work: Callable[..., None]) -> None:
        records = self.world.read(part, *bounds)
        task, joiner, token = Task(self.base + 1, self.attempts + 1), self._filler(), self.store.token
        self._spawn(part, lambda worker: work(worker, task, joiner, token, records))

    def _load(self, _worker: Worker, task: Task, joiner: Joiner, _token: int, records: Any) -> None:
        joiner.load(self.world.changes(records), task, _no_refusal)
        joiner.store.end(task.number)

    def _fill(self, worker: Worker, task: Task, joiner: Joiner, token: int, records: Any) -> None:
        for piece in joiner.fill(self.world.changes(records), task, _no_refusal):
            self._write_filled(worker, token, piece, joiner)
        joiner.store.end(task.number)

    def _build(self, worker: Worker, task: Task, joiner: Joiner, token: int, records: Any) -> None:
        keys = [change.key for change in self.world.changes(records)]
        for piece in joiner.build(keys, task):
            self._write_filled(worker, token, piece, joiner)

    def _write_filled(self, worker: Worker, token: int, piece: list[Made], joiner: Joiner) -> None:
        if worker.frozen:  # sinks/rowstore/awake.py: one that was away for so long gives up by itself
            raise SinkUnavailable("away")
        self._write(worker, token, piece, joiner.documents(piece))

    def _filler(self) -> Joiner:
        """An engine that remembers rows; as in a worker, one serves all slices of a fill."""
        if self._filling is None:
            self._filling = self.make(self.world.view, self.store, self.epoch, filling=True)
        return self._filling

    # -- what fan-outs have deferred ----------------------------------------------------------------------------------

    def make_deferred(self) -> None:
        """A worker that makes what fan-outs have deferred; it may be crashed like any other."""
        store, token, epoch = self.store, self.store.token, self.epoch

        def work(worker: Worker) -> None:
            joiner = self.make(self.world.view, store, epoch)
            shards = store.claim()
            for shard in shards:
                for made in joiner.later(shard):
                    self._write(worker, token, made, joiner.documents(made))
            store.settle(shards)

        self._spawn(DEFERRED, work)

    def rest(self) -> None:
        """The batch that is under way ends, and is committed; the store is not told yet."""
        for part in [part for part in sorted(self.live) if part != DEFERRED]:
            if part in self.live:
                self.advance(part, 10_000)
        while self.done:
            self.commit()

    # -- rest ---------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything come to rest; frozen workers wake up at last."""
        self.note()
        while self.batch is not None or self.behind() or self.store.waiting() or self.live:
            if self.batch is None and self.behind():
                self.begin(whole=True)
            elif self.store.waiting() and DEFERRED not in self.live:
                self.make_deferred()
            if self.live:
                self.advance(self.random.choice(sorted(self.live)), self.random.choice((1, 3, 50)))
            while self.done:
                self.commit()
        while self.zombies:
            self.wake(50)
        if self.store.waiting():  # a frozen worker's, which knows of no change that is not in the documents
            self.settle()

    def rendered(self, ids: Iterable[str]) -> dict[str, Any]:
        """The documents that the store would give now: what it has wrong shows, though nobody has asked for it yet."""
        joiner = self.make(self.world.view, self.store, self.epoch)
        made = joiner.make(dict.fromkeys(ids, 0))
        documents = zip(made, joiner.documents(made), strict=True)
        return {item.key: orjson.loads(document) for item, document in documents if document is not None}

    def held(self) -> dict[str, Any]:
        """The documents that the sink holds."""
        return {key: document for key, (_, document) in self.sink.items() if document is not None}


def _no_refusal(change: Incoming, error: UnavailableValue) -> None:
    raise AssertionError(f"{change} was refused: {error}")


# -- the search -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chances:
    """How often what happens.

    Attributes:
        crashes: a worker crashes or is frozen, each time one is looked at.
        losses: servers forget, each turn.
        fill: the first changes come by a fill.
        nodes: of the store.
        small: the same view each time, of two tables: less variety, and more that meets.
        flushes: how often a server is emptied, each turn.
    """

    crashes: float = 0.04
    losses: float = 0.0
    fill: bool = False
    nodes: int = 1
    small: bool = False
    flushes: float = 0.0

    @property
    def options(self) -> str:
        """The same for the command line of tests/support/replay.py."""
        words = [f" --crashes {self.crashes} --losses {self.losses} --flushes {self.flushes} --nodes {self.nodes}"]
        return "".join([*words, " --fill" * self.fill, " --small" * self.small])


def random_world(random: Random, *, small: bool = False) -> World:
    """Empty tables under a random view, and a log of one or two partitions a topic."""
    pace, rows = random.choice((0.05, 0.5, 0.9)), random.choice((3, 6))
    return World(random_view(random, small=small), parts=random.choice((1, 2)), pace=pace, rows=rows)


# Histories a seed: short ones, because what goes wrong early is often made good by what comes later.
ROUNDS = 4


def history(seed: int, store: Any, joiner: MakeJoiner = Joiner, chances: Chances = Chances()) -> str | None:
    """A seed's random histories; what is wrong at rest, or was meanwhile, in the first that shows it; or None."""
    for number in range(ROUNDS):
        named = f"{seed}.{number}"
        # Each history's runners have tokens of their own above those of the one before.
        if (wrong := one_history(named, store.again(1 + 10_000 * number), joiner, chances)) is not None:
            return f"{wrong}; see `python -m tests.support.replay {named}{chances.options}`"
    return None


def one_history(seed: str, store: Any, joiner: MakeJoiner, chances: Chances) -> str | None:
    """One history; its seed is named ``SEED.NUMBER``."""
    try:
        random = Random(seed)
        cluster = Cluster(random_world(random, small=chances.small), store, joiner, random)
        return tell(seed, cluster, random, chances)
    except PoorDocument as error:
        return f"seed {seed}: {error}"


def tell(seed: str, cluster: Cluster, random: Random, chances: Chances) -> str | None:
    """A history on a cluster that is there; what is wrong at rest, or None."""
    world = cluster.world

    def clean() -> None:
        if random.random() < 0.3:
            cluster.say("the cleaner comes")
            world.clean(random, cluster.young)

    def meanwhile() -> None:
        for _ in range(random.choice((0, 2, 4))):
            world.transaction(random)
        cluster.say("the cleaner comes")
        world.clean(random, cluster.young)

    cluster.meanwhile = meanwhile

    if chances.fill:
        for _ in range(random.randint(1, 20)):
            world.transaction(random)
        alone = random.random() < 0.5  # nobody writes meanwhile
        cluster.fill(5 * chances.crashes, clean if alone else meanwhile)
        # At once: what follows makes most documents anew.
        if alone and (wrong := _wrong(seed, cluster)) is not None:
            return f"after the fill: {wrong}"
    for _ in range(random.randint(1, 6)):
        for _ in range(random.randint(1, 4)):
            world.transaction(random)
        for _ in range(random.randint(0, 40)):
            _turn(cluster, random, chances)
            clean()
    cluster.settle()
    return _wrong(seed, cluster)


def _servers(cluster: Cluster, random: Random, chances: Chances) -> None:
    if random.random() < chances.losses:
        random.choice((cluster.copy, cluster.copy, cluster.rest, cluster.lose))()
    if random.random() < chances.flushes:
        cluster.flush()


def _turn(cluster: Cluster, random: Random, chances: Chances) -> None:
    if random.random() < 0.15:
        cluster.world.transaction(random)
    if random.random() < 0.8:
        cluster.begin()
    if random.random() < 0.5:
        cluster.commit()
    if random.random() < 0.3:
        cluster.note()
    _servers(cluster, random, chances)
    if cluster.zombies and random.random() < 0.4:
        cluster.wake(random.choice((1, 2, 5, 20)))
    if DEFERRED not in cluster.live and cluster.store.waiting() and random.random() < 0.6:
        cluster.make_deferred()
    if not cluster.live:
        return
    part = random.choice(sorted(cluster.live))
    chance = random.random() / (4 if part == DEFERRED else 1)
    if chance < chances.crashes:
        cluster.crash(part)
    elif chance < 2 * chances.crashes:
        cluster.freeze(part)
    elif chance < 2.3 * chances.crashes:
        cluster.restart()
    else:
        cluster.advance(part, random.choice((1, 2, 5, 20, 100, 100)))


def _wrong(seed: str, cluster: Cluster) -> str | None:
    want = orjson.loads(orjson.dumps(truth(cluster.world.view, cluster.world.tables)))
    for got, where in ((cluster.held(), ""), (cluster.rendered(want), " in the store")):
        keys = [key for key in sorted({*want, *got}) if str(want.get(key)) != str(got.get(key))]
        if keys:
            return f"seed {seed}{where}: {keys[0]!r}: want {want.get(keys[0])}, got {got.get(keys[0])}"
    return None


def search(
    seeds: Iterable[int],
    joiner: MakeJoiner = Joiner,
    chances: Chances = Chances(),
    store: Callable[..., Any] = MemoryStore,
) -> list[str]:
    """What is wrong in many histories."""
    found = []
    for seed in seeds:
        made = store(servers=Servers(chances.nodes), token=1)
        if (wrong := history(seed, made, joiner, chances)) is not None:
            found.append(wrong)
    return found
