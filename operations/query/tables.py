"""The warehouse's tables as readers see them, and through which part of the log each is applied."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc.errors import QueryRefused, QueryTooLarge, SinkRefused
from cdc.pipeline import IcebergSink, Pipeline
from operations.query.statement import Named
from operations.state.folder import chosen_sinks, register_of
from sinks.iceberg import catalogue as iceberg
from spark.disk.applied import applied_offsets, furthest
from spark.disk.made_of import as_defined
from spark.disk.notes import offsets_of_json
from spark.warehouse.marks import OFFSETS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

Offsets = dict[str, dict[int, int]]
# Rows of a table that is read whole into memory, because DuckDB itself can't reach its files.
MOST_ROWS = 5_000_000


@dataclass(frozen=True)
class Name:
    """A table that can be asked for.

    Attributes:
        schema: empty where the view's name alone says which is meant.
    """

    sink: str
    view: str
    schema: str = ""

    @property
    def shown(self) -> str:
        """As a statement has it."""
        return f"{self.schema}.{self.view}" if self.schema else self.view


@dataclass(frozen=True)
class Held:
    """A table at one snapshot.

    Attributes:
        name: under which it is asked for.
        generation: the one that readers see; None of a history, which belongs to the sink.
        metadata: place of the metadata file.
        snapshot: its id; None of a table that nothing was committed to yet.
        at_ms: when that was committed, epoch milliseconds.
        columns: with our own.
        applied: through which offsets, exclusive: topic -> partition -> next; None if no snapshot that is left tells.
        rows: in its files, as its snapshot counts them.
        table: as pyiceberg has it.
    """

    name: Name
    generation: int | None
    metadata: str
    snapshot: int | None
    at_ms: int | None
    columns: tuple[str, ...]
    applied: Offsets | None
    rows: int
    table: Table = field(repr=False, compare=False)


def warehouses(pipeline: Pipeline, only: Collection[str] = ()) -> dict[str, IcebergSink]:
    """The warehouse sinks to be asked.

    Raises:
        ConfigError: a name that the file does not have, or that is no warehouse's; or there is none (terminal).
    """
    parts = {name: pipeline.sinks[name] for name in chosen_sinks(pipeline, list(only))}
    found = {name: part for name, part in parts.items() if isinstance(part, IcebergSink)}
    if only and len(found) < len(parts):
        others = ", ".join(sorted(parts.keys() - found.keys()))
        raise QueryRefused(f"{others} is no warehouse", fix="only sinks of type iceberg have tables to ask")
    if not found:
        raise QueryRefused(
            f"pipeline {pipeline.name} has no warehouse", fix="give it a sink of type iceberg (docs/sinks.md)"
        )
    return found


def names(views: Mapping[str, Iterable[str]]) -> list[Name]:
    """What can be asked for: each view under its own name, and under its sink's where two sinks have it. Pure.

    Args:
        views: sink -> its views.
    """
    listed = [(sink, view) for sink, all_of in views.items() for view in sorted(all_of)]
    once = {view for _, view in listed if sum(view == other for _, other in listed) == 1}
    return [Name(sink, view, "" if view in once else sink) for sink, view in listed]


def chosen(all_of: list[Name], named: Collection[Named]) -> list[Name]:
    """Those that a statement names: DuckDB's names do not tell large letters from small ones. Pure.

    Raises:
        QueryRefused: two sinks have a view of that name, and it is not said which is meant (terminal).
    """
    found = list[Name]()
    for schema, table in sorted(named):
        same = [one for one in all_of if one.view.lower() == table.lower()]
        same = [one for one in same if one.view == table] or same
        if schema:
            found += [Name(one.sink, one.view, one.sink) for one in same if one.sink.lower() == schema.lower()]
        elif len(same) > 1 and len({one.view for one in same}) == 1:
            choices = ", ".join(f'"{one.sink}".{one.view}' for one in same)
            raise QueryRefused(
                f"several sinks have a table {table}", means="nothing was run", fix=f"say which: {choices}"
            )
        else:
            found += [one for one in same if not one.schema]
    _refuse_alike(found)
    return found


def _refuse_alike(found: Collection[Name]) -> None:
    """One of two such views would be read in the place of the other.

    Raises:
        QueryRefused: two of these have names that DuckDB can't tell apart (terminal).
    """
    seen = dict[tuple[str, str], Name]()
    for one in found:
        other = seen.setdefault((one.schema.lower(), one.view.lower()), one)
        if other != one:
            raise QueryRefused(
                f"views {other.shown} and {one.shown} differ only in large and small letters",
                means="SQL does not tell these apart; nothing was run",
                fix="ask for them one at a time, each spelled as in the pipeline file",
            )


def view_names(pipeline: Pipeline, sink: str) -> list[str]:
    """The views that the living generation of a sink keeps, as far as this machine knows."""
    from operations.generations.targets import views_of_file

    return register_of(pipeline, sink).generation().views() or views_of_file(pipeline, sink)


def held(pipeline: Pipeline, wanted: Collection[Name], *, all_there: bool = True) -> list[Held]:
    """Tables at their newest snapshots.

    Args:
        pipeline: the loaded file.
        wanted: which.
        all_there: refuse when one is not there; else it is left out.

    Raises:
        SinkRefused: there is no such table. SinkUnavailable: the catalogue does not open (transient).
        StateError: the file says another kind of sink than readers see (terminal).
    """
    found = []
    for sink in sorted({one.sink for one in wanted}):
        living = register_of(pipeline, sink).generation()
        part = as_defined(pipeline, living).sinks[sink]  # the file may name another namespace for the next one
        with iceberg.open_catalog(part, iceberg.catalog_name(sink)) as catalog:
            for name in (one for one in wanted if one.sink == sink):
                # First: what its flow says was applied is in the table that is looked at afterwards. The commits of a
                # fill of joined documents name the slice of their root alone.
                flow = applied_offsets(living.flow_folder(name.view))
                try:
                    table = iceberg.load_table(catalog, part, name.view)
                    one = held_at(name, iceberg.generation_of(table), table)
                    mine = flow if one.generation == living.number else {}
                    found.append(replace(one, applied=furthest(one.applied or {}, mine) or one.applied))
                except SinkRefused:
                    if all_there:
                        raise
    return found


def held_at(name: Name, generation: int | None, table: Table) -> Held:
    """A table at its newest snapshot. Pure."""
    newest = table.current_snapshot()
    summary = newest.summary.additional_properties if newest and newest.summary else {}
    return Held(
        name,
        generation,
        table.metadata_location,
        newest.snapshot_id if newest else None,
        newest.timestamp_ms if newest else None,
        tuple(field.name for field in table.schema().fields),
        marks(newest, {one.snapshot_id: one for one in table.metadata.snapshots}),
        int(summary.get("total-records", 0)),
        table,
    )


def is_local(place: str) -> bool:
    """Whether DuckDB reads it as a file; other places are pyiceberg's, which has the clients for them. Pure."""
    return "://" not in place


def whole(one: Held) -> pa.Table:
    """All rows of a table, deletes applied, in memory.

    Raises:
        QueryTooLarge: too many (terminal).
    """
    if one.rows > MOST_ROWS:
        raise QueryTooLarge(
            f"{one.name.shown} has {one.rows:,} rows on a server: more than {MOST_ROWS:,} are not read for a query",
            fix="ask an engine that reads there by itself: Spark, Trino, or DuckDB with its httpfs",
        )
    return one.table.scan().to_arrow()


def marks(newest: Snapshot | None, snapshots: Mapping[int, Snapshot]) -> Offsets | None:
    """Through which offsets a table is applied: what the newest of its snapshot and that one's forebears says. Pure.

    Maintenance leaves snapshots without marks, which change no row; a repair's are covered by the rows' versions; those
    of documents that a fan-out had deferred say which shards they were, and take in nothing of the log. A snapshot that
    is none of its forebears was rolled back, and says nothing.

    Returns:
        None if there are snapshots, and none that is left has any.
    """
    if newest is None:
        return {}
    found: Snapshot | None = newest
    while found is not None:
        said = found.summary.additional_properties.get(OFFSETS) if found.summary else None
        if said:
            raw = json.loads(said)
            if all(isinstance(parts, dict) for parts in raw.values()):
                return offsets_of_json(raw)
        found = None if found.parent_snapshot_id is None else snapshots.get(found.parent_snapshot_id)
    return None
