"""Judges documents by standing queries: the server's own percolator, in an index of one generation's fields.

The index has the mapping and the analysis of the generation's documents, and a document for each revision of each
query. It goes with its generation; that of the next one is made of the registered queries again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from elasticsearch import ApiError, BadRequestError, Elasticsearch

from cdc.errors import QueryRefused, SinkRefused, SinkUnavailable
from cdc.json_text import read
from sinks.elasticsearch.bulk import POISON_KINDS
from sinks.elasticsearch.client import PASSING, part_of, reason_of, translated
from sinks.elasticsearch.mapping import changed_settings, flatten
from sinks.elasticsearch.owners import is_owner, owner, told
from sinks.elasticsearch.settings import Settings, Target
from sinks.elasticsearch.standing.queries import MOST, Query, settings_of

# No column is called so.
OWN = "@headwater"
# Settings of the documents' index without which a query would mean something else there, or could not be parsed.
_SAME = ("index.analysis.", "index.similarity.", "index.mapping.", "index.query.")
# An index of its documents' fields has a few of ours beside them, and of those a percolator makes some by itself.
_FIELDS, _DEFAULT_FIELDS, _OURS = "index.mapping.total_fields.limit", 1_000, 20
BULK = 500
# Of an item of a bulk request: the query can't be parsed. Any other error is the server's own.
BAD_QUERY = 400
# What a query trips over in the server itself, with status 500: "exception" is `field_value_factor` without `missing`.
_TRIPPED = POISON_KINDS | {"exception"}
# Words in which a server says that it is a document that it can't read. The last one: a percolator writes its documents
# anew, and a number of more than 1,000 digits, or a thousand levels, then fail the whole request.
UNREAD = (
    *("mapper_parsing_exception", "document_parsing_exception", "strict_dynamic_mapping", "json_parse_exception"),
    "stream_constraints_exception",
)
_JSON = {"accept": "application/json", "content-type": "application/json"}
_SHOWN = "hits.hits._id,hits.hits.fields"


class Judged(NamedTuple):
    """What was found.

    Attributes:
        ids: of each document, the queries that it matches (``Query.id``).
        unread: documents that the server can't read by this mapping, or that are no JSON objects: they match nothing.
        failed: queries that can't be run over these documents, by their ids, and why. Then ``ids`` are not the whole:
            judge again when these are gone.
    """

    ids: list[frozenset[str]]
    unread: int
    failed: Mapping[str, str] = MappingProxyType({})


@dataclass
class Found:
    """What is found while it is looked for; as ``Judged``."""

    ids: list[set[str]]
    failed: dict[str, str] = field(default_factory=dict)


class Percolator:
    """The judge of one generation's documents.

    Args:
        client: of the sink's server.
        settings: the sink's.
        target: the view's, of the generation.
    """

    # How it judges, and what that asks of its index.
    kind = "percolator"
    own: tuple[tuple[str, Mapping[str, Any]], ...] = (("id", {"type": "keyword"}), ("query", {"type": "percolator"}))
    more: tuple[tuple[str, Any], ...] = ()

    def __init__(self, client: Elasticsearch, settings: Settings, target: Target) -> None:
        self._client, self._settings, self._target = client, settings, target
        self.index = target.percolator

    def setup(self) -> str:
        """Make the index, or give it the fields that the documents' has got since; which one it is.

        Raises:
            SinkUnavailable: transient. SinkRefused: there are no documents yet, or an index of that name is not ours.
        """
        with translated(self._settings.who, "setup of the percolator"):
            found = self._client.options(ignore_status=404).indices.get(index=self._target.concrete).body
            if self._target.concrete not in found:
                raise SinkRefused(
                    f"{self._settings.who}: there is no index {self._target.concrete} yet, whose fields a query needs",
                    fix="start `headwater run FILE` first",
                )
            documents = found[self._target.concrete]
            self._remove_other()
            if not self._client.indices.exists(index=self.index):
                self._create(documents)
            return self._checked(documents)

    def _remove_other(self) -> None:
        """An index in which the other kind has judged: the server has got a percolator, or lost it."""
        if self._kind() not in (None, self.kind):
            self._client.indices.delete(index=self.index)

    def _kind(self) -> str | None:
        """Which kind judges in the index; None if there is none of ours."""
        found = self._client.options(ignore_status=404).indices.get(index=self.index).body.get(self.index, {})
        meta = (found.get("mappings") or {}).get("_meta") or {}
        return meta.get("kind", Percolator.kind) if is_owner(self._owner, meta.get("headwater")) else None

    def _create(self, documents: Mapping[str, Any]) -> None:
        same = _same(documents)
        own = {"index.max_result_window": MOST, "index.refresh_interval": "-1", **dict(self.more)}
        mappings = {
            "dynamic": False,
            "_meta": {"headwater": self._owner, "kind": self.kind},
            "properties": {**documents["mappings"].get("properties", {}), OWN: {"properties": dict(self.own)}},
        }
        try:
            self._client.indices.create(index=self.index, mappings=mappings, settings=same | settings_of() | own)
        except BadRequestError as error:
            if "resource_already_exists_exception" in reason_of(error):
                return
            raise

    def _checked(self, documents: Mapping[str, Any]) -> str:
        found = part_of(self._client.indices.get(index=self.index), self.index)
        if not is_owner(self._owner, told(found["mappings"])):
            raise SinkRefused(
                f"{self._settings.who}: index {self.index} exists, but is none of this sink's",
                fix="give this sink another `index:` or `index_prefix:`, or delete that index",
            )
        # Those of the documents' index are raised by hand where a view got more fields. Only such may be changed.
        limits = {name: value for name, value in _same(documents).items() if _is_limit(name)}
        if changes := changed_settings(limits, flatten(found["settings"])):
            self._client.indices.put_settings(index=self.index, settings=changes)
        wanted, there = documents["mappings"].get("properties", {}), found["mappings"].get("properties", {})
        if any(there.get(name) != how for name, how in wanted.items()):
            self._client.indices.put_mapping(index=self.index, properties=dict(wanted))
        return f"{self.index}:{found['settings']['index']['uuid']}"

    def try_out(self, query: Query) -> None:
        """Have the server parse a query; it is kept, and judges nothing until it is registered.

        Raises:
            QueryRefused: it can't, with its words (terminal). SinkUnavailable: transient.
        """
        with translated(self._settings.who, "a standing query"):
            reason = self._put([query]).get(query.id)
        if reason is not None:
            raise QueryRefused(
                f"query {query.name}: {reason}",
                means="the server does not take it; nothing was changed",
                fix="a query is what stands under `query` of a search on this view's index, of fields that it has",
            )

    def follow(self, queries: Mapping[str, Query]) -> dict[str, str]:
        """Have exactly these queries here.

        Returns:
            Those that the server does not take any more, and why, by their ids.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "standing queries"):
            self._client.indices.refresh(index=self.index)
            there = self._ids()
            wanted = {query.id: query for query in queries.values()}
            said = self._put([query for name, query in wanted.items() if name not in there])
            self._delete(sorted(there - wanted.keys()))
            self._client.indices.refresh(index=self.index)
        return said

    def judge(self, documents: Sequence[bytes], asked: Collection[str] | None = None) -> Judged:
        """Which queries each document matches.

        Args:
            documents: JSON.
            asked: only these queries, by their ids; None for all.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses, for another reason than a document's.
        """
        numbers = [number for number, document in enumerate(documents) if _is_object(document)]
        found = Found([set() for _ in documents])
        with translated(self._settings.who, "judging documents by standing queries"):
            unread = self._judge(documents, numbers, asked, found) if numbers else 0
        ids = [frozenset(each) for each in found.ids]
        return Judged(ids, unread + len(documents) - len(numbers), found.failed)

    def _judge(
        self, documents: Sequence[bytes], numbers: Sequence[int], asked: Collection[str] | None, found: Found
    ) -> int:
        """Fill ``found``; a document that can't be read is found by halves, and counted."""
        some = [documents[number] for number in numbers]
        try:
            answer = self._ask(some, asked)
        except ApiError as error:
            if not may_be_a_querys(error.meta.status, _told(error)):
                raise
            if not any(word in str(error.body) for word in UNREAD):
                if not (failing := self._failing(some, asked)):
                    raise  # it has passed
                found.failed |= failing
                return 0
            if len(numbers) == 1:
                return 1
            middle = len(numbers) // 2
            halves = (numbers[:middle], numbers[middle:])
            return sum(self._judge(documents, half, asked, found) for half in halves)
        for hit in answer.get("hits", {}).get("hits", ()):
            for slot in hit["fields"]["_percolator_document_slot"]:
                found.ids[numbers[slot]].add(hit["_id"])
        return 0

    def _failing(self, documents: Sequence[bytes], asked: Collection[str] | None) -> dict[str, str]:
        """Which queries can't be run over some documents, and why: one of them fails the request for all."""
        self._ask(documents, ())  # raises what is refused whatever is asked, like an index that was closed
        return self._halved(documents, sorted(self._ids() if asked is None else asked))

    def _halved(self, documents: Sequence[bytes], ids: Sequence[str]) -> dict[str, str]:
        try:
            self._ask(documents, ids)
        except ApiError as error:
            if not may_be_a_querys(error.meta.status, _told(error)):
                raise
            if len(ids) == 1:
                return {ids[0]: words(inner(_told(error)))}
            middle = len(ids) // 2
            return self._halved(documents, ids[:middle]) | self._halved(documents, ids[middle:])
        return {}

    def _ask(self, documents: Sequence[bytes], asked: Collection[str] | None) -> dict[str, Any]:
        judge = {"percolate": {"field": f"{OWN}.query", "documents": [orjson.Fragment(one) for one in documents]}}
        ids = [] if asked is None else [{"terms": {f"{OWN}.id": sorted(asked)}}]
        body = {
            "size": MOST,
            "_source": False,
            "sort": ["_doc"],  # no score is worked out
            "track_total_hits": False,
            "query": {"bool": {"filter": [*ids, judge]}},
        }
        params = {"filter_path": _SHOWN, "allow_partial_search_results": "false"}
        path = f"/{self.index}/_search"
        said: dict[str, Any] = self._client.perform_request("POST", path, params=params, headers=_JSON, body=body).body
        return said

    def _put(self, queries: Sequence[Query]) -> dict[str, str]:
        """Add queries; why some are not taken, by their ids. What says nothing of a query, like an index that may not
        be written to because a disk is full, is no reason but an error.
        """
        said: dict[str, str] = {}
        for part in parts(queries):
            lines: list[Any] = []  # as they go over the wire
            for one in part:
                own = {"id": one.id, "query": orjson.Fragment(one.query)}
                lines += (orjson.dumps({"index": {"_id": one.id}}), orjson.dumps({OWN: own}))
            for item in self._client.bulk(index=self.index, operations=lines, require_alias=False).body["items"]:
                told = item["index"]
                if "error" in told and told["status"] != BAD_QUERY:
                    raise self._not_done(told)
                if "error" in told:
                    said[told["_id"]] = words(told["error"])
        return said

    def _delete(self, ids: Sequence[str]) -> None:
        for part in parts(ids):
            self._client.bulk(index=self.index, operations=[{"delete": {"_id": one}} for one in part])

    def _not_done(self, told: Mapping[str, Any], done: str = "added") -> SinkUnavailable | SinkRefused:
        what = f"{self._settings.who}: a standing query could not be {done}: {words(told['error'])}"
        if told["status"] in PASSING or told["error"].get("type") == "cluster_block_exception":
            return SinkUnavailable(what, fix="wait, or make room on its disks; then it is done again")
        return SinkRefused(what, means="this says nothing of the query itself")

    def _ids(self) -> set[str]:
        found: set[str] = set()
        after: list[Any] | None = None
        while True:
            answer = self._client.search(
                index=self.index,
                size=10_000,
                source=False,
                query={"exists": {"field": f"{OWN}.id"}},
                sort=[{f"{OWN}.id": "asc"}],
                search_after=after,
                track_total_hits=False,
                allow_partial_search_results=False,
            )
            hits = part_of(answer, "hits", "hits")
            found |= {hit["_id"] for hit in hits}
            if len(hits) < 10_000:
                return found
            after = hits[-1]["sort"]

    @property
    def _owner(self) -> dict[str, Any]:
        return owner(self._settings, view=self._target.view, generation=self._target.generation)


def _same(documents: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the documents' index and this one have in common, with room for the fields of ours. Pure."""
    flat = flatten(documents["settings"])
    fields = int(flat.get(_FIELDS, _DEFAULT_FIELDS)) + _OURS
    return {name: value for name, value in flat.items() if name.startswith(_SAME)} | {_FIELDS: fields}


def _is_limit(name: str) -> bool:
    return name.startswith("index.mapping.") and name.endswith(".limit")


def parts(things: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """As many as go into one request."""
    return (things[start : start + BULK] for start in range(0, len(things), BULK))


def _is_object(document: bytes) -> bool:
    """Whether a document may stand in a request as it is. Postgres has JSON that ``orjson`` does not take, and a search
    finds documents with it.
    """
    try:
        return isinstance(orjson.loads(document), dict)
    except ValueError:
        pass
    try:
        return isinstance(read(document), dict)
    except ValueError:
        return False


def may_be_a_querys(status: int, error: Mapping[str, Any]) -> bool:
    """Whether one query on one document may be to blame, rather than the server as it is now. Pure."""
    return status == BAD_QUERY or (status == 500 and inner(error).get("type") in _TRIPPED)


def _told(error: ApiError) -> Mapping[str, Any]:
    told = error.body.get("error") if isinstance(error.body, dict) else None
    return told if isinstance(told, dict) else {}


def inner(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a search says of a query that it can't parse, or can't run: the cause in a shard, if it was found there."""
    shards = error.get("failed_shards") or [{}]
    found: Mapping[str, Any] = shards[0].get("reason") or (error.get("root_cause") or [error])[0]
    return found


def words(error: Mapping[str, Any]) -> str:
    """Why, as the server says it: the cause that is furthest in says most."""
    told = [f"{error.get('type')}: {error.get('reason')}"]
    while isinstance(error.get("caused_by"), dict):
        error = error["caused_by"]
        told.append(f"{error.get('type')}: {error.get('reason')}")
    return "; ".join(dict.fromkeys(told[-2:]))[:1_000]
