"""The write stage: entries go to the sink in batches, every one is answered for, and a summary comes back.

Runs inside ``mapInArrow`` on executors. A task's last act is its summary: Spark commits the offsets only when every
task has returned, so a crash anywhere replays the batch, and versions make the replay change nothing.
"""

from __future__ import annotations

import gc
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from itertools import chain

import pyarrow as pa

from cdc.letters.deadletter import DeadLetter
from cdc.log import letters as deadletters
from cdc.view import merge_fields
from sinks.awake import Awake
from sinks.contract import Answer, Item, Outcome, Sink
from sinks.factory import open_sink
from sinks.retry import repeats
from spark.behind import Behind
from spark.ending import end_task
from spark.reading.computed import Failure, Results
from spark.reading.entries import Decoded, Entry, decode_batches, entries_in
from spark.reading.spec import FlowSpec, unpack

# As an entry's offset: its document was never written, so nothing need be deleted if the view's condition is not met.
NEW = -2

SUMMARY = pa.schema(
    [
        ("view", pa.string()),
        ("records", pa.int64()),
        ("written", pa.int64()),
        ("stale", pa.int64()),
        ("deleted", pa.int64()),
        ("rejected", pa.int64()),
        ("retries", pa.int64()),
        ("sink_us", pa.int64()),
        ("position", pa.int64()),
        ("ts_ms", pa.int64()),
    ]
)
SUMMARY_DDL = (
    "view string, records bigint, written bigint, stale bigint, deleted bigint, rejected bigint, "
    "retries bigint, sink_us bigint, position bigint, ts_ms bigint"
)


@lru_cache(maxsize=8)
def _sink(packed: bytes) -> Sink:
    """The worker's open sink: connections live as long as the worker, across batches."""
    # Rows and documents hold no cycles. At Python's own thresholds looking for some took a sixth of a worker's time.
    gc.set_threshold(50_000, 50, 1000)
    return open_sink(dict(unpack(packed).sink_config))


def apply_records(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Whole way of a flow without Spark SQL: Kafka records in, summary out (a ``mapInArrow`` function)."""
    spec = unpack(packed)
    yield from apply_decoded(packed, decode_batches(spec, batches))


def apply_entries(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Second half of a flow with Spark SQL: what it computed joins the base document, then it is written.

    Args:
        packed: the flow's spec, of one view.
        batches: the entry columns of ``spark.reading.expressions`` with the computed columns beside them.
    """
    spec = unpack(packed)
    yield from apply_decoded(packed, (from_arrow(spec, batch) for batch in batches if batch.num_rows))


def from_arrow(spec: FlowSpec, batch: pa.RecordBatch) -> Decoded:
    """Entries whose documents have the fields that Spark SQL computed; deletes of those that the condition leaves out.

    Args:
        spec: the flow's work, of one view.
        batch: as ``apply_entries`` gets it.
    """
    results = Results(spec.view, batch)
    entries, letters = [], []
    own, tally = entries_in(batch)
    for at, entry in own:
        if entry.document is None:
            entries.append(entry)
            continue
        fields = results.of(at)
        if isinstance(fields, Failure):
            letters.append(letter_of(spec, entry, fields.reason))
        if fields is None or isinstance(fields, Failure):
            # What was there is no longer true; where an expression has failed, nobody knows what is.
            if entry.offset != NEW:
                entries.append(entry._replace(document=None))
        else:
            entries.append(entry._replace(document=merge_fields(entry.document, fields)) if fields else entry)
    return Decoded(entries, letters, *tally)


def apply_decoded(packed: bytes, decoded: Iterable[Decoded]) -> Iterator[pa.RecordBatch]:
    """Write entries as they come, send the dead letters, and end with the summary.

    A batch is written while the next one is made; all are answered for before the summary.
    """
    spec = unpack(packed)
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    written: dict[str, Counter[str]] = defaultdict(Counter)  # the writing thread's own
    writes: Behind[list[DeadLetter]] = Behind()
    awake = Awake(0.0 if spec.row_store else spec.away_seconds)  # steps in a row store are watched there
    awake.begin()
    held = repeats()  # a worker has one task at a time
    try:
        for batch in decoded:
            awake.check()
            totals[""]["records"] += batch.records
            totals[""]["rejected"] += len(batch.letters) + batch.sent
            if batch.entries:
                writes.submit(partial(_write, _sink(packed), awake, spec, batch.entries, written))
            deadletters.send(spec.dead_letters, [*batch.letters, *chain(*writes.ended())])
        deadletters.send(spec.dead_letters, list(chain(*writes.finish())))
        end_task(spec, packed)
        totals[""]["retries"] += repeats() - held
    finally:
        writes.abandon()
    yield _summary(totals | written)


def _write(
    sink: Sink, awake: Awake, spec: FlowSpec, entries: list[Entry], totals: dict[str, Counter[str]]
) -> list[DeadLetter]:
    by_view: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_view[entry.view].append(entry)
    letters: list[DeadLetter] = []
    for view, group in by_view.items():
        awake.check()
        items, began = [Item(entry.id, entry.version, entry.document) for entry in group], time.perf_counter_ns()
        answers = sink.write(view, items)
        totals[view]["sink_us"] += (time.perf_counter_ns() - began) // 1000
        letters += _account(spec, group, answers, totals[view])
    return letters


def _account(spec: FlowSpec, group: list[Entry], answers: list[Answer], count: Counter[str]) -> list[DeadLetter]:
    letters = []
    position, ts_ms = count["position"], count["ts_ms"]
    for entry, answer in zip(group, answers, strict=True):
        if answer.outcome is Outcome.REJECTED:
            count["rejected"] += 1
            letters.append(letter_of(spec, entry, answer.reason or "rejected without a reason"))
        elif answer.outcome is Outcome.STALE:
            count["stale"] += 1
        else:
            count["deleted" if entry.document is None else "written"] += 1
        position, ts_ms = max(position, entry.version), max(ts_ms, entry.ts_ms)
    count["position"], count["ts_ms"] = position, ts_ms
    return letters


def letter_of(spec: FlowSpec, entry: Entry, reason: str) -> DeadLetter:
    """The dead letter of an entry. Its transaction is left to who needs it: the record is in the log, and not here."""
    return DeadLetter(
        sink=spec.sink,
        view=entry.view,
        key=entry.id,
        version=entry.version,
        reason=reason,
        document=entry.document,
        topic=entry.topic,
        partition=entry.partition,
        offset=entry.offset,
        at_ms=int(time.time() * 1000),
        generation=spec.generation,
        deleting=entry.document is None,
    )


def _summary(totals: dict[str, Counter[str]]) -> pa.RecordBatch:
    rows = [{"view": view, **{name: count[name] for name in SUMMARY.names[1:]}} for view, count in totals.items()]
    return pa.RecordBatch.from_pylist(rows, schema=SUMMARY)
