"""Reading what a view's standing queries have told, as ``tail.py`` reads its changes; and who matches them now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from sinks.contract import Held
from sinks.redis import names
from sinks.redis.client import Client
from sinks.redis.names import Names
from sinks.redis.read import NoChanges, one_run, raised
from sinks.redis.stream.changes import NO_CHANGE
from sinks.redis.stream.matches import read_kept
from sinks.redis.stream.tail import Standing, count_behind

PAGE = 1_000


class Matched(NamedTuple):
    """What has become of a document under the queries, as it stands in the stream.

    Attributes:
        place: its id there.
        key, version: of the document.
        document: as it was after it; None for one that was gone.
        ops: JSON: query -> entered, changed or left.
        cause: ``change`` or ``query``.
    """

    place: bytes
    key: str
    version: int
    document: bytes | None
    ops: bytes
    cause: str

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return len(self.document or b"") + len(self.ops) + 200


class MatchTail:
    """Reads the matches of one view. As safe between threads as the client.

    Args:
        client: of one server, not of a cluster.
        key_prefix, view: whose.
    """

    def __init__(self, client: Client, key_prefix: str, view: str) -> None:
        self._client, self._keys = client, Names(key_prefix, view).matches

    def standing(self) -> Standing:
        """Which stream it is; of no generation.

        Raises:
            redis.RedisError: the server does not answer.
        """
        mark = self._client.hget(self._keys.matcher, "mark")
        return Standing(0, None if mark is None else mark.decode())

    def newest(self, standing: Standing) -> bytes:
        """As ``Tail.newest``."""
        found = self._client.xrevrange(self._keys.matches, count=1)
        if not found:
            raise NoChanges
        return bytes(found[0][0])

    def after(self, standing: Standing, place: bytes, count: int) -> list[Matched]:
        """As ``Tail.after``."""
        pipe = self._client.pipeline(transaction=True)
        pipe.hget(self._keys.matcher, "mark")
        pipe.xrange(self._keys.matches, min=place, count=count + 1)
        mark, found = (raised(answer) for answer in pipe.execute(raise_on_error=False))
        if (mark or b"").decode() != standing.mark or not found or found[0][0] != place:
            raise NoChanges
        return [entry for one in found[1:] if (entry := _entry(*one)) is not None]

    def wait(self, standing: Standing, place: bytes, milliseconds: int) -> bool:
        """As ``Tail.wait``."""
        return bool(self._client.xread({self._keys.matches: place}, count=1, block=milliseconds))

    def behind(self, standing: Standing, place: bytes, most: int = 20) -> int:
        """As ``Tail.behind``."""
        return count_behind(self._client, self._keys.matches, place, most)

    def pages(self, standing: Standing) -> Iterator[tuple[bytes, list[Held]]]:
        """All documents that match something, with a JSON list of the queries' names in a document's place; page by
        page, each with the place of the newest match that is in it.

        Raises:
            NoChanges: the stream is gone.
            redis.RedisError: the server does not answer, or was restarted meanwhile.
        """
        cursor = 0
        with one_run(self._client):
            while True:
                pipe = self._client.pipeline(transaction=True)
                pipe.hscan(self._keys.matched, cursor, count=PAGE)
                pipe.xrevrange(self._keys.matches, count=1)
                (cursor, fields), newest = (raised(answer) for answer in pipe.execute(raise_on_error=False))
                if not newest:
                    raise NoChanges
                page = [_held(field, value) for field, value in fields.items() if field[:1] == b"d"]
                if page:
                    yield newest[0][0], page
                if not cursor:
                    break


def _held(field: bytes, value: bytes) -> Held:
    kept = read_kept(value)
    return Held(names.id_of(field[1:]), kept.version, orjson.dumps(sorted(kept.names)))


def _entry(place: bytes, fields: dict[bytes, Any]) -> Matched | None:
    if fields[b"v"] == NO_CHANGE:
        return None
    key = names.id_of(fields[b"k"])
    return Matched(place, key, int(fields[b"v"]), fields[b"d"] or None, fields[b"q"], fields[b"c"].decode())
