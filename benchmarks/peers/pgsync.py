"""Measure pgsync 7.3 on the flights (by hand: ``python -m benchmarks.peers``).

``measure`` does it all. To let somebody else keep the same documents of the same rows in the same run, put the parts
together: ``copied`` (copies.py) makes the database, ``running`` the pgsync on it, ``build`` here and ``updates``,
``fanout``, ``idle`` and ``wrong`` of the ``Workload`` measure. Why it is measured so: docs/decisions/peer.md.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import redis

from benchmarks.peers import environment, servers
from benchmarks.peers.copies import copied
from benchmarks.peers.daemon import OPTIONS, Pgsync
from benchmarks.peers.documents import FLIGHT_CARD, Document
from benchmarks.peers.measuring import COUNT_SECONDS, PATIENCE_SECONDS, Settings, wait_until
from benchmarks.peers.workload import Workload
from benchmarks.results import quantile
from cdc.errors import StackError
from deploy.local.endpoints import Endpoints
from deploy.local.stack import LocalStack

Progress = Callable[[str], None]
DEFAULTS = Settings()


@dataclass(frozen=True)
class Build:
    """How an empty index was filled.

    Attributes:
        documents: how many.
        bootstrap_s: seconds that pgsync's bootstrap took.
        first_write_s: seconds from the daemon's start to its first writes: Python's start, reading the schema, the
            first chunk of rows.
        last_write_s: seconds from the daemon's start until every document was there.
    """

    documents: int
    bootstrap_s: float
    first_write_s: float
    last_write_s: float

    @property
    def docs_s(self) -> float:
        """Documents a second of it all, bootstrap included."""
        return self.documents / (self.bootstrap_s + self.last_write_s)

    @property
    def daemon_docs_s(self) -> float:
        """Documents a second from the daemon's start on."""
        return self.documents / self.last_write_s


@dataclass(frozen=True)
class PeerFigures:
    """What pgsync did: documents a second, seconds from a commit to a GET that shows it, and the circumstances."""

    build_docs_s: float
    update_docs_s: float
    fanout_docs_s: float
    idle_p50_s: float
    idle_p99_s: float
    details: dict[str, Any] = field(default_factory=dict)


@contextmanager
def running(
    workload: Workload,
    stack: LocalStack,
    document: Document = FLIGHT_CARD,
    options: Mapping[str, str] = OPTIONS,
    progress: Progress = lambda line: None,
) -> Iterator[Pgsync]:
    """An Elasticsearch 7.17 and a pgsync on the workload's database, not bootstrapped yet; both gone afterwards.

    Args:
        workload: names the database.
        stack: its Postgres and the row store's Redis must be up.
        document: what is kept.
        options: pgsync's settings.
        progress: called with one line at a time.

    Raises:
        StackError: a server or pgsync's environment can't be had or started.
    """
    _need_redis(stack.endpoints)
    environment.ensure(progress)
    with (
        tempfile.TemporaryDirectory(prefix="headwater-peer-") as folder,
        servers.elasticsearch(stack.site, progress) as url,
    ):
        log = stack.site.log(f"pgsync-{document.name}")
        database = workload.settings.database
        peer = Pgsync(stack.endpoints, url, database, Path(folder), log, document, options)
        try:
            yield peer
        finally:
            try:
                peer.teardown()
            finally:
                peer.close()


def _need_redis(endpoints: Endpoints) -> None:
    client = redis.Redis.from_url(endpoints.redis_store_url)
    try:
        client.ping()
    except redis.RedisError as error:
        raise StackError(
            f"Redis at {endpoints.redis_store_url} can't be used: {error}",
            means="pgsync queues its changes there",
            fix="headwater up --only postgres,redis-store",
        ) from error
    finally:
        client.close()


def build(peer: Pgsync, workload: Workload) -> Build:
    """Bootstrap and start pgsync on an empty index; it is left running, and ready to follow changes.

    Args:
        peer: not bootstrapped, or torn down.
        workload: its database.

    Raises:
        StackError: bootstrap failed, the daemon ended, or the documents did not come.
    """
    peer.index.delete()  # what a run that was killed has left would be full at once
    workload.settle()
    wanted = workload.expected(peer.document)
    began = time.perf_counter()
    peer.bootstrap()
    started = time.perf_counter()
    peer.start()
    # Writes are counted, not documents: to count these would refresh the index again and again.
    wait_until(lambda: peer.index.writes() > 0, peer.check, COUNT_SECONDS, "pgsync's first write")
    first = time.perf_counter()
    patience = max(PATIENCE_SECONDS, wanted / 1000)
    wait_until(lambda: peer.index.writes() >= wanted, peer.check, COUNT_SECONDS, "pgsync's last write", patience)
    wait_until(lambda: peer.count() == wanted, peer.check, COUNT_SECONDS, "the last document")
    filled = Build(wanted, started - began, first - started, time.perf_counter() - started)
    wait_until(peer.follows, peer.check, COUNT_SECONDS, "pgsync's following")
    return filled


def warm_up(peer: Pgsync, workload: Workload) -> None:
    """Build once for nothing: a server that has just started compiles its code under the first documents."""
    build(peer, workload)
    peer.teardown()


def measure(
    settings: Settings = DEFAULTS, options: Mapping[str, str] = OPTIONS, progress: Progress = lambda line: None
) -> PeerFigures:
    """Everything on a copy of its own: build, updates, fan-out, idle; then every document is compared with plain SQL.

    Args:
        settings: how much is measured.
        options: pgsync's settings.
        progress: called with one line at a time.

    Raises:
        SourceError: Postgres can't be reached.
        StackError: something can't be had or started, pgsync ended, or a change did not arrive.
    """
    stack = LocalStack()
    with (
        copied(stack.endpoints, settings, progress) as workload,
        running(workload, stack, FLIGHT_CARD, options, progress) as peer,
    ):
        warm_up(peer, workload)
        return measure_on(peer, workload, progress)


def measure_on(peer: Pgsync, workload: Workload, progress: Progress = lambda line: None) -> PeerFigures:
    """The same with a pgsync and a copy that are there already; pgsync is left running."""
    load = os.getloadavg()[0]
    filled = build(peer, workload)
    progress(f"pgsync: built {filled.documents:,} documents, {filled.docs_s:,.0f}/s")
    updated = workload.updates(peer)
    progress(f"pgsync: updated {updated.documents:,} documents, {updated.docs_s:,.0f}/s")
    renamed = workload.fanout(peer)
    progress(f"pgsync: renamed the airline of {renamed.documents:,} documents, {renamed.docs_s:,.0f}/s")
    waits = workload.idle(peer)
    p50, p99 = quantile(waits, 0.5), quantile(waits, 0.99)
    progress(f"pgsync: one commit at a time, p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms")
    details = {
        "build": asdict(filled) | {"daemon_docs_s": filled.daemon_docs_s},
        "update": asdict(updated),
        "fanout": asdict(renamed),
        "idle_samples": len(waits),
        "wrong_documents": workload.wrong(peer, peer.document),
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    return PeerFigures(filled.docs_s, updated.docs_s, renamed.docs_s, p50, p99, details)


def measure_build(
    settings: Settings, document: Document, options: Mapping[str, str] = OPTIONS, progress: Progress = lambda line: None
) -> tuple[Build, int]:
    """Build any kind of document, and nothing else; with the number of documents that differ from plain SQL."""
    stack = LocalStack()
    with (
        copied(stack.endpoints, settings, progress) as workload,
        running(workload, stack, document, options, progress) as peer,
    ):
        warm_up(peer, workload)
        return build(peer, workload), workload.wrong(peer, document)
