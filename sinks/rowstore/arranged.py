"""Arrangements of the row store on Redis: sorted sets of rows by a place among those that name the same.

Children in the order that a view shows them; rows by their moments, and versions of rows by when they began.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sinks.rowstore.commands import Command, by_key, cut
from sinks.rowstore.contract import Attempt
from sinks.rowstore.scripts import BEGINNING, FOREMOST, Script
from sinks.rowstore.talk import Talk


class Arranged(Talk):
    """The verbs of arrangements; arguments as ``Talk``."""

    def arrange(self, entries: Sequence[tuple[str, float, str]], by: Attempt) -> None:
        """See RowStore."""
        found: dict[str, list[str]] = {}
        for key, place, member in entries:
            found.setdefault(key, []).extend((repr(place), member))
        self.changes([("ZADD", key, *members) for key, members in cut(list(found.items()))], by)

    def displace(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """See RowStore."""
        self.changes([("ZREM", key, *members) for key, members in by_key(pairs)], by)

    def foremost(self, asked: Sequence[tuple[str, int]]) -> list[list[str]]:
        """See RowStore."""
        return self._found(FOREMOST, [(key, str(count)) for key, count in asked])

    def beginning(self, asked: Sequence[tuple[str, float]]) -> list[list[str]]:
        """See RowStore."""
        return self._found(BEGINNING, [(key, repr(place)) for key, place in asked])

    def _found(self, script: Script, asked: Sequence[tuple[str, str]]) -> list[list[str]]:
        """What a script finds in arrangements: (arrangement's key, what it is asked by)."""
        self._seen([key for key, _ in asked])
        calls: list[Command] = []
        for chunk in self._chunks(asked):
            named, said = [self.name(key) for key, _ in chunk], [text for _, text in chunk]
            calls.append(("EVALSHA", script.sha, len(named), *named, *said))
        return [[member.decode() for member in found] for answers in self.pipeline(calls) for found in answers]

    def count_onward(self, asked: Sequence[tuple[str, float]]) -> list[int]:
        """See RowStore."""
        return [int(count) for count in self._each("ZCOUNT", asked)]

    def all_onward(self, asked: Sequence[tuple[str, float]]) -> list[list[str]]:
        """See RowStore."""
        return [[member.decode() for member in found] for found in self._each("ZRANGEBYSCORE", asked)]

    def _each(self, verb: str, asked: Sequence[tuple[str, float]]) -> list[Any]:
        self._seen([key for key, _ in asked])
        return self.reads([(verb, key, repr(place), "+inf") for key, place in asked])

    def onward(self, key: str, place: float, count: int) -> Iterator[list[str]]:
        """See RowStore."""
        self._seen([key])
        name, least = self.name(key), repr(place)
        while True:
            [found] = self.pipeline([("ZRANGEBYSCORE", name, least, "+inf", "WITHSCORES", "LIMIT", 0, count)])
            members, scores = found[::2], found[1::2]
            if members:
                yield [member.decode() for member in members]
            if len(members) < count:
                return
            # By place and not by number: others may take rows out meanwhile, and none may be passed over.
            last = scores[-1].decode()
            least, count = last, count * 2 if float(last) == float(least) else count
