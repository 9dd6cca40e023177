"""Avro against JSON, the same flights captured in both: size of the records, rate of decoding, commit → applied."""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.avro_text import as_text
from benchmarks.idle import WARM_UP, Probe, Watcher
from benchmarks.loads import load_seconds
from benchmarks.pipeline import TEXT, Bench
from benchmarks.results import Measurement, quantile
from cdc.log.registry import encoding_of
from cdc.records.debezium_json import Decoder
from cdc.view import View
from deploy.local.stack import LocalStack
from operations.state.catalogue import source_catalogue

COMMAND = "python -m benchmarks.run avro"
TABLE = "public.flights"
# Enough that a round takes seconds; every record's bytes are in memory.
DECODED, ROUNDS, COMMITS = 50_000, 4, 60
FORMS = ("json", "avro")

Records = list[tuple[bytes, bytes, int, int]]


class Found(NamedTuple):
    """What one format gave.

    Attributes:
        bytes_a_record: of value and key, before compression.
        value_bytes: of the value alone.
        disk_bytes: of the topic on the broker's disk, compressed, a record.
        decode_rate: events a second, from bytes to a change.
        render_rate: the same, to a document.
        load_rate: rows a second from the topic into an empty index.
        idle: sink -> seconds from commit to document.
    """

    bytes_a_record: float
    value_bytes: float
    disk_bytes: float
    decode_rate: float
    render_rate: float
    load_rate: float
    idle: dict[str, list[float]]


def measure() -> list[Measurement]:
    """Both formats, one after the other on the same machine in the same run."""
    LocalStack().up(more=["registry"])
    json, avro = (_measure(form) for form in FORMS)
    found = [
        _ratio("avro_vs_json_bytes_ratio", avro.bytes_a_record, json.bytes_a_record, "bytes a record", DECODED),
        _ratio("avro_vs_json_disk_ratio", avro.disk_bytes, json.disk_bytes, "bytes a record on disk (lz4)", DECODED),
        _ratio("avro_vs_json_rate_ratio", avro.decode_rate, json.decode_rate, "events/s", DECODED * ROUNDS),
        _ratio("avro_vs_json_render_ratio", avro.render_rate, json.render_rate, "documents/s", DECODED * ROUNDS),
        _ratio("avro_vs_json_index_load_ratio", avro.load_rate, json.load_rate, "rows/s", DECODED),
    ]
    for name, sink in (("avro_idle_applied_p50_s", "elasticsearch"), ("avro_idle_applied_p50_s/redis", "redis")):
        ours, theirs = (quantile(one.idle[sink], 0.5) for one in (avro, json))
        found.append(Measurement(name, ours, "s", COMMITS, "JSON", theirs, ours / theirs, COMMAND))
    return found


def _ratio(name: str, avro: float, json: float, unit: str, n: int) -> Measurement:
    print(f"{name}: Avro {avro:,.1f}, JSON {json:,.1f} {unit}", flush=True)
    return Measurement(name, avro / json, "ratio", n, f"JSON, {unit}", json, avro / json, COMMAND)


def _measure(form: str) -> Found:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        bench = Bench(Path(folder))
        text = TEXT.replace("FOLDER", folder)
        registry = f"\n  format: {form}\n  registry: {{url: {bench.stack.endpoints.registry_url}}}"
        bench.file.write_text(text.replace("tables: [public.flights]", "tables: [public.flights]" + registry))
        bench.headwater("apply", "--wait")
        try:
            records = _records(bench)
            topic = sum(file.stat().st_size for file in _segments(bench))
            value = sum(len(value) for _, value, *_ in records) / len(records)
            key = sum(len(key) for key, *_ in records) / len(records)
            print(f"{form}: {value:,.1f} bytes a value, {key:,.1f} a key", flush=True)
            decode, render = _rates(bench, records)
            print(f"{form}: {decode:,.0f} events/s decoded, {render:,.0f} rendered", flush=True)
            seconds, rows = load_seconds(bench, "search")
            print(f"{form}: {rows / seconds:,.0f} rows/s into an empty index", flush=True)
            with bench.following("search", "cache"), Watcher(bench) as watcher:
                probes: dict[str, Probe] = {"elasticsearch": watcher.document, "redis": watcher.cached}
                watcher.times(probes, WARM_UP)
                idle = watcher.times(probes, COMMITS)
        finally:
            bench.headwater("drop", "--topics", "--yes")
    return Found(key + value, value, topic / rows, decode, render, rows / seconds, idle)


def _segments(bench: Bench) -> list[Path]:
    return list((bench.stack.site.home / "data/kafka/logs").glob(f"{bench.pipeline.topic(TABLE)}-*/*.log"))


def _records(bench: Bench) -> Records:
    """The first records of the topic, of all partitions."""
    pipeline, found = bench.pipeline, Records()
    settings = {"group.id": "headwater-bench", "isolation.level": "read_committed"}
    consumer = Consumer({**pipeline.kafka.client(), **settings})
    try:
        topic = pipeline.topic(TABLE)
        consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in range(pipeline.kafka.partitions)])
        while len(found) < DECODED:
            for message in consumer.consume(5_000, 10):
                key, value = message.key(), message.value()
                if message.error() is None and key is not None and value is not None:
                    found.append((bytes(key), bytes(value), message.partition() or 0, message.offset() or 0))
    finally:
        consumer.close()
    return found[:DECODED]


def _rates(bench: Bench, records: Records) -> tuple[float, float]:
    """Events a second of one core to changes, and to documents; the best of some rounds, as a shared machine only ever
    takes. What Spark's virtual machine does before Python sees the events counts as well."""
    pipeline = bench.pipeline
    before, registry = 0.0, pipeline.source.reader()
    if registry is not None:
        records, before = as_text(records, registry)
        print(f"Avro made JSON at {len(records) / before:,.0f} events/s", flush=True)
    table = source_catalogue(pipeline).tables[TABLE]
    decoder = Decoder(table, encoding=encoding_of(pipeline.source.reader()))
    view, topic = View.identity(table), pipeline.topic(TABLE)
    best_decode = best_render = 0.0
    gc.collect()
    gc.freeze()
    for _ in range(ROUNDS):
        began = time.process_time()
        changes = [decoder.decode(key, value, topic, part, offset) for key, value, part, offset in records]
        best_decode = max(best_decode, len(records) / (before + time.process_time() - began))
        del changes
        began = time.process_time()
        for key, value, part, offset in records:
            view.render(decoder.decode(key, value, topic, part, offset))
        best_render = max(best_render, len(records) / (before + time.process_time() - began))
    gc.unfreeze()
    return best_decode, best_render
