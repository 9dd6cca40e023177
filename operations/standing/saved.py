"""Queries that are documents of another view: what is put, changed and removed because a document is.

It follows that view's changes as a webhook does (``operations.push``): under a lease, from a place that is kept in
Redis, from all documents when that leads nowhere. So a row's change costs its query's registration, whatever else the
table holds. Each document decides alone what stands under its key: a query, or nothing but the reason why it is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from cdc.errors import ConfigError, HeadwaterError, QueryRefused
from cdc.json_text import elements, members
from operations.push.carrier import Lease
from operations.push.envelope import Batch
from operations.push.events import Told
from operations.push.verdict import Verdict, verdict
from operations.standing.place import Searching, StandingPlace
from operations.standing.register import Following, clause, same


@dataclass(frozen=True)
class SearchServer:
    """Where queries are registered.

    Attributes:
        place: of the view that they stand on.
        field: of a document, that has the query.
    """

    place: StandingPlace
    field: str

    def open(self) -> SavedQueries:
        """See ``Destination``."""
        return SavedQueries(self)


class SavedQueries:
    """Keeps the queries of a view as documents of another view are.

    Args:
        server: where, and how a document has its query.
    """

    def __init__(self, server: SearchServer) -> None:
        self._server = server
        self._searching: Searching | None = None
        self._seen: set[str] | None = None  # all that there are, by what was told since a reset; None without one
        # What stands, while documents are told: read once, and followed by what is done here. None: not read.
        self._known: dict[str, bytes] | None = None

    def carry(self, batch: Batch, message: str, attempt: int, lease: Lease) -> Verdict:
        """See ``Carrier``. A batch that is brought again does nothing where it was done."""
        try:
            if self._searching is None:
                self._searching = Searching(self._server.place)
            following = Following(self._searching, lease)
            for event in batch.events:
                self._take(event, following)
            following.done()
        except HeadwaterError as error:
            self.close()
            return verdict(None, error.what, attempt=attempt)
        return Verdict("delivered")

    def close(self) -> None:
        """See ``Carrier``."""
        self._known = None  # whatever was done last may have been done or not
        if self._searching is not None:
            self._searching.close()
            self._searching = None

    def _take(self, event: Told, following: Following) -> None:
        """One event; all of them may come again, if something behind them has failed."""
        if event.name == "reset":
            self._seen, self._known = set(), None
        elif event.name == "snapshot" and self._seen is not None:
            if self._known is None:
                self._known = {name: query.query for name, query in following.all().items()}
            for one in elements(event.parts()["documents"]):
                part = members(one)
                name = orjson.loads(part["key"])
                self._stands(name, part["document"], following, self._known.get(name))
        elif event.name == "change":
            part = event.parts()
            self._stands(orjson.loads(part["key"]), part["after"], following)
        elif event.name == "ready" and self._seen is not None:
            self._known = None
            for name in following.names() - self._seen:
                following.remove(name)

    def _stands(self, name: str, document: str, following: Following, known: bytes | None = None) -> None:
        """What stands under a key from now on, given the document's very text."""
        stood = {} if self._known is None else self._known
        if document == "null":
            if self._seen is not None:
                self._seen.discard(name)
            following.remove(name)
            stood.pop(name, None)
            return
        if self._seen is not None:
            self._seen.add(name)
        try:
            wanted = query_of(name, document, self._server.field)
            if known is not None and same(known, wanted):
                following.stays(name)
            else:
                following.put(name, wanted)
                stood[name] = wanted
        except (QueryRefused, ConfigError) as error:
            following.refuse(name, error.what)
            stood.pop(name, None)


def query_of(name: str, document: str, field: str) -> bytes:
    """The query that a document has, in one form. Pure.

    It is judged as the text that it is: what is read and written again may be another query, and what stands in other
    fields is nothing to it.

    Raises:
        QueryRefused: it has none.
        ConfigError: its key can't be a query's name.
    """
    try:
        found = members(document).get(field, "null")
    except ValueError:
        found = "null"
    if found == "null":
        raise QueryRefused(f"query {name}: its document has nothing in {field}", fix="write a query there")
    return clause(name, _text(name, found) if found.startswith('"') else found.encode())


def _text(name: str, written: str) -> bytes:
    try:
        text: str = orjson.loads(written)
    except ValueError as error:
        raise QueryRefused(f"query {name} is no JSON: {error}", fix='like {"term": {"status": "open"}}') from error
    return text.encode()
