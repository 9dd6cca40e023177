"""Matches as a subscriber sees them: of some queries or all. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import orjson

from cdc.records.position import lsn_text
from operations.push.cursor import Cursor
from operations.push.events import Told, bundled
from operations.push.lens import Lens
from sinks.contract import Held
from sinks.redis.stream.match_tail import Matched

_WHOLE = Lens()


class Seen:
    """See ``operations.push.follows.Sees``; equal ones are told the same.

    Args:
        names: of the queries; none for all.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and other._names == self._names

    def __hash__(self) -> int:
        return hash(self._names)

    def change(self, entry: Matched, generation: int, mark: str) -> Told | None:
        """What has become of a document under these queries; None when that is nothing."""
        ops = {name: op for name, op in orjson.loads(entry.ops).items() if not self._names or name in self._names}
        if not ops:
            return None
        body = {
            "key": entry.key,
            # As text: a browser's numbers end at 2^53.
            "version": str(entry.version),
            "lsn": lsn_text(entry.version),
            "queries": ops,
            "cause": entry.cause,
            "document": orjson.Fragment(_WHOLE.seen(entry.document)),
        }
        return Told("match", orjson.dumps(body), Cursor(generation, mark, entry.place).text())

    def snapshot(self, documents: Iterable[Held]) -> Iterator[Told]:
        """Which documents match which of these queries, some in an event."""
        return bundled(self._shown(documents))

    def _shown(self, documents: Iterable[Held]) -> Iterator[bytes]:
        for one in documents:
            assert isinstance(one.document, bytes)
            names = [name for name in orjson.loads(one.document) if not self._names or name in self._names]
            if names:
                yield orjson.dumps({"key": one.key, "version": str(one.version), "queries": names})
