"""The queries as the matcher knows them, and the search server that judges by them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import orjson

from operations.standing.place import Searching
from sinks.elasticsearch.standing.percolator import Judged, Percolator
from sinks.elasticsearch.standing.queries import Query
from sinks.redis.stream.matches import State

# Whether the documents' index has other fields by now is looked at that often; a registration looks too.
FIELDS_SECONDS = 10.0


# Before the server's words on a query that could not be run over a document.
FAILED = "it fails on a document: "


class Judge(Protocol):
    """What judges documents: ``Percolator``."""

    def judge(self, documents: Sequence[bytes], asked: Sequence[str] | None = None) -> Judged: ...  # noqa: D102


@dataclass(frozen=True)
class Registered:
    """All queries of a view at one time.

    Attributes:
        mark: tells it from what is registered at any other time, and where it is judged.
        index: where it is judged; empty where there are no queries.
        queries: by their names.
        refused: those that the server does not take any more, or that have failed on a document (``FAILED``), and why.
    """

    mark: str
    index: str
    queries: Mapping[str, Query]
    refused: Mapping[str, str] = field(default_factory=dict)
    _judge: Judge | None = field(default=None, compare=False, repr=False)
    # Notes that say that a query is judged, as they stand: of 50,000 queries reading all of them took a quarter of a
    # core for as long as nothing changed.
    _settled: dict[str, bytes] = field(default_factory=dict, init=False, compare=False, repr=False)

    def judge(self, documents: Sequence[bytes], asked: frozenset[str] | None = None) -> Judged:
        """Which of the queries each document matches, by name; so are those that failed (who is none of the registered
        ones, by its id).

        Args:
            documents: JSON.
            asked: only these; None for all.

        Raises:
            SinkUnavailable, SinkRefused: as ``Percolator.judge``.
        """
        names = self._names if asked is None else {i: name for i, name in self._names.items() if name in asked}
        if not names or not documents or self._judge is None:
            return Judged([frozenset()] * len(documents), 0)
        found = self._judge.judge(documents, None if len(names) == len(self.queries) else list(names))
        # The judge may have revisions that are not registered yet, or not any more.
        ids = [frozenset(names[one] for one in ids if one in names) for ids in found.ids]
        return Judged(ids, found.unread, {self._names.get(one, one): why for one, why in found.failed.items()})

    def failed(self, state: State) -> dict[str, str]:
        """Those that have failed on a document where they are judged now, as they are now, and why.

        They are not tried again until they are changed or judged elsewhere: each time they would enter, and leave.
        """
        if self.index != state.notes.get("index"):
            return {}
        noted = ((name, state.standing.get(name)) for name in self.queries)
        told = ((name, orjson.loads(note)) for name, note in noted if note is not None and FAILED.encode() in note)
        return {
            name: one["refused"]
            for name, one in told
            if str(one["refused"]).startswith(FAILED) and one["revision"] == self.queries[name].revision
        }

    @cached_property
    def _names(self) -> dict[str, str]:
        return {query.id: name for name, query in self.queries.items()}

    def pending(self, state: State) -> list[str]:
        """Those that not all documents were held against yet, as they are now and where they are judged now.

        Args:
            state: what was judged; of a query that the server did not take then and takes now, and the other way round,
                it has another answer.
        """
        if self.index != state.notes.get("index"):
            return list(self.queries)
        return [name for name in self.queries if not self._is_judged(name, state.standing.get(name))]

    def _is_judged(self, name: str, noted: bytes | None) -> bool:
        if noted is None:
            return False
        if self._settled.get(name) == noted:
            return True
        told = orjson.loads(noted)
        # Not why: the server's words may be others each time.
        taken = (told["refused"] is None) == (name not in self.refused)
        judged = taken and told["revision"] == self.queries[name].revision
        if judged:
            self._settled[name] = noted
        return bool(judged)

    def judged(self, name: str) -> bytes:
        """What is noted of a query once all documents were held against it."""
        return orjson.dumps({"revision": self.queries[name].revision, "refused": self.refused.get(name)})


# What is noted of a query before.
UNJUDGED = orjson.dumps({"revision": 0, "refused": None})


def revision_of(judged: bytes | None) -> int | None:
    """The revision that was judged last."""
    return None if judged is None else int(orjson.loads(judged)["revision"])


class Searches(Protocol):
    """Where queries are registered and judged."""

    def look(self, known: Registered | None) -> Registered:
        """What is registered now; ``known`` itself when that is it."""
        ...

    def follow(self, found: Registered, failed: Mapping[str, str]) -> Registered:
        """Have it judged by, and by nothing else; without those that have failed, by name, with the reason why."""
        ...


class ServerSearches:
    """On the search server.

    Args:
        searching: the connection.
    """

    def __init__(self, searching: Searching) -> None:
        self._searching = searching
        self._seen: object = None
        self._checked = -1e9

    def look(self, known: Registered | None) -> Registered:
        """See ``Searches``.

        Raises:
            SinkUnavailable: the server does not answer, or has no documents yet (transient). SinkRefused: it refuses.
        """
        change = self._searching.store.change()
        if change is None:
            return known if known is not None and known.mark == "none" else Registered("none", "", {})
        generation = self._searching.living()
        seen, now = (change, generation), time.monotonic()
        if known is not None and seen == self._seen and self._stays(known, now):
            return known
        queries = self._searching.store.all()
        judge: Percolator | None = self._searching.percolator(generation) if queries else None
        index = "" if judge is None else judge.setup()
        self._seen, self._checked = seen, now
        mark = f"{change[0]}:{change[1]}:{index}"
        if known is not None and known.mark == mark:
            return known
        return Registered(mark, index, queries, _judge=judge)

    def _stays(self, known: Registered, now: float) -> bool:
        """Whether the same queries are judged at the same place; where the documents' index may have other fields by
        now, the server is asked for these, and not for the queries, which are megabytes."""
        if now - self._checked < FIELDS_SECONDS:
            return True
        if isinstance(known._judge, Percolator) and known._judge.setup() != known.index:
            return False
        self._checked = now
        return True

    def follow(self, found: Registered, failed: Mapping[str, str]) -> Registered:
        """See ``Searches``.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        if not isinstance(found._judge, Percolator):
            return found
        said = found._judge.follow({name: one for name, one in found.queries.items() if name not in failed})
        refused = {name: said[one.id] for name, one in found.queries.items() if one.id in said}
        return replace(found, refused=refused | {name: why for name, why in failed.items() if name in found.queries})
