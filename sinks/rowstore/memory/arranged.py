"""Arrangements of the row store in memory: the double of ``sinks.rowstore.arranged``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc.join.versions import READ_MARK
from sinks.rowstore.contract import Attempt
from sinks.rowstore.memory.talk import MemoryTalk


class MemoryArranged(MemoryTalk):
    """The verbs of arrangements, on dicts: member -> place."""

    def arrange(self, entries: Sequence[tuple[str, float, str]], by: Attempt) -> None:
        """See RowStore."""
        for key, place, member in entries:
            self.step("arrange")
            self._guard(key, by).setdefault(key, {})[member] = place

    def displace(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """See RowStore."""
        for key, member in pairs:
            self.step("displace")
            self._guard(key, by).get(key, {}).pop(member, None)

    def foremost(self, asked: Sequence[tuple[str, int]]) -> list[list[str]]:
        """See RowStore."""
        found = []
        for key, count in asked:
            self.step("foremost")
            places = sorted((place, member) for member, place in self._read(key, {}).items())
            last = places[count - 1][0] if len(places) >= count else None
            found.append([member for place, member in places if last is None or place <= last])
        return found

    def beginning(self, asked: Sequence[tuple[str, float]]) -> list[list[str]]:
        """See RowStore."""
        found = []
        for key, most in asked:
            self.step("beginning")
            places = self._read(key, {})
            at: dict[float, list[str]] = {}
            for member, place in places.items():
                at.setdefault(place, []).append(member)
            before = sorted((place for place in at if place <= most), reverse=True)
            # Down to the first place at which one was not only read.
            changed = (n for n, place in enumerate(before, 1) if not all(m.endswith(READ_MARK) for m in at[place]))
            chosen = before[: next(changed, len(before))] or sorted(at)[:1]
            found.append(sorted(member for place in chosen for member in at[place]))
        return found

    def count_onward(self, asked: Sequence[tuple[str, float]]) -> list[int]:
        """See RowStore."""
        return [len(self._onward(*one)) for one in asked]

    def all_onward(self, asked: Sequence[tuple[str, float]]) -> list[list[str]]:
        """See RowStore."""
        return [self._onward(*one) for one in asked]

    def _onward(self, key: str, place: float) -> list[str]:
        self.step("onward")
        return [member for at, member in sorted((at, m) for m, at in self._read(key, {}).items()) if at >= place]

    def onward(self, key: str, place: float, count: int) -> Iterator[list[str]]:
        """See RowStore."""
        members = self._onward(key, place)
        for start in range(0, len(members), count):
            self.step("onward")
            yield members[start : start + count]
