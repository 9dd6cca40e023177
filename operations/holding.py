"""What one sink holds of one view, as verification sees it: (key, version, digest), whatever kind of sink it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from cdc.join.view import JoinedView
from cdc.paging import PageSize, parts
from cdc.stateful import StatefulView
from cdc.types import merge_fields
from cdc.view import View
from operations.opened import Opened
from sinks.configure import sink_config
from sinks.contract import Held
from sinks.factory import open_target
from sinks.redis import RedisSink
from truth.bounds import Bounds, settled
from truth.columns import as_read, comparable_row, readable, with_singles
from truth.digest import digest
from truth.values import parse

# Documents that are held while their digests are made, at the most: of large ones they are fewer.
PAGE = 2_000
# A key that a warehouse's table has twice has no digest of its own.
TWICE = b"\xff" * 16


class Holds(NamedTuple):
    """One thing that is there."""

    version: int
    digest: bytes


class Document(NamedTuple):
    """One thing that is there, to be looked at.

    Attributes:
        version: as the sink keeps it.
        documents: in the form in which they are compared, numbers as JSON reads them; of a warehouse the row, with
            dates and times as the numbers that it keeps. More than one of a key that a warehouse's table has twice.
        text: as it stands, perhaps no JSON; None of a warehouse.
    """

    version: int
    documents: list[dict[str, Any]]
    text: bytes | None = None


class Holding:
    """Reads one view of one generation.

    Args:
        opened: the generation.
        view: the view.

    Attributes:
        target: what is read.
        bounds: of a document's fields that are compared within bounds; nothing of any, unless somebody says so.
        within: values that were found within theirs so far.
    """

    def __init__(self, opened: Opened, view: View) -> None:
        self.opened, self.view = opened, view
        self.bounds: Callable[[str], Bounds] = lambda key: {}
        self.within, self._size = 0, PageSize(PAGE)
        numbers = (opened.number, opened.token)
        self.target = open_target(sink_config(opened.sink, opened.part, [view], {}, *numbers, opened.pipeline.name))

    def close(self) -> None:
        """Give connections back."""
        self.target.close()

    def scan(self) -> Iterator[tuple[str, Holds]]:
        """Everything."""
        for held in self.target.scan(self.view.name):
            yield held.key, self._holds(held)

    def get(self, keys: Sequence[str]) -> dict[str, Holds]:
        """What is held under these keys; absent ones are left out."""
        found = dict[str, Holds]()
        # A warehouse's table has no index: each part would go through it once more.
        for part in (keys,) if self.opened.warehouse else parts(keys, self._size):
            held = self.target.get(self.view.name, part)
            self._size.read([len(one.document) for one in held.values()] or [0])
            found |= {key: self._holds(one) for key, one in held.items()}
        return found

    def expired(self, keys: Sequence[str], *, unversioned: bool) -> set[str]:
        """Those of some keys that are not there which a cache may have let expire; see ``RedisSink.expired``."""
        if not isinstance(self.target, RedisSink):
            return set()
        return self.target.expired(self.view.name, keys, unversioned=unversioned)

    def sample(self, count: int, seed: int) -> list[str]:
        """The keys of so many random things that are there."""
        return [held.key for held in self.target.sample(self.view.name, count, seed)]

    def documents(self, keys: Sequence[str]) -> dict[str, Document]:
        """What is held under these keys as JSON reads it; absent ones are left out."""
        return {held.key: self._document(held) for held in self.target.get(self.view.name, keys).values()}

    def _document(self, held: Held) -> Document:
        text = held.document if isinstance(held.document, bytes) else None
        return Document(held.version, [as_read(value) for value in self._values(held)], text)

    def _holds(self, held: Held) -> Holds:
        values = self._values(held)
        return Holds(held.version, digest(values[0]) if len(values) == 1 else TWICE)

    def _values(self, held: Held) -> list[Any]:
        """What is compared."""
        if isinstance(held.document, bytes):
            document, within = settled(with_later(self.view, held.document), self.bounds(held.key))
            self.within += within
            return [readable(self.view, document)]
        if isinstance(self.view, StatefulView):  # several of one key, which somebody else has put in
            return list(held.document)
        return [with_singles(self.view, comparable_row(self.view, row)) for row in held.document]


def with_later(view: View, document: bytes) -> bytes:
    """A document with null in fields of columns that its table got later: one that was written before lacks them, which
    is the same to who reads it."""
    later = [out for source, out in view.columns if source in view.table.later]
    if not later or isinstance(view, JoinedView):
        return document
    try:
        found = parse(document)
        lacking = {} if not isinstance(found, dict) else {name: None for name in later if name not in found}
        return merge_fields(document, lacking) if lacking else document
    except ValueError:
        return document


@contextmanager
def holding(opened: Opened, view: View) -> Iterator[Holding]:
    """A ``Holding`` for the time of a block."""
    held = Holding(opened, view)
    try:
        yield held
    finally:
        held.close()
