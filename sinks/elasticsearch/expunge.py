"""Deleted documents leave an index's files: Lucene keeps them in their segments until these are merged.

A merge keeps a deleted document for as long as a copy of its shard might still have to be told of it (retention leases,
which are renewed every 30 s, and the last commit), so both are waited for first. A reader that nobody refreshes,
because nobody searches, keeps the files of before. The text of documents also lies in the translog until a flush.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any

from elastic_transport import ConnectionTimeout, TransportError
from elasticsearch import ApiError, Elasticsearch

from cdc.errors import EraseUnfinished
from cdc.saying import Say
from sinks.elasticsearch.client import connect, no_copy, translated
from sinks.elasticsearch.settings import Settings, read_settings
from sinks.elasticsearch.standing.searched import Searched
from sinks.lasting import SAY_SECONDS, Lasting

# For the time of it: segments with a single deleted document are merged as well.
FOR_THE_MOMENT = {"index.merge.policy.expunge_deletes_allowed": "0"}
LOOK_SECONDS = 0.5
# A request for merges; the connection of one that takes longer may be one that something between has forgotten.
MERGE_SECONDS = 3600.0
# (shard, copy, segment)
Segments = set[tuple[str, str, str]]
# Shard -> number of the newest operation that any copy has.
Marks = Mapping[str, int]


class Expunger:
    """Looks into indices of one sink, and has them merged.

    Args:
        config: plain data, of ``sinks.configure``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._settings: Settings = read_settings(config)
        self._client: Elasticsearch = connect(self._settings)

    def close(self) -> None:
        """Give connections back."""
        self._client.close()

    @contextmanager
    def _asking(self, doing: str) -> Iterator[Elasticsearch]:
        with translated(self._settings.who, doing):
            yield self._client

    def indices(self, view: str) -> list[str]:
        """Names of a view's indices, of which not all need be there: first that of its documents; that of its fences,
        which holds keys and versions; that in which standing queries judge documents."""
        target = self._settings.targets[view]
        return [target.concrete, target.fences, target.percolator]

    def judge(self, view: str) -> Searched | None:
        """Who lays versions of a view's documents out in an index, to judge them by standing queries; None if nobody
        does.

        Raises:
            SinkUnavailable, SinkRefused: no answer, or rights are missing.
        """
        found = Searched(self._client, self._settings, self._settings.targets[view])
        return found if found.there() else None

    def deleted(self, index: str) -> int | None:
        """How many deleted documents an index's files hold, of all copies; None if there is no such index.

        Raises:
            SinkUnavailable: no answer, or a shard is away (transient). SinkRefused: rights are missing.
        """
        with self._asking("looking for deleted documents") as client:
            # Else it is told what was there when somebody searched last.
            client.options(ignore_status=404).indices.refresh(index=index)
            found = client.options(ignore_status=404).indices.stats(index=index, metric="docs", level="shards").body
            if "error" in found:
                return None
            _refuse_missing(client, index, found["indices"].get(index, {"shards": {}})["shards"])
        return int(found["_all"]["total"]["docs"].get("deleted", 0))

    def were(self, index: str) -> dict[str, str | None]:
        """The settings of ``FOR_THE_MOMENT`` as they are; None for the server's default."""
        with self._asking("reading settings") as client:
            found = client.indices.get_settings(index=index, flat_settings=True).body
        own: Mapping[str, Any] = next(iter(found.values()))["settings"]
        return {name: None if name not in own else str(own[name]) for name in FOR_THE_MOMENT}

    def put(self, index: str, settings: Mapping[str, str | None]) -> None:
        """Set settings of an index; nothing happens when it is gone."""
        with self._asking("changing settings") as client:
            client.options(ignore_status=404).indices.put_settings(index=index, settings=dict(settings))

    def written(self, index: str) -> Marks:
        """Make all that is deleted by now durable; what ``expunge`` has to know.

        Called for many indices first, it makes their leases come on at one time.

        Raises:
            SinkUnavailable, SinkRefused: no answer, or rights are missing.
        """
        with self._asking("flushing an index") as client:
            _flush(client, index)
            return _written(client, index)

    def expunge(self, index: str, marks: Marks, say: Say, seconds: float) -> None:
        """Have every document that was deleted when ``marks`` were made leave the index's files.

        Args:
            index: its name; ``FOR_THE_MOMENT`` is set.
            marks: of ``written``.
            say: told a line now and then.
            seconds: for how long at the most without any progress: an index that is large takes what it takes.

        Raises:
            EraseUnfinished: some are left, and they don't become fewer (transient).
            SinkUnavailable, SinkRefused: no answer, or rights are missing.
        """
        with self._asking("removing deleted documents") as client:
            leases = Lasting(seconds, say)
            while count := _leased(client, index, marks):
                self._check(leases.late(count, f"index {index}: waiting for its shards' copies"), index, seconds)
                time.sleep(LOOK_SECONDS)
            # Only now: a merge of before may have taken a document along that had to be kept then.
            _flush(client, index)
            merges, lasting = _Merges(client, index), Lasting(seconds, say)
            while count := merges.left():
                words = f"index {index}: waiting for merges, {count} segments are left"
                self._check(lasting.late(object() if merges.going() else count, words), index, seconds)
                time.sleep(LOOK_SECONDS)

    def _check(self, late: bool, index: str, seconds: float) -> None:
        if late:
            raise EraseUnfinished(
                f"{self._settings.who}: index {index} holds deleted documents, and none has gone for {seconds:.0f} s",
                means="a copy of a shard that is away, or a reader (a scroll, a point in time), holds on to them",
                fix="`GET /_cat/shards` shows copies that are away; with them back the same again goes on",
            )


class _Merges:
    """Merges of the segments of an index that have deleted documents now.

    One of a single large segment, or of several side by side, may take longer than any wait for it: so it is asked for
    in a thread, which nobody has to wait for, and by one request at a time: the next would rewrite all that has been
    deleted meanwhile.
    """

    def __init__(self, client: Elasticsearch, index: str) -> None:
        self._client, self._index = client, index
        self._before = _unclean(client, index)
        self._asked: Future[None] | None = None

    def left(self) -> int:
        """How many of the segments are still there; has them merged."""
        if self._before & _unclean(self._client, self._index):
            self._merge()
            _flush(self._client, self._index)
        return len(self._before & _unclean(self._client, self._index))

    def going(self) -> bool:
        """Whether the server is at it."""
        if self._asked is None:
            return False
        found = self._client.indices.stats(index=self._index, metric="merge").body
        return int(found["_all"]["total"].get("merges", {}).get("current", 0)) > 0

    def _merge(self) -> None:
        if self._asked is None:
            self._asked = Future()
            threading.Thread(target=self._ask, args=(self._asked,), name="merge", daemon=True).start()
        if wait([self._asked], SAY_SECONDS).done:
            asked, self._asked = self._asked, None
            asked.result()

    def _ask(self, asked: Future[None]) -> None:
        try:
            # One that takes longer than that goes on without us.
            with suppress(ConnectionTimeout):
                patient = self._client.options(request_timeout=MERGE_SECONDS)
                patient.indices.forcemerge(index=self._index, only_expunge_deletes=True)
        except (ApiError, TransportError) as error:
            asked.set_exception(error)
        else:
            asked.set_result(None)


def _flush(client: Elasticsearch, index: str) -> None:
    """What was written becomes durable, and readers see it: they let go of the files of before."""
    client.indices.flush(index=index, force=True, wait_if_ongoing=True)
    client.indices.refresh(index=index)


def _refuse_missing(client: Elasticsearch, index: str, shards: Mapping[str, Any]) -> None:
    """Of a shard that is on no node nothing is told, as if it held nothing."""
    settings = client.indices.get_settings(index=index, flat_settings=True).body[index]["settings"]
    if len(shards) < int(settings["index.number_of_shards"]):
        raise no_copy(index)


def _shards(client: Elasticsearch, index: str) -> list[tuple[str, Mapping[str, Any]]]:
    shards = client.indices.stats(index=index, level="shards").body["indices"].get(index, {"shards": {}})["shards"]
    _refuse_missing(client, index, shards)
    return [(number, copy) for number, copies in shards.items() for copy in copies]


def _written(client: Elasticsearch, index: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, copy in _shards(client, index):
        found[number] = max(found.get(number, -1), int(copy.get("seq_no", {}).get("max_seq_no", -1)))
    return found


def _leased(client: Elasticsearch, index: str, marks: Marks) -> int:
    """How many leases keep operations up to these."""
    return sum(
        int(lease["retaining_seq_no"]) <= marks.get(number, -1)
        for number, copy in _shards(client, index)
        for lease in copy.get("retention_leases", {}).get("leases", ())
    )


def _unclean(client: Elasticsearch, index: str) -> Segments:
    """Segments that have deleted documents, or that are gone and that a reader still holds."""
    found: Segments = set()
    shards = client.indices.segments(index=index).body["indices"].get(index, {"shards": {}})["shards"]
    _refuse_missing(client, index, shards)
    for number, copies in shards.items():
        for copy in copies:
            for name, segment in copy["segments"].items():
                if int(segment["deleted_docs"]) or not segment["committed"]:
                    found.add((number, str(copy["routing"]["node"]), name))
    return found
