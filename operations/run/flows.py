"""From one generation of a sink to its flows: views, target, row store, how to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError
from cdc.gather import Gathering
from cdc.join.view import JoinedView
from cdc.log.letters import letters_config
from cdc.pipeline import Pipeline, SearchSink
from cdc.resolve.views import in_tables, topics_of
from cdc.stateful import StatefulView
from cdc.view import View
from connectors.debezium import beat_topic
from operations.generations.elsewhere import note_made, refuse_elsewhere
from operations.opened import Opened, refuse_recreated
from operations.rowstore import away_seconds, row_store_settings
from operations.run.fits import fits_of, read_since
from operations.state.frozen import known_to, read_frozen
from operations.state.shapes import known_shapes
from sinks.configure import check_mapping, sink_config
from sinks.factory import open_sink
from sinks.iceberg.catalogue import catalog_name
from spark.disk.made_of import forget_taken_up, taken_up
from spark.events.fold import is_fold, start_fold
from spark.events.kept_columns import refuse_columns
from spark.events.kept_tables import StateTable
from spark.events.matches import is_matched, start_matches
from spark.events.states import analyse_stateful
from spark.events.steady import refuse_unsteady_events
from spark.events.windows import is_windowed, start_windows
from spark.flow import Flow, Reading, plan_flows, start_live
from spark.join.child_expressions import analysed, refuse_unsteady_parts
from spark.join.query import is_joined, went_live
from spark.join.start import start_joined
from spark.join.tables import JoinedTable, Open
from spark.log_gaps import check_log
from spark.reading.expressions import Refuse, analyse, refuse_unsteady
from spark.reading.spec import FlowSpec
from spark.running import Query, Start
from spark.wanted import refuse_unwanted
from spark.warehouse.merge import start_warehouse

# A table's batch may be so many times as large as a batch of documents: its commit costs a second whatever is in it,
# and its rows go through Spark's own memory, which spills.
TABLE_BATCHES = 5


def flows_of(build: Opened, catalogue: Catalogue, spark: SparkSession, snapshot_lsn: int) -> list[tuple[Flow, Start]]:
    """A generation's flows and how each is started.

    Args:
        build: the generation.
        catalogue: the source's tables.
        spark: the session, to check expressions in.
        snapshot_lsn: position of the initial snapshot.

    Raises:
        ConfigError: an expression or a mapping does not fit (terminal).
    """
    sink = build.pipeline.sinks[build.sink]
    warehouse = build.warehouse
    spec = spec_of(build, catalogue, spark, snapshot_lsn)
    start: Start = start_warehouse_of(build) if warehouse else _with_setup(start_live)
    planned = plan_flows(spec, reading(build.pipeline, sink), build.generation.folder, separate=warehouse)
    return [_ready(build, flow, start) for flow in planned]


def spec_of(
    build: Opened, catalogue: Catalogue, spark: SparkSession, snapshot_lsn: int, only: str | None = None
) -> FlowSpec:
    """The whole work of a generation, or that of the view ``only``; other arguments and errors as ``flows_of``."""
    pipeline, generation = build.pipeline, build.generation
    sink, frozen = pipeline.sinks[build.sink], read_frozen(generation)
    catalogue = known_to(pipeline, generation, catalogue)
    found, views = Gathering(), list[View]()
    computed: dict[str, Mapping[str, str]] = {}
    for view in (view for view in build.views if only in (None, view.name)):
        with found.step():
            typed, computed[view.name] = analysed_view(spark, pipeline, view)
            views.append(typed)
    if isinstance(sink, SearchSink):
        known = {view.name: view for view in views}
        with found.step():  # of all its views, also of those that are not asked for
            whole = [known.get(view.name, view) for view in build.views]
            check_mapping(build.sink, sink, whole, goes_on=build.definition is None)
    found.end()
    config: dict[str, Any] = {}
    if not build.warehouse:
        config = sink_config(build.sink, sink, views, computed, generation.number, build.token, pipeline.name)
    spec = flow_spec(pipeline, build.sink, views, config)
    # Not the views' tables, which lack the columns that Debezium can't deliver: those would look like new ones.
    tables = {topic: catalogue.tables[table.qualified] for topic, table in spec.tables.items()}
    return replace(
        spec,
        snapshot_lsn=snapshot_lsn,
        # Who fills a generation looks at no table: a column of values that never fit would have it begun anew for ever.
        fits=fits_of(spec, catalogue, frozen, values=catalogue.doubts and not build.rebuilding),
        generation=generation.number,
        tables=read_since(replace(spec, tables=tables), known_shapes(pipeline)),
    )


def _placed(pipeline: Pipeline, view: View) -> Refuse:
    def refuse(path: tuple[str | int, ...], what: str, fix: str) -> ConfigError:
        return pipeline.error_at(("views", view.name, *path), what, fix=fix, means="nothing was changed")

    return refuse


def analysed_view(spark: SparkSession, pipeline: Pipeline, view: View) -> tuple[View, Mapping[str, str]]:
    """A view whose computed aggregates have their types, and the types of its computed fields.

    Raises:
        ConfigError: expressions that Spark does not take, each with its place in the file (terminal).
    """

    refuse = _placed(pipeline, view)
    if isinstance(view, StatefulView):
        known = analyse_stateful(spark, view, refuse)
        if in_tables(pipeline, view):
            refuse_columns(known, refuse)
        return known, known.state
    typed = analysed(spark, view, refuse) if isinstance(view, JoinedView) else view
    return typed, analyse(spark, typed, refuse).types


def refuse_moving(spark: SparkSession, pipeline: Pipeline, view: View) -> tuple[View, Mapping[str, str]]:
    """As ``analysed_view``, and what gives another value each time that it is asked: of a file, before it is applied.

    Raises:
        ConfigError: expressions that Spark does not take, or that say something else tomorrow (terminal).
    """
    typed, computed = analysed_view(spark, pipeline, view)
    refuse = _placed(pipeline, view)
    if isinstance(typed, StatefulView):
        refuse_unsteady_events(spark, typed, refuse)
        return typed, computed
    if isinstance(typed, JoinedView):
        refuse_unsteady_parts(spark, typed, refuse)
    refuse_unsteady(spark, typed, refuse)
    return typed, computed


def _ready(build: Opened, flow: Flow, start: Start) -> tuple[Flow, Start]:
    flow = replace(flow, rebuilding=build.rebuilding, throttle=build.throttle)
    if is_joined(flow):
        (view,) = flow.spec.views
        settings = row_store_settings(build.pipeline, build.generation, view) | {"token": build.token}
        flow = replace(flow, spec=replace(flow.spec, row_store=settings))
        start = partial(start_joined, tabled=table_of(build)) if build.warehouse else start_joined
    else:
        for found, keeps in ((is_fold, start_fold), (is_windowed, start_windows), (is_matched, start_matches)):
            if found(flow):
                start = partial(_in_table, build, keeps) if build.warehouse else _with_setup(keeps)
    return flow, _ours(build, _same_topics(build, _checked(start)))


def reading(pipeline: Pipeline, sink: Any) -> Reading:
    """How a sink's flows read the log."""
    return Reading(
        bootstrap=pipeline.kafka.bootstrap,
        client=pipeline.kafka.options_plain(),
        max_offsets=_max_offsets(pipeline, sink),
        trigger_ms=pipeline.engine.trigger_ms if sink.trigger_ms is None else sink.trigger_ms,
        traces=pipeline.policy.traces,
        tombstone_seconds=int(pipeline.kafka.tombstone_retention_hours * 3600),
        beats=beat_topic(pipeline),
    )


def _max_offsets(pipeline: Pipeline, sink: Any) -> int | None:
    most = pipeline.engine.max_offsets_per_trigger
    return most and most * (TABLE_BATCHES if sink.form == "columns" else 1)


def start_warehouse_of(build: Opened) -> Start:
    """How a warehouse's flows are started."""
    return partial(start_warehouse, **_where(build))


def table_of(build: Opened) -> Open:
    """How a warehouse's table of a joined view is opened."""
    return partial(JoinedTable, **_where(build))


def _where(build: Opened) -> dict[str, Any]:
    """Where a warehouse's tables are, and whose they are."""
    catalog = catalog_name(build.sink)
    return {"sink": build.part, "catalog": catalog, "lease": build.generation.lease, "owner": build.owner}


def _in_table(build: Opened, keeps: Callable[..., Query], spark: SparkSession, flow: Flow) -> Query:
    """Start a flow with a state that keeps a warehouse's table."""
    return keeps(spark, flow, partial(StateTable, **_where(build)))


def _ours(build: Opened, start: Start) -> Start:
    """Look at each start of a flow whether its generation is still what the state folder says, before it is claimed;
    and note once it was."""

    def look_and_start(spark: SparkSession, flow: Flow) -> Query:
        refuse_elsewhere(build, flow)
        query = start(spark, flow)
        note_made(flow, build.token)
        return query

    return look_and_start


def _same_topics(build: Opened, start: Start) -> Start:
    """Look at each start of a flow whether its topics are those that its generation was filled from: a broker makes one
    anew that was deleted under it, and it goes on in that as if it were the old one."""

    def compare_and_start(spark: SparkSession, flow: Flow) -> Query:
        refuse_recreated(build, flow.spec.topics)
        return start(spark, flow)

    return compare_and_start


def _checked(start: Start) -> Start:
    """Look at each start of a flow whether its place is known, and whether the log still has what comes next.

    Once for all kinds of flows. One that is being filled has run, but has no checkpoint yet; its fill keeps its place.
    """

    def check_and_start(spark: SparkSession, flow: Flow) -> Query:
        if not is_joined(flow) or went_live(flow):
            flow.check()
            check_log(flow)
        return start(spark, flow)

    return check_and_start


def _with_setup(start: Start) -> Start:
    """Set a sink up at each start of its flow, not before: a dead Elasticsearch must not keep Redis from starting."""

    def set_up_and_start(spark: SparkSession, flow: Flow) -> Query:
        sink = open_sink(dict(flow.spec.sink_config))
        try:
            awaited = taken_up(flow.folder.parent)
            for name, kept in flow.spec.views.items():
                if not flow.is_new and not sink.there(name) and kept.table.qualified not in awaited:
                    flow.refuse_gone(name)
            refuse_unwanted()
            sink.setup()
            if awaited & {kept.table.qualified for kept in flow.spec.views.values()}:
                forget_taken_up(flow.folder.parent)
            if flow.is_new and (filled := sink.filled([*flow.spec.views])) is not None:
                flow.refuse_filled(filled)
            for view in flow.spec.views:
                if flow.rebuilding:
                    sink.bulk_load(view, True)
        finally:
            sink.close()
        return start(spark, flow)

    return set_up_and_start


def flow_spec(pipeline: Pipeline, sink: str, views: Sequence[View], config: Mapping[str, Any]) -> FlowSpec:
    """The whole work of a sink as plain data."""
    topics: dict[str, tuple[str, ...]] = {}
    tables = {}
    for view in views:
        for topic, table in topics_of(pipeline, view).items():
            topics[topic] = (*topics.get(topic, ()), view.name)
            tables[topic] = table
    return FlowSpec(
        sink=sink,
        views={view.name: view for view in views},
        topics=topics,
        tables=tables,
        events=frozenset(topic for view in views for topic in view.topics),
        sink_config=config,
        dead_letters=letters_config(pipeline),
        registry=pipeline.source.reader(),
        away_seconds=away_seconds(pipeline),
        compaction_lag_seconds=pipeline.kafka.compaction_lag_hours * 3600,
    )
