"""The row store in memory, for the wide search of property tests: the same verbs, one step at a time.

``step`` is called before each element of each call, as a server would let another client in there; a test may run
another worker in it, or raise to crash this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from sinks.rowstore import keys
from sinks.rowstore.contract import Contribution, Swap

Step = Callable[[str], None]


def _no_step(_what: str) -> None:
    return None


class MemoryStore:
    """A RowStore as dicts.

    Args:
        step: called with the verb's name before each element.
    """

    def __init__(self, step: Step = _no_step) -> None:
        self.step = step
        self.rows: dict[str, bytes] = {}
        self.sets: dict[str, set[str]] = {}
        self.given: dict[str, dict[str, bytes]] = {}
        self.sums: dict[str, Counter[str]] = {}
        self.values: dict[str, Counter[str]] = {}
        self.sorted: dict[tuple[str, int], dict[str, float]] = {}
        self.versions: dict[str, int] = {}
        self.offsets: dict[str, int] = {}
        self.later: dict[int, dict[str, int]] = {}
        self.now: dict[int, dict[str, int]] = {}

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """See RowStore."""
        found = []
        for key in names:
            self.step("get")
            found.append(self.rows.get(key))
        return found

    def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """See RowStore."""
        done = []
        for swap in swaps:
            self.step("swap")
            held = self.rows.get(swap.key, b"")
            fits = held.startswith(swap.head) if swap.head else not held
            if fits:
                self.rows[swap.key] = swap.value
            done.append(fits)
        return done

    def link(self, pairs: Sequence[tuple[str, str]]) -> None:
        """See RowStore."""
        for key, member in pairs:
            self.step("link")
            self.sets.setdefault(key, set()).add(member)

    def unlink(self, pairs: Sequence[tuple[str, str]]) -> None:
        """See RowStore."""
        for key, member in pairs:
            self.step("unlink")
            self.sets.get(key, set()).discard(member)

    def sizes(self, names: Sequence[str]) -> list[int]:
        """See RowStore."""
        found = []
        for key in names:
            self.step("sizes")
            found.append(len(self.sets.get(key, ())))
        return found

    def members(self, names: Sequence[str]) -> list[list[str]]:
        """See RowStore."""
        found = []
        for key in names:
            self.step("members")
            found.append(sorted(self.sets.get(key, ())))
        return found

    def scan(self, key: str, count: int) -> Iterator[list[str]]:
        """See RowStore."""
        self.step("scan")
        members = sorted(self.sets.get(key, ()))
        for start in range(0, len(members), count):
            self.step("scan")
            yield members[start : start + count]

    def contributions(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[bytes]]:
        """See RowStore."""
        found = []
        for key, children in asked:
            self.step("contributions")
            held = self.given.get(key, {})
            found.append([held.get(child, b"") for child in children])
        return found

    def contribute(self, changes: Sequence[Contribution]) -> list[bool]:
        """See RowStore."""
        done = []
        for change in changes:
            self.step("contribute")
            held = self.given.setdefault(change.key, {})
            fits = all(held.get(child, b"") == before for child, before, _ in change.children)
            done.append(fits)
            if fits:
                self._contribute(change, held)
        return done

    def _contribute(self, change: Contribution, held: dict[str, bytes]) -> None:
        for child, _, after in change.children:
            if after:
                held[child] = after
            else:
                held.pop(child, None)
        sums = self.sums.setdefault(change.key, Counter())
        for name, delta in change.totals.items():
            sums[name] += delta
        values = self.values.setdefault(change.key, Counter())
        for name, delta, counter in change.distinct:
            before = values[name]
            values[name] += delta
            sums[counter] += (values[name] != 0) - (before != 0)
        for number, score, member, comes in change.ordered:
            members = self.sorted.setdefault((change.key, number), {})
            if comes:
                members[member] = score
            else:
                members.pop(member, None)

    def totals(self, names: Sequence[str]) -> list[dict[str, int]]:
        """See RowStore."""
        found = []
        for key in names:
            self.step("totals")
            found.append({name: count for name, count in self.sums.get(key, {}).items() if count})
        return found

    def extremes(self, asked: Sequence[tuple[str, int, bool, bool]]) -> list[list[str]]:
        """See RowStore."""
        found: list[list[str]] = []
        for key, number, greatest, by_bytes in asked:
            self.step("extremes")
            members = self.sorted.get((key, number), {})
            choose = max if greatest else min
            if not members:
                found.append([])
            elif by_bytes:
                found.append([choose(members, key=str.encode)])
            else:
                end = choose(members.values())
                found.append([member for member, score in members.items() if score == end])
        return found

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        """See RowStore."""
        found = []
        for key, position in pairs:
            self.step("raise_versions")
            self.versions[key] = max(self.versions.get(key, 0) + 1, position)
            found.append(self.versions[key])
        return found

    def fade(self, names: Sequence[str]) -> None:
        """See RowStore; memory forgets nothing."""

    def defer(self, roots: Mapping[str, int]) -> None:
        """See RowStore."""
        for root, position in roots.items():
            self.step("defer")
            self.later.setdefault(keys.shard(root), {})[root] = position

    def claim(self) -> list[int]:
        """See RowStore."""
        for shard in range(keys.SHARDS):
            self.step("claim")
            if shard in self.later and shard not in self.now:
                self.now[shard] = self.later.pop(shard)
        return sorted(self.now)

    def claimed(self, shard: int, count: int) -> Iterator[dict[str, int]]:
        """See RowStore."""
        self.step("claimed")
        yield dict(self.now.get(shard, {}))

    def settle(self, shards: Sequence[int]) -> None:
        """See RowStore."""
        for shard in shards:
            self.step("settle")
            self.now.pop(shard, None)

    def waiting(self) -> int:
        """See RowStore."""
        return sum(len(of) for held in (self.later, self.now) for of in held.values())

    def server(self) -> str:
        """See RowStore; memory never restarts."""
        return "memory"

    def note(self, fields: Mapping[str, int]) -> None:
        """See RowStore."""
        for name, offset in fields.items():
            self.step("note")
            self.offsets[name] = max(self.offsets.get(name, 0), offset)

    def noted(self) -> dict[str, int]:
        """See RowStore."""
        return dict(self.offsets)
