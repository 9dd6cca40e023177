"""What the engine asks of a row store. Each element of a call touches keys of one shard, and so of one slot.

So the same calls work on one server and on Redis Cluster. Calls take batches and are pipelined; elements of a batch are
independent of each other, and another worker may act between any two of them.

Three things are kept beside the rows, in the same slot as what they speak of, so that a script sees them:

*marks*    whose namespace it is (its identity), which runner writes now (the lease's token), which attempt at each
           partition is the newest, through which batch all is complete. Every write looks there first: one of a runner
           or a task that was taken over meanwhile is refused where it would be done, and so is one to a store that has
           forgotten everything.
*pending*  the rows of a part of the log that a task has written, and of which it has not said that all was done, by
           name. The next task of that part begins with them: the log may not hold their records any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Attempt(NamedTuple):
    """Which attempt at which part of the log writes.

    Attributes:
        part: ``topic/partition``; empty for work that belongs to none.
        number: Spark's number of the task's attempt: of two attempts at one part the later has the greater one.
    """

    part: str = ""
    number: int = 0


class Marks(NamedTuple):
    """What a store says of itself; of a cluster what all of its shards say alike.

    Attributes:
        format: ``cdc.formats.ROWS``; 0 when nothing is there, 1 for one of before there was a number.
        identity: which fill it was made by; empty when some shard does not know.
        batch: the newest batch through which it is complete; -1 for none.
        epoch: how often it had been healed when that was noted: since then batches may have been cut anew.
        filled: whether all rows of the fill are in it.
    """

    format: int = 0
    identity: str = ""
    batch: int = -1
    epoch: int = 0
    filled: bool = False


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
        ordered: (aggregate number, score, value's text, how many children more have it).
    """

    key: str
    children: list[tuple[str, bytes, bytes]]
    totals: Mapping[str, int] = field(default_factory=dict)
    distinct: Sequence[tuple[str, int, str]] = ()
    ordered: Sequence[tuple[int, float, str, int]] = ()


class RowStore(Protocol):
    """The verbs. All raise SinkUnavailable (transient; after waiting, see ``sinks.retry``) and SinkRefused.

    Those that write also raise Fenced when another runner has adopted the namespace (terminal), and SinkUnavailable
    when a later attempt at the same part of the log is at work, or when the marks are gone: the server has forgotten
    what it held, and whoever starts again finds out how much.
    """

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Values of rows."""
        ...

    def swap(self, swaps: Sequence[Swap], by: Attempt) -> list[bool]:
        """Compare and set rows, each of which is pending from then on; False where another change came first.

        Sent twice because an answer was lost, it answers as the first time.
        """
        ...

    def take(self, by: Attempt) -> list[str]:
        """Begin an attempt at a part of the log: what earlier ones still try to write is refused from now on.

        Returns:
            names of the rows that are pending: a crashed attempt has left them.
        """
        ...

    def end(self, number: int) -> None:
        """All that an attempt had to do is done, its documents are written: its parts' rows are pending no more.

        Args:
            number: the attempt's. Of parts that a later one has taken meanwhile, nothing changes.
        """
        ...

    def link(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """Add members to indexes: (index key, primary key)."""
        ...

    def unlink(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """Remove members from indexes."""
        ...

    def arrange(self, entries: Sequence[tuple[str, float, str]], by: Attempt) -> None:
        """Put rows into their places: (arrangement's key, place, primary key); one that is there moves."""
        ...

    def displace(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """Take rows out of arrangements: (arrangement's key, primary key)."""
        ...

    def foremost(self, asked: Sequence[tuple[str, int]]) -> list[list[str]]:
        """The first so many rows of arrangements, and all others that share the last one's place."""
        ...

    def beginning(self, asked: Sequence[tuple[str, float]]) -> list[list[str]]:
        """Of versions, those with the last place that is not behind one, or, if there is none, with the first.

        What was only read (``cdc.join.versions.READ_MARK``) comes with what stands before it: that may be newer.

        Args:
            asked: (arrangement's key, place).

        Returns:
            all that share such a place.
        """
        ...

    def count_onward(self, asked: Sequence[tuple[str, float]]) -> list[int]:
        """How many rows arrangements have from a place on: for each (arrangement's key, place)."""
        ...

    def all_onward(self, asked: Sequence[tuple[str, float]]) -> list[list[str]]:
        """All rows of (small) arrangements from a place on."""
        ...

    def onward(self, key: str, place: float, count: int) -> Iterator[list[str]]:
        """The rows of a large arrangement from a place on, some ``count`` at a time; one may come twice."""
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

    def contribute(self, changes: Sequence[Contribution], by: Attempt) -> list[bool]:
        """Apply changes of contributions; False where a child's contribution was not what had been read."""
        ...

    def totals(self, names: Sequence[str]) -> list[dict[str, int]]:
        """Counts and limbs of parents' groups."""
        ...

    def extremes(self, asked: Sequence[tuple[str, int, bool, bool]]) -> list[list[str]]:
        """Different values at one end, all that share its score: (parent's key, aggregate, greatest, by bytes)."""
        ...

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        """Raise versions to ``max(version + 1, position)`` and return them: no two calls ever return the same."""
        ...

    def fade(self, pairs: Sequence[tuple[str, int]]) -> None:
        """Let the versions of deleted documents be forgotten when no replay can need them any more.

        Args:
            pairs: (key, version that was raised); of one that somebody has raised since, nothing is forgotten.
        """
        ...

    def confirm(self) -> None:
        """Raise if the store has forgotten what it was read for since ``confirm`` was called last, or is another
        runner's by now: before what was made of it is written."""
        ...

    def defer(self, roots: Mapping[str, int]) -> None:
        """Remember roots whose documents are to be made later, with positions."""
        ...

    def claim(self) -> list[int]:
        """Set aside what is deferred now; returns the shards that have something, left over ones included."""
        ...

    def claimed(self, shard: int, count: int) -> Iterator[dict[str, int]]:
        """The roots of a claimed shard, about ``count`` at a time; one may come twice."""
        ...

    def settle(self, shards: Sequence[int]) -> None:
        """Forget claimed shards: their documents are written. Of what another runner has claimed since, nothing."""
        ...

    def waiting(self) -> int:
        """How many roots are deferred or claimed."""
        ...

    def server(self) -> str:
        """Which run of the server this is: another text after a restart, which may have lost the newest writes. Of a
        cluster that of each primary, between blanks; ``still_runs`` compares two."""
        ...

    def open(self, identity: str) -> None:
        """Begin a new life of the namespace, under this runner's token: nobody else writes from now on.

        Raises:
            Fenced: a newer runner has taken it (terminal).
        """
        ...

    def empty(self) -> int:
        """Remove everything but the marks; returns how many keys went."""
        ...

    def adopt(self, identity: str) -> None:
        """Go on with the namespace under this runner's token: nobody with an older one writes from now on.

        Raises:
            Fenced: a newer runner has adopted it (terminal).
            SinkUnavailable: it has forgotten its identity since it was looked at (transient).
        """
        ...

    def note(self, batch: int | None = None, *, epoch: int = 0, filled: bool = False) -> None:
        """Record through which batch the store is complete (never lowered), or that the fill is."""
        ...

    def lower(self, batch: int, *, epoch: int) -> None:
        """Record that only an earlier batch counts than was noted: those since are cut anew, in a newer epoch."""
        ...

    def noted(self) -> Marks:
        """What the store says of itself."""
        ...

    def late(self, part: str, at_ms: int | None = None) -> int:
        """When records of a part were last read so late that the log may have forgotten some (epoch ms); 0 for never.

        Args:
            part: ``topic/partition``.
            at_ms: it has happened now.
        """
        ...


def still_runs(earlier: str, now: str) -> bool:
    """Whether nothing was restarted between two answers of ``RowStore.server``; a cluster may have got more nodes.

    Args:
        earlier: the former answer; empty before the first, which says nothing.
        now: the newer one.
    """
    return bool(earlier) and set(earlier.split()) <= set(now.split())
