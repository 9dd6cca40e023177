"""One batch of changes to one view's documents: apply, climb, raise, read, in that order and no other.

A row is written before a version is raised, and a version is raised before rows are read. Whoever raised last therefore
sees every row that any earlier raiser wrote, and holds the highest version: the document that stays is the whole one.
What a crashed attempt has left pending comes first; and before documents are handed out, the store is asked whether it
still is what they were read from: one that was emptied meanwhile would have given poor ones.
The search over interleavings and crashes that shows it is tests/property/test_join_convergence.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from cdc.join.document import Part
from cdc.join.incoming import Incoming
from cdc.join.layout import Arranged
from cdc.join.view import JoinedView
from cdc.records.position import pack
from sinks.rowstore import key_names
from sinks.rowstore.contract import RowStore
from spark.join.assemble import Assembler
from spark.join.climb import Climber, Ids, merged
from spark.join.maintain import Maintainer, Refuse, Touched
from spark.join.task import Task

# Documents put together at once: as many as make this much JSON, within these bounds. Memory a task is some ten times
# that, whatever the fan-out. A larger piece costs the sink less for each document (docs/decisions/fill.md).
PIECE_BYTES = 4 << 20
LEAST_PIECE, PIECE, LARGEST_PIECE = 20, 500, 2000

# A row with more referring rows than this has its documents made by a job of their own, half a second's work of a task.
FAN_OUT = 2000

# A fill writes documents under the number of its slice plus this. No counter remembers it: the position of any change
# is greater than the number of a slice, of which a fill has fewer than ``FIRST_LSN``: a slice has 100,000 records, or
# what ``engine.max_offsets_per_trigger`` says (of 1,000 each a million slices are a billion records). A worker that was
# frozen in an earlier slice can't put its document over a later one's.
FILLED = 1

T = TypeVar("T")


class Made(NamedTuple):
    """A document to write: its id, version and rows; None for a delete. Of a new one there never was a version."""

    key: str
    version: int
    part: Part | None
    new: bool = False


class Joiner:
    """Keeps one view's row store and makes its documents.

    Args:
        view: the view.
        store: its row store.
        defer_above: rows with more referring rows than this have their documents deferred.
        epoch: raised each time a row store that had lost writes was healed, so that new versions beat every old one.
        filling: it fills an empty sink, and nobody else changes rows that roots refer to meanwhile.
        arranged: see ``spark.reading.spec.FlowSpec``.

    Rows bear an era (``cdc.join.rows``). It changes with the epoch: documents may show what a healed store has
    forgotten, so a change that leaves its row as it is must not be passed over. It also changes when a fill ends that
    made documents of keys read a second time: the log may have forgotten a key's record before that.

    Raises:
        StateError: the epoch does not fit a position.
    """

    def __init__(
        self,
        view: JoinedView,
        store: RowStore,
        epoch: int = 0,
        defer_above: int = FAN_OUT,
        *,
        filling: bool = False,
        arranged: Arranged = "now",
    ) -> None:
        self.view, self.store = view, store
        self.piece = PIECE
        self._ahead = pack(epoch, 0)
        layout = view.layout.over(arranged)
        self.maintainer = Maintainer(layout, store, 2 * epoch + (not filling or view.tree.once))
        self.climber = Climber(view.tree, view.layout, store, defer_above)
        self.assembler = Assembler(view.tree, layout, store, remember=filling, said=view.row_sql)

    def process(self, changes: Sequence[Incoming], task: Task, refuse: Refuse) -> Iterator[list[Made]]:
        """Apply changes and give the documents they touch, a piece at a time; each piece must be written.

        Args:
            changes: the newest change of each row.
            task: whose work it is.
            refuse: told of changes that can't be applied because a value is nowhere.
        """
        for touched in self.maintainer.redo(changes, task):
            yield from self._touched(touched)
        yield from self._touched(self.maintainer.apply(changes, task, refuse))

    def _touched(self, touched: Sequence[Touched]) -> Iterator[list[Made]]:
        for ids in merged(self.climber.roots(touched), self._size):
            yield self.make(ids)

    def _size(self) -> int:
        return self.piece

    # -- filling an empty sink ----------------------------------------------------------------------------------------

    def load(self, changes: Sequence[Incoming], task: Task, refuse: Refuse) -> int:
        """Apply changes without making documents: the first pass of a fill."""
        for _ in self.maintainer.redo(changes, task):
            pass
        return len(self.maintainer.apply(changes, task, refuse, new=True))

    def fill(self, changes: Sequence[Incoming], task: Task, refuse: Refuse) -> Iterator[list[Made]]:
        """Apply changes of roots and give their documents: the second pass of a fill, all other rows being there."""
        for touched in self.maintainer.redo(changes, task):
            yield from self._around(touched, task)
        yield from self._around(self.maintainer.apply(changes, task, refuse, new=True), task)

    def _around(self, touched: Sequence[Touched], task: Task) -> Iterator[list[Made]]:
        wanted = {touch.key: touch for touch in touched if touch.there or touch.row is not None}
        for piece in _cut(wanted, self._size):
            parts = self.assembler.around({key: touch.row for key, touch in piece.items()})
            self.store.confirm()
            yield [Made(key, FILLED + task.batch, parts[key], not touch.there) for key, touch in piece.items()]

    def build(self, ids: Iterable[str], task: Task) -> Iterator[list[Made]]:
        """Documents of roots whose rows are all in the store: the second pass where roots are also rows of others."""
        for piece in _cut(dict.fromkeys(ids), self._size):
            parts = self.assembler.read(list(piece))
            self.store.confirm()
            made = [Made(key, FILLED + task.batch, part, new=True) for key, part in parts.items() if part is not None]
            yield made

    # -- making documents ---------------------------------------------------------------------------------------------

    def later(self, shard: int) -> Iterator[list[Made]]:
        """Documents of a claimed shard's roots."""
        for piece in merged(self.store.claimed(shard, LARGEST_PIECE), self._size):
            yield self.make(piece)

    def make(self, ids: Ids) -> list[Made]:
        """Documents of roots, under new versions.

        Args:
            ids: root -> position of the newest change known to touch it.
        """
        named = list(ids)
        versions = self.store.raise_versions([(key_names.version(key), ids[key] + self._ahead) for key in named])
        parts = self.assembler.read(named)
        self.store.confirm()
        made = [Made(key, version, parts[key]) for key, version in zip(named, versions, strict=True) if key in parts]
        # Also of roots that a change has named and that never came: else each would leave a key for ever.
        absent = [(key, version) for key, version in zip(named, versions, strict=True) if parts.get(key) is None]
        gone = [(key_names.version(key), version) for key, version in absent]
        if gone:
            self.store.fade(gone)
        return made

    def documents(self, made: Sequence[Made]) -> list[bytes | None]:
        """The documents as JSON, before Spark SQL fields."""
        shape = self.assembler.shape
        found = [None if item.part is None else shape.document(item.part) for item in made]
        self._learn(found)
        return found

    def _learn(self, documents: Sequence[bytes | None]) -> None:
        """Set the size of the next piece by the size of these documents."""
        sizes = [len(document) for document in documents if document is not None]
        if len(sizes) >= LEAST_PIECE:
            wanted = PIECE_BYTES * len(sizes) // (sum(sizes) or 1)
            self.piece = max(LEAST_PIECE, min(wanted, LARGEST_PIECE, self.piece * 2))


def _cut(items: Mapping[str, T], size: Callable[[], int]) -> Iterator[dict[str, T]]:
    """Pieces of at most ``size`` items, which may change from piece to piece."""
    left = iter(items.items())
    while piece := dict(islice(left, size())):
        yield piece
