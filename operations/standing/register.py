"""Registering one standing query on the search server, which has to parse it first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial

import orjson

from cdc.errors import ConfigError, QueryRefused
from cdc.json_text import fits
from cdc.pipeline.fields import QUERY
from operations.push.carrier import Lease
from operations.standing.place import Searching
from operations.standing.refusals import refusal, refusals
from operations.standing.scripted import WRAPPER, script_in
from sinks.elasticsearch.standing.percolator import Percolator
from sinks.elasticsearch.standing.queries import MOST, Query, next_revision

MAX_BYTES = 64 << 10
# Characters that a message shows of a number that is too long.
_SHOWN = 40


def clause(name: str, query: bytes) -> bytes:
    """What stands under ``query`` of a search, as JSON in one form. Pure.

    Raises:
        QueryRefused: it is no JSON object, too large, or has a script. ConfigError: this is no name of a query
            (terminal).
    """
    if not re.fullmatch(QUERY, name):
        raise ConfigError(
            "this can't be the name of a query",
            fix="1 to 64 letters, digits, '_', '.' and '-', beginning with a letter or digit",
        )
    if len(query) > MAX_BYTES:
        raise QueryRefused(f"query {name} has {len(query):,} bytes", fix=f"at most {MAX_BYTES:,} are taken")
    try:
        found = orjson.loads(query)
        json.loads(query, parse_int=partial(_whole, name))
    except ValueError as error:
        raise QueryRefused(f"query {name} is no JSON: {error}", fix='like {"term": {"status": "open"}}') from error
    except RecursionError as error:
        raise _too_deep(name) from error
    if isinstance(found, dict) and found.keys() == {"query"}:
        found = found["query"]
    if not isinstance(found, dict) or not found:
        raise QueryRefused(f"query {name} is no JSON object", fix='like {"term": {"status": "open"}}')
    try:
        made = orjson.dumps(found)
    except TypeError as error:
        raise _too_deep(name) from error
    if (where := script_in(found)) == WRAPPER:
        raise QueryRefused(
            f"query {name} has a 'wrapper' whose query is no base64 of JSON",
            means="nobody can see whether it has a script, which is not taken",
            fix="write the query itself in its place",
        )
    if where is not None:
        raise QueryRefused(
            f"query {name} has a script (under {where!r})",
            means="a script may fail on one document, and then nothing is known of the query any more",
            fix="do without: give the view a field that has what the script works out, and ask for that",
        )
    return made


def _whole(name: str, text: str) -> None:
    """Refuse a whole number of which ``orjson`` would make a double: another query than was asked for."""
    if not fits(text):
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise QueryRefused(
            f"query {name} has a whole number of more than 64 bits: {shown}",
            means="it would be rounded",
            fix='write it as text, in quotes: {"term": {"id": "18446744073709551616"}}',
        )


def _too_deep(name: str) -> QueryRefused:
    return QueryRefused(f"query {name} is nested too deeply", fix="nest its clauses less; 250 levels are taken")


def same(one: bytes, other: bytes) -> bool:
    """Whether two queries are one, however they are written: ``1`` and ``true`` are two. Pure."""
    first, second = (orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS) for text in (one, other))
    return first == second


class Registering:
    """Changes queries of one view; the index that they are in must be there for ``put``.

    Args:
        server: the search server.
    """

    def __init__(self, server: Searching) -> None:
        self._server = server
        # What parses them, as long as readers see one index.
        self._judge: Percolator | None = None

    def put(
        self, name: str, wanted: bytes, before: Callable[[], None] = lambda: None, *, refresh: bool = True
    ) -> Query:
        """Register a query, or change one; one that stands already stays as it is.

        Args:
            name: the query's.
            wanted: of ``clause``.
            before: called between the look at what stands and the write, which fails if that is not so any more.
            refresh: as ``QueryStore.put``.

        Raises:
            QueryRefused: the server can't parse it (terminal). ConfigError: there are too many (terminal).
            SinkUnavailable: a server does not answer, or somebody else changes the same query (transient).
            SinkRefused: a server refuses.
        """
        store = self._server.store
        old = store.get(name)
        if old is not None and same(old.query, wanted):
            before()
            return old
        if old is None and store.count() >= MOST:
            raise ConfigError(f"there are {MOST:,} standing queries of this view", fix="remove some first")
        if self._judge is None:
            self._judge = self._server.percolator(self._server.living())
            self._judge.setup()
        self._judge.try_out(next_revision(old, name, wanted))
        before()
        return store.put(old, name, wanted, refresh=refresh)


class Following:
    """Queries as documents of a view have them, changed by who holds a lease: of one batch.

    Each change is a look at what stands, a word that the lease is still held, and a write that fails if what stands is
    not that any more: who was silent for longer than the lease changes nothing that somebody else has written since.

    Args:
        server: the search server.
        lease: on following that view.
    """

    def __init__(self, server: Searching, lease: Lease) -> None:
        self._server, self._lease = server, lease
        self._registering: Registering | None = None
        self._changed = False
        self._noted: dict[str, str] | None = None

    def put(self, name: str, wanted: bytes) -> None:
        """A query stands under this name.

        Raises:
            QueryRefused, ConfigError: it can't be one. Others as ``Registering.put``, and of the lease.
        """
        if self._registering is None:
            self._server.store.setup()
            self._registering = Registering(self._server)
        self._registering.put(name, wanted, lambda: self._lease.hold(refusal(name, None)), refresh=False)
        self._changed = True

    def stays(self, name: str) -> None:
        """What stands under this name is what should. Raises what the lease does."""
        if self._noted is None:
            self._noted = refusals(self._lease.kept())
        if name in self._noted:
            self._lease.hold(refusal(name, None))

    def refuse(self, name: str, why: str) -> None:
        """Nothing stands under this name but the reason why. Raises as ``remove``."""
        self._gone(name, refusal(name, why))

    def remove(self, name: str) -> None:
        """Nothing stands under this name.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses. Others of the lease.
        """
        self._gone(name, refusal(name, None))

    def all(self) -> Mapping[str, Query]:
        """What stands, with the lease looked at behind so many requests. Raises as ``QueryStore.all``, and of it."""
        found = self._server.store.all()
        self._lease.hold()
        return found

    def names(self) -> set[str]:
        """Under which names a query or a reason stands. Raises as ``QueryStore.all``, and of the lease."""
        return {*self.all(), *refusals(self._lease.kept())}

    def done(self) -> None:
        """At the end. Raises as ``QueryStore.refresh``."""
        if self._changed:
            self._server.store.refresh()

    def _gone(self, name: str, noted: Mapping[str, str | None]) -> None:
        old = self._server.store.get(name)
        self._lease.hold(noted)
        if old is not None:
            self._server.store.remove_known(old)
            self._changed = True
