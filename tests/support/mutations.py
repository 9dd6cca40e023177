"""The engine with one thing wrong each: the search must find every one of them, or it does not look there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar

from cdc.errors import SinkUnavailable
from cdc.join.incoming import Incoming
from cdc.join.view import JoinedView
from sinks.rowstore import key_names
from sinks.rowstore.contract import Attempt, Contribution, RowStore
from sinks.rowstore.memory.store import MemoryStore
from spark.join.assemble import Assembler
from spark.join.climb import Ids
from spark.join.engine import Joiner, Made
from spark.join.maintain import Refuse, Touched
from spark.join.task import Part, Task
from tests.support.join_search import Chances


class ReadsRowsFirst(Joiner):
    """Reads the rows before it raises the version: a document may lack what an earlier raiser wrote, and win."""

    def make(self, ids: Ids) -> list[Made]:
        parts = self.assembler.read(list(ids))
        self.store.confirm()
        versions = self.store.raise_versions([(key_names.version(key), position) for key, position in ids.items()])
        return [Made(key, version, parts[key]) for key, version in zip(ids, versions, strict=True) if key in parts]


class RaisesBeforeItWrites(Joiner):
    """Raises versions before the rows are written: whoever reads in between writes an old document as the newest."""

    def process(self, changes: Sequence[Incoming], task: Task, refuse: Refuse) -> Iterator[list[Made]]:
        early = {c.key: max(c.stamp.position, 0) for c in changes if c.table == self.view.table.qualified}
        pairs = [(key_names.version(key), position) for key, position in early.items()]
        raised = dict(zip(early, self.store.raise_versions(pairs), strict=True))
        for made in super().process(changes, task, refuse):
            yield [item._replace(version=raised.get(item.key, item.version)) for item in made]


class ForgetsReplacedParents(Joiner):
    """Does not look at the foreign keys that a change replaced: after a crash the former parent keeps the row."""

    def __init__(self, view: JoinedView, store: RowStore, epoch: int = 0, **rest: Any) -> None:
        super().__init__(view, store, epoch, **rest)
        touch = self.maintainer._touch

        def forgetful(table: Any, key: str, row: Any, position: int, _replaced: Sequence[Any]) -> Touched:
            return touch(table, key, row, position, ())

        self.maintainer._touch = forgetful  # type: ignore[method-assign]


class ForgetsReplacedUniqueValues(Joiner):
    """Looks for documents by a row's present unique value, not by the one that a change replaced."""

    def __init__(self, view: JoinedView, store: RowStore, epoch: int = 0, **rest: Any) -> None:
        super().__init__(view, store, epoch, **rest)
        roots = self.climber.roots

        def forgetful(touched: Sequence[Touched]) -> Iterator[Ids]:
            unique = {name for name, of in view.layout.tables.items() if of.table.unique_keys[0][0] in of.routes}
            now = [replace(t, seen=t.seen[:1] if t.row is not None else []) for t in touched if t.table in unique]
            return roots([*now, *(t for t in touched if t.table not in unique)])

        self.climber.roots = forgetful  # type: ignore[method-assign]


class ForgetsPendingRows(Joiner):
    """Takes what a crashed task has written for done when the log does not bring it again."""

    def __init__(self, view: JoinedView, store: RowStore, epoch: int = 0, **rest: Any) -> None:
        super().__init__(view, store, epoch, **rest)

        def redo(changes: Sequence[Incoming], task: Task) -> Iterator[list[Touched]]:
            for part, _ in self.maintainer._by_part(changes, task):
                part.redone.clear()
            return iter(())

        self.maintainer.redo = redo  # type: ignore[method-assign]


class ForgetsAllThatCrashed(Joiner):
    """Takes every row that is in the store for acted on."""

    def __init__(self, view: JoinedView, store: RowStore, epoch: int = 0, **rest: Any) -> None:
        super().__init__(view, store, epoch, **rest)
        by_part = self.maintainer._by_part

        def done(changes: Iterable[Incoming], task: Task) -> list[tuple[Part, list[Incoming]]]:
            found = by_part(changes, task)
            for part, _ in found:
                part.left, part.pending = [], set()
            return found

        self.maintainer._by_part = done  # type: ignore[method-assign]


class RaisesNoEpoch(Joiner):
    """Goes on with the versions of a store that has forgotten some."""

    def __init__(self, view: JoinedView, store: RowStore, epoch: int = 0, **rest: Any) -> None:
        super().__init__(view, store, epoch, **rest)
        self._ahead = 0


class DoesNotAskAgain(Joiner):
    """Hands documents out without asking whether the store still is what they were read from."""

    def __init__(self, view: JoinedView, store: RowStore, epoch: int = 0, **rest: Any) -> None:
        super().__init__(view, _Trusting(store), epoch, **rest)


class _Trusting:
    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def confirm(self) -> None:
        """Trust it."""


class RemembersTooMuch(Joiner):
    """Goes on with the rows that the fill remembered."""

    kept: ClassVar[dict[int, tuple[Any, Assembler]]] = {}  # of each view

    def __init__(self, view: JoinedView, store: RowStore, epoch: int = 0, **rest: Any) -> None:
        super().__init__(view, store, epoch, **rest)
        _, self.assembler = self.kept.setdefault(id(view), (view, self.assembler))


class MaxStore(MemoryStore):
    """Versions are ``max(version, position)``: two renderings may share one, and the poorer one may come last."""

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        for key, position in pairs:
            self.step("raise_versions")
            node = self._guard(key)
            node[key] = max(node.get(key, 0), position)
        return [self.servers.of(key)[key] for key, _ in pairs]


class NoTokenStore(MemoryStore):
    """Scripts look at no marks: whoever was taken over writes on."""

    def _guard_node(self, number: int, by: Attempt = Attempt()) -> None:  # noqa: B008
        if not self.servers.nodes[number].get("o"):
            raise SinkUnavailable("the marks are lost")


class NoAttemptStore(MemoryStore):
    """Scripts know runners, but not which attempt at a batch is the newest."""

    def _guard_node(self, number: int, by: Attempt = Attempt()) -> None:  # noqa: B008
        super()._guard_node(number, Attempt())


class BlindContributions(MemoryStore):
    """Contributions are changed without a look at what they were."""

    @staticmethod
    def _fits(_change: Contribution, _held: Mapping[str, bytes]) -> bool:
        return True


class ForgetsWhatWasClaimed(MemoryStore):
    """A job that died with documents claimed: nobody makes them."""

    def claim(self) -> list[int]:
        for shard in range(key_names.SHARDS):
            for kind in "qx":
                self.servers.of(f"{kind}{key_names.deferred(shard)}").pop(f"{kind}{key_names.deferred(shard)}", None)
        return super().claim()


class FirstPlaceStays(MemoryStore):
    """A row keeps the place among its parent's children that it had first, whatever it is sorted by now."""

    def arrange(self, entries: Sequence[tuple[str, float, str]], by: Attempt) -> None:
        super().arrange([one for one in entries if one[2] not in self._read(one[0], {})], by)


class LooksAtMomentsOnly(MemoryStore):
    """Takes no version for the oldest: what was before all that is known is not made again when that comes."""

    def beginning(self, asked: Sequence[tuple[str, float]]) -> list[list[str]]:
        return [[] if place == -inf else one for (_, place), one in zip(asked, super().beginning(asked), strict=True)]


class LooksAtNoLaterMoments(MemoryStore):
    """Takes what refers to a version for made before it came, as if topics were read in step."""

    def count_onward(self, asked: Sequence[tuple[str, float]]) -> list[int]:
        counts = super().count_onward(asked)
        return [count if place == -inf else 0 for (_, place), count in zip(asked, counts, strict=True)]


class EndsEarly(MemoryStore):
    """A task's rows are pending no more as soon as they are written."""

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        for node in self.servers.nodes:
            for name in [name for name in node if name.startswith("u:")]:
                del node[name]
        return super().raise_versions(pairs)


def defers(view: JoinedView, store: RowStore, epoch: int = 0, **rest: Any) -> Joiner:
    """The real engine, to which two rows are a fan-out."""
    return Joiner(view, store, epoch, defer_above=1, **rest)


@dataclass(frozen=True)
class Mutation:
    """What is broken, and where it shows.

    Attributes:
        name: of the mutation.
        joiner, store: the broken part and the whole one.
        chances: histories in which it can show.
    """

    name: str
    joiner: Any = Joiner
    store: Any = MemoryStore
    chances: Chances = field(default_factory=lambda: Chances(crashes=0.08))


_DENSE = Chances(crashes=0.08, small=True)
# Jobs of deferred documents crash four times as often: they must get as far as to claim some.
_CALM = Chances(crashes=0.02, small=True)
_HARSH = Chances(crashes=0.15, small=True)
_FIRST = Chances(crashes=0.08, small=True, limited=True)
_DATED = Chances(crashes=0.08, small=True, dated=True)
_FILLS = Chances(crashes=0.08, fill=True)
_LOSSES = Chances(crashes=0.04, losses=0.2, small=True)

MUTATIONS = (
    Mutation("reads rows before it raises the version", ReadsRowsFirst),
    Mutation("raises the version before it writes rows", RaisesBeforeItWrites),
    Mutation("forgets replaced parents", ForgetsReplacedParents),
    Mutation("forgets replaced unique values", ForgetsReplacedUniqueValues, chances=_DENSE),
    Mutation("forgets pending rows whose record is gone", ForgetsPendingRows, chances=_DENSE),
    Mutation("takes every stored row for acted on", ForgetsAllThatCrashed),
    Mutation("forgets pending rows in a fill", ForgetsAllThatCrashed, chances=_FILLS),
    Mutation("max in place of bump", store=MaxStore, chances=_DENSE),
    Mutation("no token in a script", store=NoTokenStore, chances=_DENSE),
    Mutation("no attempt in a script", store=NoAttemptStore, chances=_HARSH),
    Mutation("contributions without compare-and-set", store=BlindContributions, chances=_DENSE),
    Mutation("forgets what a dead job had claimed", defers, ForgetsWhatWasClaimed, _CALM),
    Mutation("rows keep their first place", store=FirstPlaceStays, chances=_FIRST),
    Mutation("no document of before the oldest version", store=LooksAtMomentsOnly, chances=_DATED),
    Mutation("no document of after a version", store=LooksAtNoLaterMoments, chances=_DATED),
    Mutation("rows pending no more before documents are written", store=EndsEarly, chances=_DENSE),
    Mutation("goes on with the rows that a fill remembered", RemembersTooMuch, chances=_FILLS),
    Mutation("no epoch after a loss", RaisesNoEpoch, chances=_LOSSES),
    Mutation("does not ask again before it writes", DoesNotAskAgain, chances=Chances(flushes=0.05, small=True)),
)
