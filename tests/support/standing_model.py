"""What a matcher works with, in memory: a stream of changes, ranges for queries, and steps that may be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from operations.standing.matcher import Matcher
from operations.standing.registered import Registered
from sinks.contract import Held
from sinks.elasticsearch.standing.percolator import Judged
from sinks.elasticsearch.standing.queries import Query
from sinks.redis.read import NoChanges
from sinks.redis.stream.matches import Event, Kept, State
from sinks.redis.stream.tail import Entry, Standing

Ranges = dict[str, tuple[int, int]]


class Cut(Exception):
    """The process ends here."""


def matches(document: bytes | None, query: tuple[int, int]) -> bool:
    return document is not None and query[0] <= orjson.loads(document)["n"] <= query[1]


@dataclass
class Changes:
    """The documents and their stream, as ``Tail`` reads them; pages of two."""

    generation: int = 1
    log: list[Entry] = field(default_factory=list)
    first: int = 0  # what is before this place is gone
    newest_place: int = 0
    documents: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    # What others do before a page is read, and between its reading and its judging.
    meanwhile: Callable[[], None] = lambda: None

    def write(self, key: str, version: int, n: int | None) -> None:
        after = None if n is None else orjson.dumps({"n": n})
        before = self.documents.get(key, (0, None))[1]
        if before == after:
            return
        self.newest_place += 1
        self.log.append(Entry(b"%d-0" % self.newest_place, key, version, before, after))
        if after is None:
            del self.documents[key]
        else:
            self.documents[key] = version, after

    def promote(self) -> None:
        """Another generation, with a stream of its own."""
        self.generation, self.log, self.first, self.newest_place = self.generation + 1, [], 0, 0

    def forget(self) -> None:
        """What came before the newest change is not kept any more."""
        self.first = self.newest_place
        self.log = self.log[-1:]

    def standing(self) -> Standing:
        return Standing(self.generation, "0123456789abcdef")

    def newest(self, standing: Standing) -> bytes:
        self._same(standing)
        return b"%d-0" % self.newest_place

    def after(self, standing: Standing, place: bytes, count: int) -> list[Entry]:
        self._same(standing)
        number = int(place.partition(b"-")[0])
        if number < self.first:
            raise NoChanges
        return [one for one in self.log if int(one.place.partition(b"-")[0]) > number][: min(count, 3)]

    def wait(self, standing: Standing, place: bytes, milliseconds: int) -> bool:
        return False

    def pages(self, standing: Standing) -> Iterator[tuple[bytes, list[Held]]]:
        keys = sorted(self.documents)
        for start in range(0, len(keys), 2):
            self._same(standing)
            self.meanwhile()
            there = [key for key in keys[start : start + 2] if key in self.documents]
            page = self.newest(standing), [Held(key, *self.documents[key]) for key in there]
            self.meanwhile()
            yield page

    def look(self, standing: Standing, keys: Sequence[str]) -> tuple[bytes, dict[str, Held]]:
        self._same(standing)
        found = {key: Held(key, *self.documents[key]) for key in keys if key in self.documents}
        return self.newest(standing), found

    def _same(self, standing: Standing) -> None:
        if standing != self.standing():
            raise NoChanges


@dataclass
class Memory:
    """As ``Matches``; the next step is cut before it or behind it, if that is asked for."""

    held: State | None = None
    known: dict[str, Kept] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    cut: str = ""

    def state(self) -> State | None:
        return self.held

    def begin(self) -> bool:
        self.held, self.known = State(0, "m", {}, {}), {}
        return True

    def kept(self, keys: Sequence[str]) -> dict[str, Kept]:
        return {key: self.known[key] for key in keys if key in self.known}

    def pages(self) -> Iterator[dict[str, Kept]]:
        keys = sorted(self.known)
        for start in range(0, len(keys), 2):
            yield self.kept(keys[start : start + 2])

    def step(
        self,
        state: State,
        notes: Mapping[str, str],
        kept: Mapping[str, Kept | None],
        standing: Mapping[str, bytes | None],
        events: Sequence[Event],
    ) -> State | None:
        cut, self.cut = self.cut, ""
        if cut == "before":
            raise Cut
        assert self.held is not None
        if state.step != self.held.step:
            return None
        for key, value in kept.items():
            self.known.pop(key, None)
            if value is not None:
                self.known[key] = value
        said = {name: note for name, note in {**self.held.notes, **notes}.items() if note}
        judged = {**self.held.standing, **standing}
        left = {name: value for name, value in judged.items() if value is not None}
        self.events += events
        self.held = State(state.step + 1, state.mark, said, left)
        if cut == "behind":
            raise Cut
        return self.held


@dataclass
class Standings:
    """Queries and their judge, as ``Searches``: what is followed judges, and nothing else."""

    queries: Ranges = field(default_factory=dict)
    revision: int = 0
    revisions: dict[str, int] = field(default_factory=dict)
    judging: dict[str, tuple[int, int]] = field(default_factory=dict)  # by id
    index: str = "i1"
    failing: dict[str, int] = field(default_factory=dict)  # it fails on documents of this number

    def put(self, name: str, low: int, high: int) -> None:
        self.revision += 1
        self.queries[name], self.revisions[name] = (low, high), self.revision
        self.judging[f"{name}@{self.revision}"] = low, high  # as it was tried out

    def remove(self, name: str) -> None:
        self.revision += 1
        self.queries.pop(name, None)

    def look(self, known: Registered | None) -> Registered:
        mark = f"{self.revision}:{self.index}"
        if known is not None and known.mark == mark:
            return known
        found = {name: Query(name, self.revisions[name], orjson.dumps(query)) for name, query in self.queries.items()}
        return Registered(mark, self.index, found, _judge=self)

    def follow(self, found: Registered, failed: Mapping[str, str]) -> Registered:
        taken = (one for name, one in found.queries.items() if name not in failed)
        self.judging = {one.id: tuple(orjson.loads(one.query)) for one in taken}
        return replace(found, refused={name: why for name, why in failed.items() if name in found.queries})

    def judge(self, documents: Sequence[bytes], asked: Sequence[str] | None = None) -> Judged:
        chosen = {one: query for one, query in self.judging.items() if asked is None or one in asked}
        numbers = {orjson.loads(each)["n"] for each in documents}
        failed = {one: "no price" for one in chosen if self.failing.get(one.partition("@")[0]) in numbers}
        if failed:
            return Judged([frozenset()] * len(documents), 0, failed)
        return Judged(
            [frozenset(one for one, query in chosen.items() if matches(each, query)) for each in documents], 0
        )


@dataclass
class Model:
    """All of it, and matchers that end and are begun again."""

    changes: Changes = field(default_factory=Changes)
    memory: Memory = field(default_factory=Memory)
    standings: Standings = field(default_factory=Standings)
    matchers: dict[int, Matcher] = field(default_factory=dict)

    def matcher(self, which: int = 0) -> Matcher:
        tools: Any = self.standings, self.changes, self.memory
        return self.matchers.setdefault(which, Matcher(*tools))

    def step(self, which: int = 0, cut: str = "") -> bool:
        """One step of a matcher; one that is cut is another one then, unless it has only had no answer."""
        self.memory.cut = cut.removesuffix("+")
        try:
            return self.matcher(which).step()
        except Cut:
            if not cut.endswith("+"):
                del self.matchers[which]
            return True
        finally:
            self.memory.cut = ""

    def until_idle(self, which: int = 0) -> None:
        for _ in range(500):
            self.matcher(which)._looked = -1e9  # whether queries have changed
            if not self.step(which):
                return
        raise AssertionError("it never comes to an end")

    def expected(self) -> dict[str, set[str]]:
        """Brute force: who matches what."""
        found = {
            key: {name for name, query in self.standings.queries.items() if matches(document, query)}
            for key, (_, document) in self.changes.documents.items()
        }
        return {key: names for key, names in found.items() if names}

    def told(self) -> list[dict[str, Any]]:
        return [
            {"key": one.key, "version": one.version, "queries": orjson.loads(one.ops), "cause": one.cause}
            for one in self.memory.events
        ]
