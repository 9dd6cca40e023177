"""Judges documents by standing queries where the server has no percolator: by searching them.

The documents of a batch go into the judge's own index, beside the queries, under a mark of their own; each query is run
over what has that mark, five hundred to a request; then they are deleted. Each version is judged, as by the percolator,
whatever the view's own index holds by then, and by the same fields and analysers. The price is a search a query and
batch: docs/standing-queries.md says how much slower that is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from elasticsearch import BadRequestError, Elasticsearch

from cdc.errors import SinkUnavailable
from sinks.elasticsearch.client import part_of, translated
from sinks.elasticsearch.standing.percolator import (
    BAD_QUERY,
    OWN,
    UNREAD,
    Found,
    Percolator,
    inner,
    may_be_a_querys,
    parts,
    words,
)
from sinks.elasticsearch.standing.queries import MOST, Query

# Documents that are judged together: each query is run once for them.
TOGETHER = 1_000
# Documents that a crash has left are removed after so long; nobody judges a batch for that time.
LEFT_SECONDS = 3_600
# Above each query: a shard that fails, or takes too long, is an error and no shorter answer.
_WHOLE = b'{"allow_partial_search_results":false}'
# A query that every document matches.
_ANY = b'{"match_all":{}}'
_BATCH, _AT = f"{OWN}.batch", f"{OWN}.at"


def has_percolator(client: Elasticsearch) -> bool:
    """Whether every node of a server has one. A server that does not let us look is taken for a whole one.

    Raises:
        what the client raises when there is no answer.
    """
    said = client.options(ignore_status=[401, 403]).nodes.info(metric="plugins", filter_path="nodes.*.modules.name")
    nodes = said.body.get("nodes", {}).values()
    return all(any("percolator" in one["name"] for one in node.get("modules", ())) for node in nodes)


class Searched(Percolator):
    """The judge of one generation's documents; arguments and verbs as ``Percolator``."""

    kind = "search"
    own = (
        ("id", {"type": "keyword"}),
        ("query", {"type": "object", "enabled": False}),
        ("batch", {"type": "keyword"}),
        ("at", {"type": "long"}),
    )
    # A percolator refuses a query of a field that is not there; a search would find nothing by it, and say nothing.
    more = (("index.query.parse.allow_unmapped_fields", False),)

    # Those that stand, of ``follow``: nobody judges before it.
    _known: Mapping[str, bytes]

    def setup(self) -> str:
        """See ``Percolator``; documents that were left by a crash go."""
        made = super().setup()
        left = {"range": {_AT: {"lt": int(time.time()) - LEFT_SECONDS}}}
        with translated(self._settings.who, "setup of standing queries"):
            # A minimal server has no _delete_by_query either.
            found = self._client.search(index=self.index, query=left, size=MOST // 5, source=False)
            self._delete([hit["_id"] for hit in part_of(found, "hits", "hits")])
        return made

    def there(self) -> bool:
        """Whether documents are judged in this way: its index is there, and ours.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "looking for documents that were laid out to be judged"):
            return self._kind() == self.kind

    def count(self) -> int:
        """How many documents are laid out now: to be judged, or left by a crash.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "counting documents that were laid out to be judged"):
            self._client.indices.refresh(index=self.index)
            return int(part_of(self._client.count(index=self.index, query={"exists": {"field": _BATCH}}), "count"))

    def laid_out(self) -> list[str]:
        """The marks of documents that are laid out now.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        marks: list[str] = []
        with translated(self._settings.who, "looking for documents that were laid out to be judged"):
            self._client.indices.refresh(index=self.index)
            while True:
                answer = self._client.search(
                    index=self.index,
                    size=TOGETHER,
                    source=False,
                    query={"exists": {"field": _BATCH}},
                    sort=[{_BATCH: "asc"}],
                    search_after=marks[-1:] or None,  # the rest of those with the last mark is passed over
                    track_total_hits=False,
                    allow_partial_search_results=False,
                )
                hits = part_of(answer, "hits", "hits")
                if not hits:
                    return marks
                marks += dict.fromkeys(hit["sort"][0] for hit in hits)

    def remove(self, marks: Sequence[str]) -> None:
        """Delete the documents that bear these marks; whoever still judges them finds nothing.

        Raises:
            SinkUnavailable: transient. SinkRefused: the server refuses.
        """
        with translated(self._settings.who, "removing documents that were laid out to be judged"):
            for mark in marks:
                ids = self._of_mark(mark)
                self._delete(ids)
                self._client.indices.refresh(index=self.index)
                if self._of_mark(mark):
                    raise SinkUnavailable(
                        f"{self._settings.who}: documents in {self.index} can't be deleted",
                        means="the server refuses to write there, as it does while a disk is nearly full",
                        fix="make room on its disks, and look at the index's `blocks`; then the same again",
                    )

    def _of_mark(self, mark: str) -> list[str]:
        query = {"term": {_BATCH: mark}}
        found = self._client.search(
            index=self.index, query=query, size=TOGETHER, source=False, allow_partial_search_results=False
        )
        return [hit["_id"] for hit in part_of(found, "hits", "hits")]

    def follow(self, queries: Mapping[str, Query]) -> dict[str, str]:
        """See ``Percolator``."""
        said = super().follow(queries)
        self._known = {one.id: one.query for one in queries.values() if one.id not in said}
        return said

    def _put(self, queries: Sequence[Query]) -> dict[str, str]:
        said = dict[str, str]()
        for part in parts(queries):
            said |= self._tried(part)
        super()._put([one for one in queries if one.id not in said])
        return said

    def _tried(self, queries: Sequence[Query]) -> dict[str, str]:
        """Which of some queries can't be run, and why; by halves, where one of them spoils the whole request."""
        try:
            answers = self._search([one.query for one in queries], size=0)
        except BadRequestError as error:
            if len(queries) == 1:
                return {queries[0].id: words(inner(error.body.get("error", {})))}
            middle = len(queries) // 2
            return self._tried(queries[:middle]) | self._tried(queries[middle:])
        said = {}
        for one, answer in zip(queries, answers, strict=True):
            if "error" in answer:
                if answer["status"] != BAD_QUERY:
                    raise self._not_done(answer)
                said[one.id] = words(inner(answer["error"]))
        return said

    def _judge(
        self, documents: Sequence[bytes], numbers: Sequence[int], asked: Collection[str] | None, found: Found
    ) -> int:
        wanted = [(name, query) for name, query in self._known.items() if asked is None or name in asked]
        unread = 0
        for start in range(0, len(numbers), TOGETHER):
            piece = numbers[start : start + TOGETHER]
            with self._laid_out({number: documents[number] for number in piece}) as (mark, odd):
                unread += odd
                for some in parts(wanted):
                    answers = self._search([query for _, query in some], mark, size=len(piece))
                    found.failed |= self._failed([name for name, _ in some], answers, mark)
                    for (name, _), answer in zip(some, answers, strict=True):
                        for hit in answer.get("hits", {}).get("hits", ()):
                            found.ids[int(hit["_id"].rpartition("-")[2])].add(name)
        return unread

    def _failed(self, names: Sequence[str], answers: Sequence[Mapping[str, Any]], mark: str) -> dict[str, str]:
        """Which queries could not be run over the documents with a mark, and why: an error is no answer.

        Raises:
            SinkUnavailable, SinkRefused: it was no query's fault.
        """
        failed = {name: answer for name, answer in zip(names, answers, strict=True) if "error" in answer}
        others = [one for one in failed.values() if not may_be_a_querys(one["status"], one["error"])]
        if failed and not others:  # what is refused whatever is asked, like an index that was closed?
            others = [answer for answer in self._search([_ANY], mark, size=0) if "error" in answer]
        if others:
            raise self._not_done(others[0], "run")
        return {name: words(inner(answer["error"])) for name, answer in failed.items()}

    @contextmanager
    def _laid_out(self, documents: Mapping[int, bytes]) -> Iterator[tuple[str, int]]:
        """Documents in the index as long as they are looked at; their mark, and how many could not be read."""
        mark, odd = secrets.token_hex(8), 0
        lines: list[Any] = []  # as they go over the wire
        for number, document in documents.items():
            lines += (orjson.dumps({"index": {"_id": f"{mark}-{number}"}}), _marked(document, mark))
        try:
            done = self._client.bulk(index=self.index, operations=lines, refresh=True, require_alias=False).body
            for told in (item["index"] for item in done["items"]):
                if "error" in told:
                    if not any(word in str(told["error"]) for word in UNREAD):
                        raise self._not_done(told)
                    odd += 1
            yield mark, odd
        finally:
            self._delete([f"{mark}-{number}" for number in documents])

    def _search(self, queries: Sequence[bytes], mark: str = "", *, size: int) -> list[dict[str, Any]]:
        """Each query over the documents with a mark."""
        lines: list[Any] = []  # as they go over the wire
        for query in queries:
            both = [{"term": {_BATCH: mark}}, orjson.Fragment(query)]
            body = {"size": size, "_source": False, "sort": ["_doc"], "track_total_hits": False}
            lines += (_WHOLE, orjson.dumps({**body, "query": {"bool": {"filter": both}}}))
        shown = "responses.hits.hits._id,responses.error,responses.status"
        said = self._client.msearch(index=self.index, searches=lines, filter_path=shown)
        found: list[dict[str, Any]] = said.body["responses"]
        return found


def _marked(document: bytes, mark: str) -> bytes:
    """A document with its mark, its own numbers as they are."""
    own, inner = orjson.dumps({OWN: {"batch": mark, "at": int(time.time())}}), document.strip()[1:].lstrip()
    return own[:-1] + (b"}" if inner == b"}" else b"," + inner)
