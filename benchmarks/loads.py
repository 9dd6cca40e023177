"""Initial load of index and cache, and Elasticsearch's own ceiling with the same documents in the same run.

The warehouse's is in ``benchmarks.lake``, beside its own ceiling.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from elasticsearch import Elasticsearch
from elasticsearch.helpers import parallel_bulk

from benchmarks.piped import Piped
from benchmarks.pipeline import Bench
from benchmarks.results import Measurement
from cdc.log.ends import LogEnds, reached
from cdc.pipeline import ElasticsearchSink
from operations.run.engine import Engine, open_engine
from operations.state.catalogue import source_catalogue
from spark.disk.checkpoint import committed_offsets

CEILING_INDEX = "bench_ceiling"
# What was the fastest here of 1–4 threads and 500–5,000 documents.
THREADS, CHUNK = 3, 2000
ROUNDS = 2


@contextmanager
def filled(bench: Piped, sink: str) -> Iterator[tuple[Engine, float, int]]:
    """Fill one sink from offset 0 in this process: the engine, which goes on; seconds from the query's start to the
    last commit; rows.

    Starting the JVM is not in it (some 6 s, once); planning, decoding, writing and every checkpoint are.
    """
    pipeline = bench.pipeline
    bench.headwater("drop", "--sink", sink, "--yes")
    engine = open_engine(pipeline, source_catalogue(pipeline), [sink])
    log = LogEnds(pipeline.kafka.bootstrap, {})
    try:
        flows = [run.flow for run in engine.runner.running]
        goal = log.ends(sorted({topic for flow in flows for topic in flow.spec.topics}))
        began = time.perf_counter()
        statuses = engine.runner.step()
        while not all(reached(committed_offsets(flow.checkpoint)[1], goal) for flow in flows):
            statuses = engine.runner.step()
            assert not engine.runner.all_failed, statuses
            time.sleep(0.05)
        seconds = time.perf_counter() - began
        # Spark reports a batch a moment after its commit.
        while not all(
            status.batch_id >= committed_offsets(flow.checkpoint)[0]
            for status, flow in zip(statuses, flows, strict=True)
        ):
            time.sleep(0.05)
            statuses = engine.runner.step()
        yield engine, seconds, sum(status.records for status in statuses)
    finally:
        log.close()
        engine.close()


def load_seconds(bench: Piped, sink: str) -> tuple[float, int]:
    """Seconds and rows of ``filled``, whose engine is closed."""
    with filled(bench, sink) as (_, seconds, rows):
        return seconds, rows


def documents(client: Elasticsearch, index: str) -> list[dict[str, Any]]:
    """Every document of the index that headwater filled: the ceiling is fed with exactly these."""
    from elasticsearch.helpers import scan

    return [{"_id": hit["_id"], "_source": hit["_source"]} for hit in scan(client, index=index, size=5000)]


def ceiling_seconds(client: Elasticsearch, like: str, docs: list[dict[str, Any]]) -> float:
    """``parallel_bulk`` of the same documents into an empty index with the same mapping."""
    client.indices.delete(index=CEILING_INDEX, ignore_unavailable=True)
    concrete = next(iter(client.indices.get_alias(name=like).body))
    mapping = dict(client.indices.get_mapping(index=concrete).body[concrete]["mappings"])
    mapping.pop("_meta", None)
    client.indices.create(index=CEILING_INDEX, mappings=mapping)
    began = time.perf_counter()
    actions: Iterable[Any] = parallel_bulk(client, docs, index=CEILING_INDEX, thread_count=THREADS, chunk_size=CHUNK)
    deque(actions, maxlen=0)
    return time.perf_counter() - began


def beside_ceiling(bench: Piped, client: Elasticsearch, name: str) -> Measurement:
    """The search sink's load in turn with its server's ceiling, because a shared machine drifts."""
    print("index: a first load to warm up both sides", flush=True)
    load_seconds(bench, "search")
    client.indices.refresh(index="bench_flight")
    docs = documents(client, "bench_flight")
    ours, raw = [], []
    for _ in range(ROUNDS):
        raw.append(len(docs) / ceiling_seconds(client, "bench_flight", docs))
        seconds, rows = load_seconds(bench, "search")
        ours.append(rows / seconds)
        print(f"index: {ours[-1]:,.0f} rows/s, raw parallel_bulk {raw[-1]:,.0f}", flush=True)
    client.indices.delete(index=CEILING_INDEX, ignore_unavailable=True)
    mean, ceiling = sum(ours) / ROUNDS, sum(raw) / ROUNDS
    return Measurement(name, mean, "rows/s", len(docs), "parallel_bulk", ceiling, ratio=mean / ceiling)


def measure(bench: Bench) -> list[Measurement]:
    """Both loads."""
    sink = bench.pipeline.sinks["search"]
    assert isinstance(sink, ElasticsearchSink)
    with Elasticsearch(sink.url, request_timeout=120) as client:
        index = beside_ceiling(bench, client, "index_load_vs_bulk_ceiling")
    seconds, rows = load_seconds(bench, "cache")
    return [index, Measurement("cache_load_rows_s", rows / seconds, "rows/s", rows)]
