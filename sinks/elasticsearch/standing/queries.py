"""The standing queries of a view, as they were registered: an index of their own, which no generation owns.

A query's document is ``{name, revision, query}`` under its name; ``query`` is stored and not looked into. What judges
(``percolator.py``) is made of this, and can be made of it again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from elasticsearch import BadRequestError, ConflictError, Elasticsearch, NotFoundError

from cdc.errors import SinkRefused, SinkUnavailable
from sinks.elasticsearch.client import connect, no_copy, part_of, reason_of, translated
from sinks.elasticsearch.mapping import NO_PIPELINES
from sinks.elasticsearch.owners import is_owner, made_by, owner, told
from sinks.elasticsearch.settings import Settings, Target, read_settings

# One answer of the percolator has all that match: it is bounded by how many there are.
MOST = 50_000
PAGE = 1_000
_MAPPING = {
    "name": {"type": "keyword"},
    "revision": {"type": "long"},
    "query": {"type": "object", "enabled": False},
}


class Query(NamedTuple):
    """A standing query.

    Attributes:
        name: of the view's queries, its own.
        revision: another one each time that it is changed, and larger.
        query: Query DSL, as JSON.
    """

    name: str
    revision: int
    query: bytes

    @property
    def id(self) -> str:
        """Of this revision, in the percolator."""
        return f"{self.name}@{self.revision}"


class QueryStore:
    """The registered queries of one view.

    Args:
        client: of the sink's server.
        settings: the sink's.
        target: the view's; of any generation.
    """

    def __init__(self, client: Elasticsearch, settings: Settings, target: Target) -> None:
        self._client, self._settings, self._target = client, settings, target
        self.index = target.queries

    def setup(self) -> None:
        """Make the index, unless it is there. Idempotent.

        Raises:
            SinkUnavailable: transient. SinkRefused: an index of that name is not ours.
        """
        with translated(self._settings.who, "setup of standing queries"):
            if not self._client.indices.exists(index=self.index):
                mappings = {"dynamic": False, "_meta": {"headwater": self._owner}, "properties": _MAPPING}
                try:
                    self._client.indices.create(index=self.index, mappings=mappings, settings=settings_of())
                except BadRequestError as error:
                    if "resource_already_exists_exception" not in reason_of(error):
                        raise
            self._check_owner()

    def get(self, name: str) -> Query | None:
        """One query, as it stands.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "look-up of a standing query"):
            return self._get(name)[0]

    def put(self, old: Query | None, name: str, query: bytes, *, refresh: bool = True) -> Query:
        """Register a query in place of the one that is known; the caller has had it judged.

        Args:
            old: what ``get`` has said.
            name: of the query.
            query: Query DSL.
            refresh: whether searches find it at once; else once ``refresh`` was called.

        Raises:
            SinkUnavailable: somebody else changes it at this moment, or the server is away (transient).
            SinkRefused: the server refuses.
        """
        made = next_revision(old, name, query)
        with translated(self._settings.who, "registration of a standing query"):
            there, place = self._get(name)
            if there != old:
                raise self._raced(name)
            how: dict[str, Any] = {"op_type": "create"} if there is None else place
            body = {"name": name, "revision": made.revision, "query": orjson.Fragment(query)}
            try:
                self._client.index(index=self.index, id=name, document=body, refresh=refresh, **how)
            except ConflictError as error:
                raise self._raced(name) from error
        return made

    def remove(self, name: str) -> bool:
        """Forget a query; whether there was one.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "removal of a standing query"):
            try:
                self._client.delete(index=self.index, id=name, refresh=True)
            except NotFoundError:
                return False
        return True

    def remove_known(self, old: Query) -> None:
        """Forget a query as ``get`` has said it to be; searches do not find it any more once ``refresh`` was called.

        Raises:
            SinkUnavailable: somebody else changes it at this moment, or the server is away (transient).
            SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "removal of a standing query"):
            there, place = self._get(old.name)
            if there != old:
                raise self._raced(old.name)
            try:
                self._client.delete(index=self.index, id=old.name, **place)
            except ConflictError as error:
                raise self._raced(old.name) from error

    def refresh(self) -> None:
        """Let searches find all that was changed. Idempotent.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "refresh of standing queries"):
            self._client.indices.refresh(index=self.index)

    def change(self) -> tuple[str, int] | None:
        """Something that is another one after each change; None while there is no index. Cheap.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "look at standing queries"):
            quiet = self._client.options(ignore_status=404)
            found = quiet.indices.stats(index=self.index, metric="docs", level="shards").body
        if "error" in found:
            return None
        if self.index not in found["indices"]:
            raise no_copy(self.index)  # there are queries, and nobody may take that for none
        one = found["indices"][self.index]
        copies = [copy for shard in one["shards"].values() for copy in shard]
        return str(one["uuid"]), max(int(copy.get("seq_no", {}).get("max_seq_no", -1)) for copy in copies)

    def all(self) -> dict[str, Query]:
        """Every query, by its name; none while there is no index.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        return {name: query for name, (query, _) in self.standing().items()}

    def standing(self) -> dict[str, tuple[Query, dict[str, Any]]]:
        """As ``all``, each with what a write says that is to fail if the query is another one by then.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        found: dict[str, tuple[Query, dict[str, Any]]] = {}
        with translated(self._settings.who, "look-up of standing queries"):
            if not self._client.indices.exists(index=self.index):
                return {}
            self._client.indices.refresh(index=self.index)
            after: list[Any] | None = None
            while True:
                answer = self._client.search(
                    index=self.index,
                    size=PAGE,
                    sort=[{"name": "asc"}],
                    search_after=after,
                    track_total_hits=False,
                    seq_no_primary_term=True,
                    allow_partial_search_results=False,
                )
                hits = part_of(answer, "hits", "hits")
                found |= {hit["_id"]: (read_query(hit["_source"]), _place(hit)) for hit in hits}
                if len(hits) < PAGE:
                    return found
                after = hits[-1]["sort"]

    def count(self) -> int:
        """How many there are.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "count of standing queries"):
            return int(part_of(self._client.count(index=self.index), "count"))

    def drop(self) -> bool:
        """Remove the index, if it is there; what somebody else has made under that name stays. Whether it was removed.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        if not self.ours():
            return False
        with translated(self._settings.who, "removal of standing queries"):
            self._client.indices.delete(index=self.index, ignore_unavailable=True)
        return True

    def ours(self) -> bool:
        """Whether the index is there, and has been made for these queries.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "look at standing queries"):
            found = self._client.options(ignore_status=404).indices.get_mapping(index=self.index).body
        return self.index in found and is_owner(self._owner, told(found[self.index]["mappings"]))

    def _get(self, name: str) -> tuple[Query | None, dict[str, Any]]:
        found = self._client.options(ignore_status=404).get(index=self.index, id=name).body
        if not found.get("found"):
            return None, {}
        return read_query(found["_source"]), _place(found)

    @property
    def _owner(self) -> dict[str, Any]:
        return owner(self._settings, view=self._target.view, queries=True)

    def _check_owner(self) -> None:
        if not is_owner(self._owner, made_by(self._client, self.index)):
            raise SinkRefused(
                f"{self._settings.who}: index {self.index} exists, but is not that of the standing queries of view "
                f"{self._target.view!r}",
                fix="give this sink another `index:` or `index_prefix:`, or delete that index",
            )

    def _raced(self, name: str) -> SinkUnavailable:
        return SinkUnavailable(f"query {name}: somebody else has changed it at this very moment", fix="do it again")


def _place(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}


def drop_queries(config: Mapping[str, Any]) -> list[str]:
    """Remove the registered queries of all views of a sink: with the sink itself, not with one of its generations.

    Args:
        config: plain data, of ``sinks.configure``.

    Returns:
        the indices that were removed.

    Raises:
        SinkUnavailable: transient. SinkRefused: the server refuses.
    """
    settings = read_settings(config)
    client = connect(settings)
    try:
        stores = [QueryStore(client, settings, target) for target in settings.targets.values()]
        return [store.index for store in stores if store.drop()]
    finally:
        client.close()


def settings_of() -> dict[str, Any]:
    """Of an index that is small, and shown to nobody."""
    return {"index.number_of_shards": 1, "index.auto_expand_replicas": "0-1", "index.hidden": True, **NO_PIPELINES}


def next_revision(old: Query | None, name: str, query: bytes) -> Query:
    """A query as it will be registered: its revision is the moment, and never goes back."""
    return Query(name, max(time.time_ns() // 1_000_000, old.revision + 1 if old else 0), query)


def read_query(source: bytes) -> Query:
    """A query's document."""
    told = orjson.loads(source)
    return Query(told["name"], int(told["revision"]), orjson.dumps(told["query"]))
