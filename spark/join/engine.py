"""One batch of changes to one view's documents: apply, climb, raise, read, in that order and no other.

A row is written before a version is raised, and a version is raised before rows are read. Whoever raised last therefore
sees every row that any earlier raiser wrote, and holds the highest version: the document that stays is the whole one.
The search over interleavings and crashes that shows it is tests/property/test_join_convergence.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cdc.join.document import Part
from cdc.join.incoming import Incoming
from cdc.join.view import JoinedView
from cdc.position import pack
from sinks.rowstore import keys
from sinks.rowstore.contract import RowStore
from spark.join.assemble import Assembler
from spark.join.climb import Climber, Ids, merged
from spark.join.maintain import Maintainer, Refuse, Starts

# Documents put together at once. Memory a task is this many documents with all their rows, whatever the fan-out.
PIECE = 500


# A row with more referring rows than this has its documents made by a job of their own, half a second's work of a task.
FAN_OUT = 2000


class Made(NamedTuple):
    """A document to write: its id, version and rows; None for a delete."""

    key: str
    version: int
    part: Part | None


class Joiner:
    """Keeps one view's row store and makes its documents.

    Args:
        view: the view.
        store: its row store.
        defer_above: rows with more referring rows than this have their documents deferred.
        epoch: raised each time a row store that had lost writes was healed, so that new versions beat every old one.

    Raises:
        StateError: the epoch does not fit a position.
    """

    def __init__(self, view: JoinedView, store: RowStore, epoch: int = 0, defer_above: int = FAN_OUT) -> None:
        self.view, self.store = view, store
        self._ahead = pack(epoch, 0)
        self.maintainer = Maintainer(view.layout, store)
        self.climber = Climber(view.tree, view.layout, store, defer_above)
        self.assembler = Assembler(view.tree, view.layout, store)

    def process(self, changes: Iterable[Incoming], starts: Starts, refuse: Refuse) -> Iterator[list[Made]]:
        """Apply changes and give the documents they touch, a piece at a time; each piece must be written.

        Args:
            changes: the newest change of each row in the batch.
            starts: (topic, partition) -> offset at which the uncommitted batch begins.
            refuse: told of changes that can't be applied because a value is nowhere.
        """
        touched = self.maintainer.apply(changes, starts, refuse)
        for ids in merged(self.climber.roots(touched), PIECE):
            yield self.make(ids)

    def load(self, changes: Iterable[Incoming], starts: Starts, refuse: Refuse) -> int:
        """Apply changes without making documents: the first half of filling an empty sink."""
        return len(self.maintainer.apply(changes, starts, refuse, new=True))

    def build(self, ids: Ids) -> Iterator[list[Made]]:
        """Documents of roots whose rows are all in the store: the second half of filling an empty sink."""
        for piece in merged(iter([ids]), PIECE):
            yield self.make(piece)

    def later(self, shard: int) -> Iterator[list[Made]]:
        """Documents of a claimed shard's roots."""
        for piece in merged(self.store.claimed(shard, PIECE), PIECE):
            yield self.make(piece)

    def make(self, ids: Ids) -> list[Made]:
        """Documents of roots, under new versions.

        Args:
            ids: root -> position of the newest change known to touch it.
        """
        named = list(ids)
        versions = self.store.raise_versions([(keys.version(key), ids[key] + self._ahead) for key in named])
        parts = self.assembler.read(named)
        made = [Made(key, version, parts[key]) for key, version in zip(named, versions, strict=True) if key in parts]
        gone = [keys.version(item.key) for item in made if item.part is None]
        if gone:
            self.store.fade(gone)
        return made

    def documents(self, made: Sequence[Made]) -> list[bytes | None]:
        """The documents as JSON, before Spark SQL fields."""
        shape = self.assembler.shape
        return [None if item.part is None else shape.document(item.part) for item in made]
