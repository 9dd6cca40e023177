"""``headwater verify --repair``: the documents that differ are made anew from where documents come from, and no others.

A view of one table: its rows' newest records are read from the log again. A joined view: its documents are put together
again from the row store, under raised versions. The truth that verification computes is never written: it is the judge,
not the author. docs/decisions/verify.md says why that is safe beside a running `headwater run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from cdc.join.view import JoinedView
from cdc.keys import document_id, is_stray, split_id
from cdc.letters.words import REFUSED
from cdc.records.position import MAX_EPOCH, MAX_LSN, pack
from cdc.stateful import StatefulView
from cdc.types import merge_fields
from connectors.marker_watch import read_snapshot_lsn
from operations.holding import Holding, Holds
from operations.opened import Opened
from operations.records.newest import newest_records
from operations.rowstore import row_store_settings
from operations.run.flows import reading, spec_of
from operations.state.pausing import refuse_paused
from operations.verify.buckets import Keys
from operations.verify.comparison import unmarked
from operations.verify.repair.work import Refused, Repair
from operations.verify.settle import Settler
from sinks.contract import MAX_VERSION, Answer, Item, Outcome, Sink
from spark.arrow import map_in_arrow
from spark.flow import plan_flows
from spark.join import health
from spark.join.engine import Joiner
from spark.join.stage import entries_of, open_store
from spark.reading.computed import Failure, Results
from spark.reading.entries import Decoded, Entry
from spark.reading.expressions import compute, entries_with_rows, entry_batch, entry_schema, without_tallies
from spark.reading.record import batch_of
from truth.rows import snapshot, wal_position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.catalogue import Catalogue

# Documents repaired at once.
PAGE = 2_000
# LSNs are multiples of eight: of these last three bits of a position no change of the source ever makes use. A version
# that differs in them only is newer than the position it was made of, and older than every later one.
ROOM = 7


def repair(
    build: Opened, catalogue: Catalogue, settler: Settler, keys: Keys, spark: SparkSession, *, caught_up: bool
) -> Refused:
    """Make differing documents anew.

    Args:
        build: the generation.
        catalogue: the source's tables.
        settler: of the view.
        keys: what differs, marked.
        spark: a session; for a warehouse one that knows its catalogue.
        caught_up: whether the differences are proved.

    Returns:
        what could not be done; whether the rest is right now, the caller looks.

    Raises:
        StateError: the sink was paused meanwhile (terminal); what was written before stays.
        HeadwaterError: a server does not answer, or another process has taken the generation over.
    """
    name = build.sink
    if not caught_up:
        why = "the sink was not seen to catch up, so its change may be on the way: start `headwater run FILE` first"
        return Refused(why)
    if isinstance(settler.view, StatefulView):
        return Refused(f"its document is made of all events of the log: `headwater rebuild FILE {name} --auto`")
    warehouse = build.warehouse
    joined = isinstance(settler.view, JoinedView)
    again = f"`headwater resnapshot FILE {settler.view.table.qualified}`"
    refused = Refused(
        f"the row store's rows give another document than Postgres: `headwater rebuild FILE {name}`; if that changes "
        f"nothing, the log lacks changes: {again}"
        if joined
        else f"the log has another row than Postgres: {again}"
    )
    work = replace(work_of(build, catalogue, settler.holding, spark, refused), seen=settler.seen)
    method: Callable[[Repair, Mapping[str, str]], None] = _rows
    if joined and warehouse:
        method = partial(_joined_rows, joiner_of(work))
    elif joined:
        method = partial(_joined, joiner_of(work))
    elif warehouse:
        from operations.verify.repair.warehouse import repair_rows

        method = repair_rows
    for page in keys.pages(PAGE):
        # A repair has no lease that a pause could wait for, and may take minutes.
        refuse_paused(build.pipeline, [name], "no more of it was repaired")
        kinds = {key: kind for kind, key in map(unmarked, page)}
        method(work, kinds)
    return refused


def work_of(
    build: Opened, catalogue: Catalogue, holding: Holding, spark: SparkSession | None, refused: Refused
) -> Repair:
    """What making documents of a view anew needs.

    Args:
        build: the generation.
        catalogue: the source's tables.
        holding: of the view.
        spark: a session, if one is needed; for a warehouse one that knows its catalogue.
        refused: told what can't be made.
    """
    # Without Spark SQL nobody asks the session for anything.
    spec = spec_of(build, catalogue, cast("SparkSession", spark), read_snapshot_lsn(build.pipeline), holding.view.name)
    part = build.part
    flows = plan_flows(spec, reading(build.pipeline, part), build.generation.folder, separate=build.warehouse)
    flow = next(flow for flow in flows if holding.view.name in flow.spec.views)
    return Repair(build, flow, holding, spark, refused)


# -- views of one table ------------------------------------------------------------------------------------------------


def _rows(work: Repair, kinds: Mapping[str, str]) -> None:
    """The newest record of each key is decoded and written again, at its own position or just above it."""
    newest = newest_records(work.build.pipeline, work.flow.spec, work.view, list(kinds))
    kinds = work.still(kinds, newest)
    if not kinds:
        return
    held = reachable(work, work.holding.get(list(kinds)))
    items, floors = {}, {}
    documents = with_fields(work, [found.record for found in newest.values()]) if work.view.needs_spark else None
    for key, kind in kinds.items():
        found = newest.get(key)
        document = None if found is None else found.entry.document if documents is None else documents.get(key)
        if kind == "extra":
            # Nobody knows the row: it goes at the version at which it is there.
            document, version = None, max(held[key].version if key in held else 0, found.entry.version if found else 0)
        elif found is None or document is None:
            table = work.view.table.qualified
            work.refused.add(key, f"the log does not have this row: `headwater resnapshot FILE {table}`")
            continue
        else:
            version = found.entry.version
        items[key], floors[key] = Item(key, version, document), version
    tops = {key: version | ROOM for key, version in floors.items()}
    for key, answer in write_above(work.sink, work.view.name, items, tops).items():
        work.refused.add(key, _why(work, answer, held[key].version if key in held else None))


def reachable(work: Repair, held: dict[str, Holds]) -> dict[str, Holds]:
    """What is held under versions that a change can reach; what is not is forgotten by the sink, and can be written.

    A version that can't be read, or that lies above every position that the source has come to, was written by
    somebody else; each later change of that row would be taken for an old one. Call it after the look at the sink.
    """
    spec = work.flow.spec
    with snapshot(work.build.pipeline.source) as connection:
        top = pack(spec.epoch, wal_position(connection)) | ROOM
    if isinstance(work.view, JoinedView):  # its versions are counted on from positions, under an epoch of their own
        top = pack(min(spec.epoch + health.known(work.flow).epoch + 1, MAX_EPOCH - 1), MAX_LSN)
    odd = [key for key, holds in held.items() if not 0 <= holds.version <= top]
    if odd:
        work.sink.forget(work.view.name, odd)
    return {key: holds for key, holds in held.items() if key not in set(odd)}


def write_above(sink: Sink, target: str, items: Mapping[str, Item], tops: Mapping[str, int]) -> dict[str, Answer]:
    """Write items; those that the sink holds newer are written a version higher, up to a limit for each.

    Args:
        sink: the sink.
        target: the view's name.
        items: key -> what to write.
        tops: key -> the highest version that may be used.

    Returns:
        key -> answer, of those that were not written.
    """
    refused: dict[str, Answer] = {}
    left = dict(items)
    while left:
        tried = list(left.values())
        left = {}
        for item, answer in zip(tried, sink.write(target, tried), strict=True):
            if answer.outcome is Outcome.WRITTEN:
                continue
            if answer.outcome is Outcome.STALE and item.version < tops[item.key]:
                left[item.key] = item._replace(version=item.version + 1)
            else:
                refused[item.key] = answer
    return refused


def _why(work: Repair, answer: Answer, version: int | None) -> str:
    if answer.outcome is Outcome.REJECTED:
        return f"{REFUSED}{answer.reason}"
    held = "" if version is None else f" (it holds {version})"
    return (
        f"the sink has version numbers that no change of the source gave{held}: "
        f"`headwater rebuild FILE {work.build.sink}`"
    )


def with_fields(work: Repair, records: Sequence[Any], failed: dict[str, str] | None = None) -> dict[str, bytes | None]:
    """Documents of records with what Spark SQL computes, by the engine's own stages; ``failed`` is told id -> why."""
    frame = work.spark.createDataFrame(pa.Table.from_batches([batch_of(records)])).coalesce(1)
    typed = map_in_arrow(frame, partial(entries_with_rows, work.flow.spec.pack()), entry_schema(work.view))
    return _computed(work, without_tallies(typed), failed)


def _computed(work: Repair, typed: Any, failed: dict[str, str] | None = None) -> dict[str, bytes | None]:
    """Id -> document, from a frame of entries with their typed rows; None too where Spark SQL fails."""
    documents: dict[str, bytes | None] = {}
    own = ("id", "document")
    for batch in compute(typed, work.view).toArrow().to_batches():
        results = Results(work.view, batch)
        for at, (key, document) in enumerate(zip(*(batch.column(n).to_pylist() for n in own), strict=True)):
            fields = results.of(at) if document is not None else None
            if fields is None or isinstance(fields, Failure):
                documents[key] = None
                if isinstance(fields, Failure) and failed is not None:
                    failed[key] = fields.reason
            else:
                documents[key] = merge_fields(document, fields)
    return documents


# -- joined views ------------------------------------------------------------------------------------------------------


def joiner_of(work: Repair) -> Joiner:
    """The engine of a joined view, over its row store."""
    assert isinstance(work.view, JoinedView)
    settings = row_store_settings(work.build.pipeline, work.build.generation, work.view.name)
    store = open_store(replace(work.flow.spec, row_store=settings))
    known = health.known(work.flow)
    return Joiner(work.view, store, epoch=known.epoch, arranged=health.arranged(work.view.layout, work.flow))


def _joined(joiner: Joiner, work: Repair, kinds: Mapping[str, str]) -> None:
    """Documents are put together again under raised versions; what the row store never had is removed."""
    held = reachable(work, work.holding.get(list(kinds)))
    # What has no key of this view's form can be of no row.
    roots = {root_of(joiner.view, key): key for key in kinds if not is_stray(key)}
    strays = {key: Item(key, held[key].version, None) for key in kinds if is_stray(key) and key in held}
    write_above(work.sink, joiner.view.name, strays, {key: item.version | ROOM for key, item in strays.items()})
    made = {root_of(joiner.view, entry.id): entry for entry in made_of(joiner, work, dict.fromkeys(roots, 0))}
    stale = write_made(work, list(made.values()))
    for root, key in roots.items():
        if root in made:
            continue
        if kinds[key] != "extra":
            rebuild = f"`headwater rebuild FILE {work.build.sink}`"
            work.refused.add(key, f"the row store does not have this row: {rebuild}")
            continue
        version = held[key].version if key in held else 0
        items = {key: Item(key, version, None)}
        for refused, answer in write_above(work.sink, joiner.view.name, items, {key: version | ROOM}).items():
            work.refused.add(refused, _why(work, answer, version))
    write_higher(joiner, work, stale)


def _joined_rows(joiner: Joiner, work: Repair, kinds: Mapping[str, str]) -> None:
    """The same in a table, by one commit."""
    from operations.verify.repair.joined import repair_documents

    roots = {root_of(joiner.view, key): key for key in kinds if not is_stray(key)}
    failed: dict[str, str] = {}
    repair_documents(joiner, work, kinds, roots, failed)
    for key, why in failed.items():
        work.refused.add(key, why)


def write_higher(joiner: Joiner, work: Repair, stale: Sequence[Entry]) -> None:
    """Documents that the sink holds newer: the store's counters are raised above what it holds.

    The counters stay where they are, so that every later change is newer still.
    """
    for _ in range(ROOM):
        if not stale:
            return
        held = work.holding.get([entry.id for entry in stale])
        above = {}
        for entry in stale:
            version = max(entry.version, held[entry.id].version if entry.id in held else 0) + 1
            if version >= MAX_VERSION - ROOM:
                work.refused.add(entry.id, f"the sink holds it at version {version - 1}, and there is none above")
                continue
            above[root_of(joiner.view, entry.id)] = version
        stale = write_made(work, made_of(joiner, work, above))
    for entry in stale:
        work.refused.add(entry.id, "the sink held a newer one each time it was written: run it again")


def made_of(
    joiner: Joiner, work: Repair, roots: Mapping[str, int], failed: dict[str, str] | None = None
) -> list[Entry]:
    """Entries of roots that the row store knows, under versions that it has just raised.

    ``failed`` is told id -> why, of those without a document because Spark SQL fails for them, or can't hold them."""
    if not roots:
        return []
    # Raising the version of a root that never came would leave its counter behind for ever.
    known = joiner.assembler.read(list(roots))
    entries, unfit = entries_of(joiner, joiner.make({root: at for root, at in roots.items() if root in known}), 0)
    if failed is not None:
        failed |= {entry.id: why for entry, why in unfit}
    if not work.view.needs_spark or not entries:
        return entries
    batch = entry_batch(work.flow.spec, work.view, Decoded(entries, [], 0))
    frame = work.spark.createDataFrame(pa.Table.from_batches([batch]))
    documents = _computed(work, without_tallies(frame), failed)
    return [entry._replace(document=documents[entry.id]) for entry in entries]


def write_made(work: Repair, entries: Sequence[Entry]) -> list[Entry]:
    """Write entries; returns those that the sink holds newer."""
    stale = []
    items = [Item(entry.id, entry.version, entry.document) for entry in entries]
    for entry, answer in zip(entries, work.sink.write(work.view.name, items), strict=True):
        if answer.outcome is Outcome.STALE:
            stale.append(entry)
        elif answer.outcome is Outcome.REJECTED:
            work.refused.add(entry.id, _why(work, answer, None))
    return stale


def root_of(view: JoinedView, identity: str) -> str:
    """The root row's key of a document: another one only if ``key`` names the primary key in another order."""
    if view.key == view.table.primary_key:
        return identity
    parts = split_id(identity, len(view.key))
    if len(parts) != len(view.key):
        return identity
    texts = dict(zip(view.key, parts, strict=True))
    return document_id([texts[name] for name in view.table.primary_key])
