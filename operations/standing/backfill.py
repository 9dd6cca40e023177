"""What is to be looked at beside the changes, page by page: all documents for queries that are new, changed or gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from cdc.paging import PageSize, parts
from operations.push.cursor import Cursor
from operations.standing.judge import CHANGE, QUERY
from operations.standing.registered import Registered
from sinks.contract import Held
from sinks.redis.stream.matches import Matches, State
from sinks.redis.stream.tail import Standing, Tail

# Keys that are looked at together, at the most: of large documents they are fewer.
PAGE = 1_000


class Document(NamedTuple):
    """A document as it stands; None for one that is gone."""

    key: str
    version: int
    document: bytes | None


class Page(NamedTuple):
    """Some documents, and the place of the newest change that is in them."""

    at: bytes
    documents: list[Document]


@dataclass(frozen=True)
class Work:
    """A walk through documents, and what holds when it has come to its end. Killed before, it is begun again: what was
    told is known then, and is not told twice.

    Attributes:
        asked: the queries that it is for; None for all.
        judges: documents are held against them; else nothing matches them any more.
        cause: what is told as the cause.
        notes, standing: what is noted at the end.
    """

    asked: frozenset[str] | None
    judges: bool
    cause: str
    notes: Mapping[str, str]
    standing: Mapping[str, bytes | None]
    _pages: Iterator[Page]

    def next(self) -> Page | None:
        """The next page; None after the last.

        Raises:
            NoChanges: the stream is gone. Moving: keys are being renamed.
            redis.RedisError: the server does not answer.
        """
        return next(self._pages, None)


def work_for(registered: Registered, state: State, tail: Tail, matches: Matches, cursor: Cursor) -> Work | None:
    """What is to be walked through now; None when all queries have been told.

    Args:
        registered: the queries that there are.
        state: what was judged.
        tail, matches: read the documents, and who matches.
        cursor: up to where changes were judged.
    """
    standing = Standing(cursor.generation, cursor.mark)
    gone = frozenset(state.standing.keys() - registered.queries.keys())
    pending = frozenset(registered.pending(state))
    removed: dict[str, bytes | None] = dict.fromkeys(gone)
    notes = {"index": registered.index, "full": ""}
    if state.notes.get("full"):
        known = {name: registered.judged(name) for name in registered.queries}
        if not known:  # whoever has matched something matches nothing now
            return Work(None, False, CHANGE, notes, removed, _matching(tail, matches, standing))
        pages = chain(_all(tail, standing), _gone(tail, matches, standing))
        return Work(None, True, CHANGE, notes, known | removed, pages)
    if pending:
        known = {name: registered.judged(name) for name in pending}
        return Work(pending | gone, True, QUERY, notes, known | removed, _all(tail, standing))
    if gone:
        return Work(gone, False, QUERY, notes, removed, _matching(tail, matches, standing, gone))
    return None


def _all(tail: Tail, standing: Standing) -> Iterator[Page]:
    """Every document."""
    for at, held in tail.pages(standing):
        yield Page(at, [_document(one) for one in held])


def _gone(tail: Tail, matches: Matches, standing: Standing) -> Iterator[Page]:
    """Documents that have matched and are not there any more: of a stream that was not seen to its end."""
    size = PageSize(PAGE)
    for page in matches.pages():
        for at, part, held in _looks(tail, standing, list(page), size):
            yield Page(at, [Document(key, page[key].version, None) for key in part if key not in held])


def _matching(tail: Tail, matches: Matches, standing: Standing, names: frozenset[str] | None = None) -> Iterator[Page]:
    """Documents that match one of these queries, or any."""
    size = PageSize(PAGE)
    for page in matches.pages():
        known = {key: kept for key, kept in page.items() if names is None or kept.names & names}
        for at, part, held in _looks(tail, standing, list(known), size):
            yield Page(
                at, [_document(held[key]) if key in held else Document(key, known[key].version, None) for key in part]
            )


def _looks(
    tail: Tail, standing: Standing, keys: Sequence[str], size: PageSize
) -> Iterator[tuple[bytes, Sequence[str], dict[str, Held]]]:
    """What is there under some keys, so many at a time as fit, each with the place of the newest change in it."""
    for part in parts(keys, size):
        at, held = tail.look(standing, part)
        size.read([len(one.document) for one in held.values()] or [0])
        yield at, part, held


def _document(held: Held) -> Document:
    """As it stands; what is no document of ours, or is empty, matches nothing."""
    document = held.document if isinstance(held.document, bytes) and held.document else None
    return Document(held.key, max(held.version, 0), document)
