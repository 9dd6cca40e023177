"""The first fill of a joined view, with the misfortunes of its workers and runners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc.errors import SinkUnavailable
from spark.join.engine import Joiner, Made
from spark.join.task import Task
from tests.support.join_cluster import Batch, Cluster, Ranges, no_refusal
from tests.support.join_worker import Worker
from tests.support.join_world import PartOf


class Fill:
    """The first fill, slice by slice: rows of all partitions but the root's, then the root's and its documents.

    Workers of one slice interleave; when one crashes, it, or the whole slice, is done again.

    Args:
        cluster: whose log is read.
        crashes: how often a worker crashes or is frozen, each time one is looked at.
        clean: called between any two slices.
    """

    def __init__(self, cluster: Cluster, crashes: float, clean: Callable[[], None]) -> None:
        self.cluster, self.crashes, self.clean = cluster, crashes, clean
        self._filling: Joiner | None = None

    def run(self) -> None:
        """All of it."""
        root = self.cluster.world.view.tree
        ends = {part: len(records) for part, records in self.cluster.world.log.items()}
        rows = {part: end for part, end in ends.items() if not (root.once and part[0] == root.table.name)}
        self._pass(rows, self._load)
        again = {part: end for part, end in ends.items() if part[0] == root.table.name}
        self._pass(again, self._fill if root.once else self._build)
        self.cluster.store.note(filled=True)
        if self.cluster.base >= 0:  # all slices together stand for the last one's number
            self.cluster.committed = [Batch(self.cluster.base, {part: (0, end) for part, end in ends.items()})]
            self.cluster.store.note(self.cluster.base, epoch=self.cluster.epoch)
            self.cluster.noted = self.cluster.floor = self.cluster.base
            self.cluster.base -= 1
        self._filling = None

    def _pass(self, ends: dict[PartOf, int], work: Callable[..., None]) -> None:
        at = dict.fromkeys(ends, 0)
        while any(at[part] < end for part, end in ends.items()):
            piece = {p: (at[p], min(end, at[p] + self.cluster.random.choice((1, 3, 9)))) for p, end in ends.items()}
            piece = {part: bounds for part, bounds in piece.items() if bounds[0] < bounds[1]}
            self._slice(piece, work)
            at |= {part: bounds[1] for part, bounds in piece.items()}
            self.cluster.base += 1
            self.clean()

    def _slice(self, piece: Ranges, work: Callable[..., None]) -> None:
        waiting = set(piece)
        while waiting:
            part = self.cluster.random.choice(sorted(waiting))
            if part not in self.cluster.live:
                self._slice_task(part, piece[part], work)
            elif (chance := self.cluster.random.random()) < self.crashes:
                worker = self.cluster.live.pop(part)
                if chance < self.crashes / 2:
                    self.cluster.zombies.append(worker)
                    worker.frozen = True
                else:
                    worker.kill()
                self.clean()
                if self.cluster.random.random() < 0.5:  # the whole slice: another runner
                    for other in self.cluster.live.values():
                        other.kill()
                    self.cluster.live.clear()
                    waiting = set(piece)
                    self.cluster.store = self.cluster.store.again(self.cluster.store.token + 1)
                    self.cluster.sink_token = self.cluster.store.token
                    self.cluster.store.adopt(self.cluster.identity)
                    self._filling = None
            elif self.cluster.zombies and self.cluster.random.random() < 0.1:
                self.cluster.wake(self.cluster.random.choice((1, 5, 50)))
            elif self.cluster.live[part].advance(self.cluster.random.choice((1, 5, 50))):
                worker = self.cluster.live.pop(part)
                if worker.error is not None:
                    raise worker.error
                waiting.discard(part)

    def _slice_task(self, part: PartOf, bounds: tuple[int, int], work: Callable[..., None]) -> None:
        records = self.cluster.world.read(part, *bounds)
        task, joiner, token = (
            Task(self.cluster.base + 1, self.cluster.attempts + 1),
            self._filler(),
            self.cluster.store.token,
        )
        self.cluster.spawn(part, lambda worker: work(worker, task, joiner, token, records))

    def _load(self, _worker: Worker, task: Task, joiner: Joiner, _token: int, records: Any) -> None:
        joiner.load(self.cluster.world.changes(records), task, no_refusal)
        joiner.store.end(task.number)

    def _fill(self, worker: Worker, task: Task, joiner: Joiner, token: int, records: Any) -> None:
        for piece in joiner.fill(self.cluster.world.changes(records), task, no_refusal):
            self._write_filled(worker, token, piece, joiner)
        joiner.store.end(task.number)

    def _build(self, worker: Worker, task: Task, joiner: Joiner, token: int, records: Any) -> None:
        keys = [change.key for change in self.cluster.world.changes(records)]
        for piece in joiner.build(keys, task):
            self._write_filled(worker, token, piece, joiner)

    def _write_filled(self, worker: Worker, token: int, piece: list[Made], joiner: Joiner) -> None:
        if worker.frozen:  # sinks/awake.py: one that was away for so long gives up by itself
            raise SinkUnavailable("away")
        self.cluster.write(worker, token, piece, joiner.documents(piece))

    def _filler(self) -> Joiner:
        """An engine that remembers rows; as in a worker, one serves all slices of a fill."""
        if self._filling is None:
            self._filling = self.cluster.make(
                self.cluster.world.view, self.cluster.store, self.cluster.epoch, filling=True
            )
        return self._filling
