"""Which entry of a key stands, of all that the log has of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from sinks.contract import UNVERSIONED
from spark.reading.entries import Entry

T = TypeVar("T")


class Standing(Generic[T]):
    """The one entry of each key that stands, of entries in the order of the log: the rule of ``spark.warehouse.merge``.

    That is the newest version, unless a delete without a version lies behind it in the log. Of such deletes only
    the one with the highest offset is known, whichever partition it is in.

    Args:
        entry_of: the entry in what is taken in.
    """

    def __init__(self, entry_of: Callable[[T], Entry]) -> None:
        self._entry_of = entry_of
        self._newest: dict[str, T] = {}
        self._ended: dict[str, T] = {}

    def add(self, found: Iterable[T]) -> None:
        """Take in what a piece of the log gave."""
        for one in found:
            entry = self._entry_of(one)
            slot = self._ended if entry.version == UNVERSIONED else self._newest
            if entry.id in slot:
                known = self._entry_of(slot[entry.id])
                if (known.version, known.offset) > (entry.version, entry.offset):
                    continue
            slot[entry.id] = one

    def by_key(self) -> dict[str, T]:
        """What stands now, by the document's id."""
        found = dict(self._newest)
        for key, end in self._ended.items():
            if key in found:
                known, entry = self._entry_of(found[key]), self._entry_of(end)
                # Offsets of two partitions can't be compared: then the one whose position is known stands.
                if known.partition != entry.partition or known.offset > entry.offset:
                    continue
            found[key] = end
        return found
