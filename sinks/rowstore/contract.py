"""What the engine asks of a row store. Each element of a call touches one key, or keys that share one hash tag.

So the same calls work on one server, on Redis Cluster and on Kvrocks. Calls take batches and are pipelined; elements of
a batch are independent of each other, and another worker may act between any two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Swap(NamedTuple):
    """Write a row if it is still what it was.

    Attributes:
        key: the row's.
        head: the first bytes of the value that was read; empty if there was none.
        value: the new value.
        fades: it is a deleted row's mark, which is forgotten when no replay can need it any more.
    """

    key: str
    head: bytes
    value: bytes
    fades: bool


@dataclass
class Contribution:
    """Change what children contribute to one parent's group of aggregates, if each contributes what was read.

    Attributes:
        key: the parent's.
        children: (child, contribution that was read, new contribution); empty bytes for none.
        totals: field -> integer to add.
        distinct: (field, integer to add, counter of distinct values).
        ordered: (aggregate number, score, member, whether it comes or goes).
    """

    key: str
    children: list[tuple[str, bytes, bytes]]
    totals: Mapping[str, int] = field(default_factory=dict)
    distinct: Sequence[tuple[str, int, str]] = ()
    ordered: Sequence[tuple[int, float, str, bool]] = ()


class RowStore(Protocol):
    """The verbs. All raise SinkUnavailable (transient; after waiting, see ``sinks.retry``) and SinkRefused."""

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Values of rows."""
        ...

    def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """Compare and set rows; False where another change came first."""
        ...

    def link(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Add members to indexes: (index key, primary key)."""
        ...

    def unlink(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Remove members from indexes."""
        ...

    def sizes(self, names: Sequence[str]) -> list[int]:
        """How many members indexes have."""
        ...

    def members(self, names: Sequence[str]) -> list[list[str]]:
        """All members of (small) indexes."""
        ...

    def scan(self, key: str, count: int) -> Iterator[list[str]]:
        """The members of a large index, about ``count`` at a time; one may come twice."""
        ...

    def contributions(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[bytes]]:
        """What children contribute now: for each (parent's key, children); empty bytes for nothing."""
        ...

    def contribute(self, changes: Sequence[Contribution]) -> list[bool]:
        """Apply changes of contributions; False where a child's contribution was not what had been read."""
        ...

    def totals(self, names: Sequence[str]) -> list[dict[str, int]]:
        """Counts and limbs of parents' groups."""
        ...

    def extremes(self, asked: Sequence[tuple[str, int, bool, bool]]) -> list[list[str]]:
        """Members at one end, all that share its score: (parent's key, aggregate, greatest, ordered by bytes)."""
        ...

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        """Raise versions to ``max(version + 1, position)`` and return them: no two calls ever return the same."""
        ...

    def fade(self, names: Sequence[str]) -> None:
        """Let the versions of deleted documents be forgotten when no replay can need them any more."""
        ...

    def defer(self, roots: Mapping[str, int]) -> None:
        """Remember roots whose documents are to be made later, with positions."""
        ...

    def claim(self) -> list[int]:
        """Set aside what is deferred now; returns the shards that have something, left over ones included."""
        ...

    def claimed(self, shard: int, count: int) -> Iterator[dict[str, int]]:
        """The roots of a claimed shard, about ``count`` at a time."""
        ...

    def settle(self, shards: Sequence[int]) -> None:
        """Forget claimed shards: their documents are written."""
        ...

    def waiting(self) -> int:
        """How many roots are deferred or claimed."""
        ...

    def server(self) -> str:
        """Which run of the server this is: another text after a restart, which may have lost the newest writes."""
        ...

    def note(self, fields: Mapping[str, int]) -> None:
        """Record through which offsets the store is complete: ``topic/partition`` -> next offset; never lowered."""
        ...

    def noted(self) -> dict[str, int]:
        """What ``note`` recorded."""
        ...
