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
from sinks.rowstore.memory.nodes import Servers
from spark.join.engine import Joiner, Made
from spark.join.task import Task
from tests.support.join_worker import PoorDocument, Worker
from tests.support.join_world import PartOf, World

MakeJoiner = Callable[..., Joiner]
Ranges = dict[PartOf, tuple[int, int]]
Sink = dict[str, tuple[int, Any]]

# The worker that makes deferred documents stands among the partitions' workers under this name.
DEFERRED: PartOf = ("deferred", 0)


def no_refusal(change: Incoming, error: UnavailableValue) -> None:
    """No change of these worlds lacks a value."""
    raise AssertionError(f"{change} was refused: {error}")


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

    def spawn(self, part: PartOf, work: Callable[[Worker], None]) -> None:
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
        self.spawn(part, lambda worker: self._work(worker, task, store, token, pieces))

    def _work(self, worker: Worker, task: Task, store: RowStore, token: int, pieces: Any) -> None:
        joiner = self.make(self.world.view, store, self.epoch)
        for records in pieces:  # Arrow batches
            for made in joiner.process(self.world.changes(records), task, no_refusal):
                self.write(worker, token, made, joiner.documents(made))
        store.end(task.number)

    def write(self, worker: Worker, token: int, piece: list[Made], documents: list[bytes | None]) -> None:
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
            if marks.batch > self.healed:
                self.store.adopt(self.identity)
                self.store.lower(self.healed, epoch=self.epoch)
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
        self.whole, self.copies = self.flushes, []

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

    # -- what fan-outs have deferred ----------------------------------------------------------------------------------

    def make_deferred(self) -> None:
        """A worker that makes what fan-outs have deferred; it may be crashed like any other."""
        store, token, epoch = self.store, self.store.token, self.epoch

        def work(worker: Worker) -> None:
            joiner = self.make(self.world.view, store, epoch)
            shards = store.claim()
            for shard in shards:
                for made in joiner.later(shard):
                    self.write(worker, token, made, joiner.documents(made))
            store.settle(shards)

        self.spawn(DEFERRED, work)

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
