"""Holds each new version of a view's documents against the standing queries, and tells what enters, changes and leaves.

It follows the view's changes in batches. What a batch has come to, how far it has read and what is told of it are
written in one step, which only comes through from the step that it began with (``sinks/redis/stream/matches.py``): a
crash or a repetition neither loses nor doubles anything. A query that is new, changed or gone is told against all
documents as they stand (docs/decisions/standing-queries.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cdc.paging import PageSize
from operations.push.cursor import Cursor, number_of, parse_cursor
from operations.push.walk import start_of
from operations.standing.backfill import Page, Work, work_for
from operations.standing.judge import Looked, fold
from operations.standing.registered import FAILED, UNJUDGED, Registered, Searches
from sinks.redis.read import NoChanges
from sinks.redis.stream.matches import Matches, State
from sinks.redis.stream.tail import Entry, Standing, Tail

# It is a thread of the very `run` that keeps them: that one has still to begin, as at a first start, or to begin anew.
NOT_KEPT = "`run` has not begun to keep the view's changes yet"
# Versions of one request to the search server: with many queries one of four thousand costs it little more than one of
# a thousand. Fewer to begin with, and of large documents: all of a batch is in memory, as it was before and after. So
# that reading them does not come to more either, it begins with one.
FIRST, BATCH, BATCH_BYTES = 250, 4_000, 8 << 20
# Between two looks whether queries have changed.
LOOK_SECONDS = 1.0
# It waits in Redis for so long, and looks then whether it is to end.
BLOCK_MS = 500


class Overtaken(Exception):
    """Another matcher has done a step: what was worked out is thrown away, and begun from what holds now."""


class Failing(Exception):
    """Queries could not be run over documents: what was worked out is thrown away, and begun without them.

    Args:
        why: name -> the server's words.
    """

    def __init__(self, why: Mapping[str, str]) -> None:
        super().__init__(why)
        self.why = why


class Matcher:
    """One view's matcher; does a step at each call of ``step``.

    Args:
        searches: the search server's side.
        tail: the view's changes.
        matches: what is kept of it.
        batch: versions of a request, to begin with.

    Attributes:
        batch: how many versions a request may hold now: fewer after a failure, which may be because of them.
        documents: versions that were judged.
        told: versions that something was told of.
        unread: versions that the search server could not read.
    """

    def __init__(self, searches: Searches, tail: Tail, matches: Matches, batch: int = FIRST) -> None:
        self._searches, self._tail, self._matches = searches, tail, matches
        self._state: State | None = None
        self._registered: Registered | None = None
        self._looked = -1e9
        self._work: Work | None = None
        self.batch, self._size = batch, PageSize(BATCH, around=BATCH_BYTES)
        self.documents = self.told = self.unread = 0

    def step(self) -> bool:
        """Do the next thing there is to do; False when there was nothing, for as long as it has waited.

        Raises:
            HeadwaterError: a server does not answer, or refuses; the same again goes on.
            Moving: keys are being renamed by a promotion; the same again goes on.
            redis.RedisError: no answer; the same again goes on.
        """
        try:
            return self._step()
        except Overtaken:
            self._state, self._work = None, None
            return True
        except BaseException:
            # Whether a step was done that nobody answered for is known from what is kept.
            self._state, self._work, self._registered = None, None, None
            self.batch = max(1, self.batch // 4)
            raise

    @property
    def lag_seconds(self) -> float | None:
        """How much younger the newest change is than the one up to which all were judged; None where that is not known:
        it has yet to begin, or begins anew."""
        if self._state is None or (cursor := _cursor(self._state)) is None:
            return None
        newest = self._tail.newest(Standing(cursor.generation, cursor.mark))
        return max(0, number_of(newest)[0] - cursor.number[0]) / 1000

    @property
    def pending(self) -> int:
        """How many queries wait until all documents were held against them."""
        return 0 if self._state is None or self._registered is None else len(self._registered.pending(self._state))

    @property
    def queries(self) -> int:
        """How many queries stand."""
        return 0 if self._registered is None else len(self._registered.queries)

    @property
    def refused(self) -> int:
        """How many registered ones the server does not take, by the fields of the index that readers see now."""
        return 0 if self._registered is None else len(self._registered.refused)

    def _step(self) -> bool:
        if self._state is None:
            self._state = self._load()
        self._look()
        assert self._registered is not None
        cursor = _cursor(self._state)
        try:
            if cursor is None:
                self._begin()
                return True
            if self._work is None:
                self._work = work_for(self._registered, self._state, self._tail, self._matches, cursor)
            if self._work is not None:
                self._walk(self._work)
                return True
            return self._follow(cursor)
        except NoChanges:
            self._work = None
            self._begin()
            return True
        except Failing as failing:
            self._leave_out(failing.why)
            return True

    def _leave_out(self, failing: Mapping[str, str]) -> None:
        """They are refused from now on: what matched them is told as left, and no other query waits for them."""
        assert self._registered is not None
        known = {name: why for name, why in self._registered.refused.items() if why.startswith(FAILED)}
        new = {name: FAILED + why for name, why in failing.items()}
        self._registered, self._work = self._searches.follow(self._registered, known | new), None

    def _load(self) -> State:
        state = self._matches.state()
        if state is None:
            self._matches.begin()
            state = self._matches.state()
        if state is None:
            raise Overtaken
        return state

    def _look(self) -> None:
        """Whether other queries are registered by now, or readers see another index.

        That these are followed is noted before any of the former ones goes: who judges by them meanwhile is overtaken.
        So are their names: one that is removed before all documents were judged may have been matched by some.
        """
        assert self._state is not None
        noted = self._state.notes.get("registered")
        known = self._registered
        if known is not None and noted == known.mark and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        found = self._searches.look(known)
        self._looked = time.monotonic()
        if found is known and noted == found.mark:
            return
        if noted != found.mark:
            new = found.queries.keys() - self._state.standing.keys()
            self._write({"registered": found.mark}, dict.fromkeys(new, UNJUDGED))
        self._registered = self._searches.follow(found, found.failed(self._state))
        self._work = None

    def _begin(self) -> None:
        """From here on changes count; what was before is found in the documents as they stand."""
        begins = start_of(self._tail, self._tail.standing(), NOT_KEPT)
        self._write({"cursor": begins.text(), "full": "1"})

    def _follow(self, cursor: Cursor) -> bool:
        if self._apply_next(self._after(cursor)):
            return True
        self._tail.wait(Standing(cursor.generation, cursor.mark), cursor.place, BLOCK_MS)
        return False

    def _after(self, cursor: Cursor) -> Sequence[Entry]:
        count = min(self.batch, self._size.count)
        entries = self._tail.after(Standing(cursor.generation, cursor.mark), cursor.place, count)
        self._size.read(entry.size for entry in entries)
        return entries

    def _apply_next(self, found: Sequence[Entry]) -> bool:
        """Judge as many of these as one request may hold; False when there are none. The next are as many as fit."""
        entries = _bounded(found)
        if entries:
            self._apply(entries)
            mean = sum(entry.size for entry in entries) // len(entries)
            self.batch = max(1, min(BATCH, self.batch * 2, BATCH_BYTES // mean))
        return bool(entries)

    def _apply(self, entries: Sequence[Entry]) -> None:
        """Judge changes, and go on behind them."""
        assert self._state is not None
        cursor = _cursor(self._state)
        assert cursor is not None
        found = iter(self._judge([entry.after for entry in entries if entry.after is not None]))
        looks = [
            Looked(one.key, one.version, one.after, frozenset() if one.after is None else next(found))
            for one in entries
        ]
        self._tell(looks, {"cursor": Cursor(cursor.generation, cursor.mark, entries[-1].place).text()})

    def _judge(self, documents: Sequence[bytes], asked: frozenset[str] | None = None) -> list[frozenset[str]]:
        assert self._registered is not None
        ids: list[frozenset[str]] = []
        for part in _parts(documents, self.batch):
            found = self._registered.judge(part, asked)
            if found.failed:
                raise Failing(found.failed)
            ids += found.ids
            self.documents += len(part)
            self.unread += found.unread
        return ids

    def _walk(self, work: Work) -> None:
        """One page of documents as they stand, behind all changes that are in it; after the last, what that means."""
        page = work.next()
        if page is None:
            self._work = None
            self._write(work.notes, work.standing)
            return
        self._advance(page.at)
        self._tell(self._looks(work, page))

    def _looks(self, work: Work, page: Page) -> Iterable[Looked]:
        there = [one.document for one in page.documents if one.document is not None]
        found = iter(self._judge(there, work.asked) if work.judges else [frozenset[str]()] * len(there))
        for one in page.documents:
            matches = frozenset[str]() if one.document is None else next(found)
            yield Looked(one.key, one.version, one.document, matches, work.asked, fresh=False, cause=work.cause)

    def _advance(self, at: bytes) -> None:
        """Judge all changes up to a place; that of the newest which a page has in it is one that there is."""
        while True:
            assert self._state is not None
            cursor = _cursor(self._state)
            assert cursor is not None
            if number_of(at) <= cursor.number:
                return
            entries = self._after(cursor)
            if not self._apply_next([one for one in entries if number_of(one.place) <= number_of(at)]):
                raise NoChanges  # the one at that place is gone already

    def _tell(self, looks: Iterable[Looked], notes: Mapping[str, str] | None = None) -> None:
        made = list(looks)
        known = self._matches.kept(list(dict.fromkeys(one.key for one in made)))
        kept, events = fold(known, made)
        if notes or kept or events:
            assert self._state is not None
            self._state = _done(self._matches.step(self._state, notes or {}, kept, {}, events))
            self.told += len(events)

    def _write(self, notes: Mapping[str, str], standing: Mapping[str, bytes | None] | None = None) -> None:
        assert self._state is not None
        self._state = _done(self._matches.step(self._state, notes, {}, standing or {}, []))


def _done(state: State | None) -> State:
    if state is None:
        raise Overtaken
    return state


def _cursor(state: State) -> Cursor | None:
    return parse_cursor(state.notes.get("cursor", ""))


def _bounded(entries: Sequence[Entry]) -> Sequence[Entry]:
    """As many as one request may hold, and one at the least."""
    size = 0
    for number, entry in enumerate(entries):
        size += entry.size
        if size > BATCH_BYTES and number:
            return entries[:number]
    return entries


def _parts(documents: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """In requests of so many documents, and of bounded size: a server hangs up on one that is too large."""
    start, size = 0, 0
    for number, document in enumerate(documents):
        if number > start and (number - start >= most or size + len(document) > BATCH_BYTES):
            yield documents[start:number]
            start, size = number, 0
        size += len(document)
    if start < len(documents):
        yield documents[start:]
