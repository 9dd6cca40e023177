"""The row store in memory: for `headwater test`, which has no server, and for the wide search of property tests.

The same verbs as Redis has, one step at a time, and nothing that outlives the process: docs/decisions/test-verb.md.
``step`` is called before each element of each call, as a server would let another client in there; a test may run
another worker in it, freeze this one there, or raise to crash it. A ``Servers`` is what all stores of a test share: one
node or several, each of which may be put back to a moment before, or emptied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cdc.errors import Fenced, SinkUnavailable
from cdc.formats import ROWS
from sinks.rowstore import key_names
from sinks.rowstore.contract import Attempt, Contribution, Marks, Swap
from sinks.rowstore.memory.arranged import MemoryArranged


class MemoryStore(MemoryArranged):
    """A RowStore as dicts; arguments as ``MemoryTalk``."""

    def again(self, token: int) -> MemoryStore:
        """Another runner's store on the same servers."""
        made = type(self)(self.step, self.servers, token)
        made.repeats = self.repeats
        return made

    # -- rows ---------------------------------------------------------------------------------------------------------

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """See RowStore."""
        found = []
        for key in names:
            self.step("get")
            found.append(self._read(key, None))
        return found

    def swap(self, swaps: Sequence[Swap], by: Attempt) -> list[bool]:
        """See RowStore."""
        done = []
        for swap in swaps:
            self.step("swap")
            fits = self._swap(swap, by)
            done.append(self._swap(swap, by) if self.repeats("swap") else fits)
        return done

    def _swap(self, swap: Swap, by: Attempt) -> bool:
        node = self._guard(swap.key, by)
        held = node.get(swap.key, b"")
        fits: bool = held.startswith(swap.head) if swap.head else not held
        if not fits and held == swap.value:
            return swap.key in node.get(f"u:{by.part}", ())
        if fits:
            node[swap.key] = swap.value
            if by.part:
                node.setdefault(f"u:{by.part}", set()).add(swap.key)
        return fits

    def take(self, by: Attempt) -> list[str]:
        """See RowStore."""
        found: list[str] = []
        for number, node in enumerate(self._everywhere()):
            self.step("take")
            self._guard_node(number, by)
            node.setdefault("o", {})[f"task:{by.part}"] = by.number
            found += sorted(node.get(f"u:{by.part}", ()))
        return found

    def end(self, number: int) -> None:
        """See RowStore."""
        for at, node in enumerate(self._everywhere()):
            self.step("end")
            self._guard_node(at)
            for field, held in node.get("o", {}).items():
                if field.startswith("task:") and held == number:
                    node.pop(f"u:{field.removeprefix('task:')}", None)

    # -- indexes ------------------------------------------------------------------------------------------------------

    def link(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """See RowStore."""
        for key, member in pairs:
            self.step("link")
            self._guard(key, by).setdefault(key, set()).add(member)

    def unlink(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """See RowStore."""
        for key, member in pairs:
            self.step("unlink")
            self._guard(key, by).get(key, set()).discard(member)

    def sizes(self, names: Sequence[str]) -> list[int]:
        """See RowStore."""
        found = []
        for key in names:
            self.step("sizes")
            found.append(len(self._read(key, ())))
        return found

    def members(self, names: Sequence[str]) -> list[list[str]]:
        """See RowStore."""
        found = []
        for key in names:
            self.step("members")
            found.append(sorted(self._read(key, ())))
        return found

    def scan(self, key: str, count: int) -> Iterator[list[str]]:
        """See RowStore."""
        self.step("scan")
        members = sorted(self._read(key, ()))
        for start in range(0, len(members), count):
            self.step("scan")
            yield members[start : start + count]

    # -- aggregates ---------------------------------------------------------------------------------------------------

    def contributions(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[bytes]]:
        """See RowStore."""
        found = []
        for key, children in asked:
            self.step("contributions")
            held = self._read(f"c{key}", {})
            found.append([held.get(child, b"") for child in children])
        return found

    def contribute(self, changes: Sequence[Contribution], by: Attempt) -> list[bool]:
        """See RowStore."""
        done = []
        for change in changes:
            self.step("contribute")
            self._guard(f"c{change.key}", by)
            fits = self._contribute(change)
            done.append(self._contribute(change) if self.repeats("contribute") else fits)
        return done

    def _contribute(self, change: Contribution) -> bool:
        held = self._held(f"c{change.key}", dict)
        if not self._fits(change, held):
            return False
        for child, _, after in change.children:
            if after:
                held[child] = after
            else:
                held.pop(child, None)
        sums: Counter[str] = self._held(f"t{change.key}", Counter)
        for name, delta in change.totals.items():
            sums[name] += delta
        values: Counter[str] = self._held(f"d{change.key}", Counter)
        for name, delta, counter in change.distinct:
            before = values[name]
            values[name] += delta
            sums[counter] += (values[name] != 0) - (before != 0)
        group, _, parent = change.key.partition(":")
        for number, score, value, delta in change.ordered:
            values[f"z{number}:{value}"] += delta
            members = self._held(f"z{group}.{number}:{parent}", dict)
            if values[f"z{number}:{value}"]:
                members[value] = score
            else:
                members.pop(value, None)
        return True

    @staticmethod
    def _fits(change: Contribution, held: Mapping[str, bytes]) -> bool:
        return all(held.get(child, b"") == before for child, before, _ in change.children)

    def totals(self, names: Sequence[str]) -> list[dict[str, int]]:
        """See RowStore."""
        found = []
        for key in names:
            self.step("totals")
            found.append({name: count for name, count in self._read(f"t{key}", {}).items() if count})
        return found

    def extremes(self, asked: Sequence[tuple[str, int, bool, bool]]) -> list[list[str]]:
        """See RowStore."""
        found: list[list[str]] = []
        for key, number, greatest, by_bytes in asked:
            self.step("extremes")
            group, _, parent = key.partition(":")
            members = self._read(f"z{group}.{number}:{parent}", {})
            choose = max if greatest else min
            if not members:
                found.append([])
            elif by_bytes:
                found.append([choose(members, key=str.encode)])
            else:
                end = choose(members.values())
                found.append([member for member, score in members.items() if score == end])
        return found

    # -- versions -----------------------------------------------------------------------------------------------------

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        """See RowStore."""
        found = []
        for key, position in pairs:
            self.step("raise_versions")
            node = self._guard(key)
            node[key] = max(node.get(key, 0) + 1, position)
            found.append(node[key])
        return found

    def fade(self, pairs: Sequence[tuple[str, int]]) -> None:
        """See RowStore: at once, which is the worst that time can do."""
        for key, version in pairs:
            self.step("fade")
            node = self._guard(key)
            if node.get(key) == version:
                node.setdefault("faded", {})[key] = version

    def confirm(self) -> None:
        """See RowStore; of every node."""
        self.step("confirm")
        for number in range(len(self.servers.nodes)):
            self._guard_node(number)

    # -- deferred documents -------------------------------------------------------------------------------------------

    def defer(self, roots: Mapping[str, int]) -> None:
        """See RowStore."""
        for root, position in roots.items():
            self.step("defer")
            key = f"p{key_names.deferred(key_names.shard(root))}"
            self._guard(key).setdefault(key, {})[root] = position

    def claim(self) -> list[int]:
        """See RowStore."""
        found = []
        for shard in range(key_names.SHARDS):
            self.step("claim")
            waiting, mine, whose = (f"{kind}{key_names.deferred(shard)}" for kind in "pqx")
            node = self._guard(waiting)
            if mine not in node and node.get(waiting):
                node[mine] = node.pop(waiting)
            if mine in node:
                node[whose] = id(self)
                found.append(shard)
        return found

    def claimed(self, shard: int, count: int) -> Iterator[dict[str, int]]:
        """See RowStore."""
        self.step("claimed")
        yield dict(self._read(f"q{key_names.deferred(shard)}", {}))

    def settle(self, shards: Sequence[int]) -> None:
        """See RowStore."""
        for shard in shards:
            self.step("settle")
            mine, whose = (f"{kind}{key_names.deferred(shard)}" for kind in "qx")
            node = self._guard(mine)
            if node.get(whose) == id(self):
                node.pop(mine, None)
                node.pop(whose)

    def waiting(self) -> int:
        """See RowStore."""
        return sum(
            len(self._read(f"{kind}{key_names.deferred(s)}", ())) for kind in "pq" for s in range(key_names.SHARDS)
        )

    # -- marks --------------------------------------------------------------------------------------------------------

    def server(self) -> str:
        """See RowStore."""
        return f"run {self.servers.run}"

    def open(self, identity: str) -> None:
        """See RowStore."""
        for node in self._everywhere():
            if node.get("o", {}).get("run", 0) > self.token:
                raise Fenced("fenced")
            node["o"] = {"run": self.token, "identity": identity, "format": ROWS}

    def empty(self) -> int:
        """See RowStore."""
        gone = 0
        for node in self._everywhere():
            for key in [key for key in node if key != "o"]:
                del node[key]
                gone += 1
        return gone

    def adopt(self, identity: str) -> None:
        """See RowStore."""
        for node in self._everywhere():
            marks = node.get("o", {})
            if marks.get("run", 0) > self.token:
                raise Fenced("fenced")
            if marks.get("identity") != identity:
                raise SinkUnavailable("the identity is lost")
            if marks["run"] != self.token:
                node["o"] = {name: value for name, value in marks.items() if not name.startswith("task:")}
                node["o"]["run"] = self.token

    def note(self, batch: int | None = None, *, epoch: int = 0, filled: bool = False) -> None:
        """See RowStore."""
        for number, node in enumerate(self._everywhere()):
            self.step("note")
            self._guard_node(number)
            marks = node.setdefault("o", {})
            if batch is not None:
                marks["batch"] = max(marks.get("batch", -1), batch)
                marks["epoch"] = max(marks.get("epoch", 0), epoch)
            if filled:
                marks["filled"] = 1

    def lower(self, batch: int, *, epoch: int) -> None:
        """See RowStore."""
        for number, node in enumerate(self._everywhere()):
            self.step("lower")
            self._guard_node(number)
            node.setdefault("o", {}).update(batch=batch, epoch=epoch)

    def noted(self) -> Marks:
        """See RowStore."""
        held = [node.get("o", {}) for node in self._everywhere()]
        if not all(marks.get("format") for marks in held):
            return Marks(format=1 if any(held) and not any(marks.get("format") for marks in held) else 0)
        identities = {marks.get("identity", "") for marks in held}
        return Marks(
            min(marks["format"] for marks in held),
            identities.pop() if len(identities) == 1 else "",
            min(marks.get("batch", -1) for marks in held),
            min(marks.get("epoch", 0) for marks in held),
            all(marks.get("filled") for marks in held),
        )

    def late(self, part: str, at_ms: int | None = None) -> int:
        """See RowStore."""
        marks = self._guard(f"o:{part}").setdefault("o", {})
        if at_ms is not None:
            marks[f"late:{part}"] = max(marks.get(f"late:{part}", 0), at_ms)
        found: int = marks.get(f"late:{part}", 0)
        return found
