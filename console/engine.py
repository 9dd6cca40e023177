"""Puts a pipeline's parts together: file + catalogue -> flows in a Spark session."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, KafkaError
from cdc.join.view import JoinedView
from cdc.pipeline import ElasticsearchSink, IcebergSink, Pipeline
from cdc.resolve import resolve_views, view_tables
from cdc.view import View
from console.marker import read_snapshot_lsn
from sinks import iceberg
from sinks.configure import check_mapping, sink_config
from sinks.factory import open_sink
from sinks.rowstore.keys import namespace
from spark.expressions import analyse
from spark.flow import Flow, Reading, plan_flows, start_live
from spark.join.child_expressions import analysed
from spark.join.start import is_joined, start_joined
from spark.runner import Runner, Start
from spark.session import build_session
from spark.spec import FlowSpec
from spark.state import Generation, Identity
from spark.warehouse import catalog_settings, start_warehouse

# A batch that the row store does not take for so long fails, so that `status` shows why; its flow starts again.
GIVE_UP_SECONDS = 60.0


@dataclass(frozen=True)
class Engine:
    """A pipeline ready to run: hold it for as long as it should run, then close it."""

    pipeline: Pipeline
    spark: SparkSession
    runner: Runner
    generations: Sequence[Generation]

    def close(self) -> None:
        """Stop the queries, give the generations back, end Spark."""
        try:
            self.runner.stop()
        except Exception as error:  # SIGTERM to the whole group ends the JVM before us: offsets are where they were
            logging.getLogger(__name__).debug("Spark was gone before its queries were stopped: %s", error)
        for generation in self.generations:
            generation.unlock()
        with suppress(Exception):
            self.spark.stop()


def chosen_sinks(pipeline: Pipeline, only: Sequence[str]) -> list[str]:
    """Names of the sinks to work on.

    Raises:
        ConfigError: a name that the pipeline file does not have.
    """
    for name in only:
        if name not in pipeline.sinks:
            raise ConfigError(f"no sink {name} in the pipeline", fix=f"choose from {', '.join(pipeline.sinks)}")
    return list(only) or list(pipeline.sinks)


def state_dir(pipeline: Pipeline) -> Path:
    """Where checkpoints and status files live."""
    return Path(pipeline.engine.state_dir)


def catalog_name(sink: str) -> str:
    """The Iceberg catalogue's name inside Spark."""
    return f"hw_{sink}"


def open_spark(pipeline: Pipeline, sinks: Sequence[str]) -> SparkSession:
    """Start Spark with the catalogues of the warehouse sinks known to it."""
    conf = dict(pipeline.engine.spark_conf)
    for name in sinks:
        sink = pipeline.sinks[name]
        if isinstance(sink, IcebergSink):
            conf = {**catalog_settings(catalog_name(name), iceberg.spark_properties(sink)), **conf}
    engine = pipeline.engine
    return build_session(
        f"headwater {pipeline.name}",
        master=engine.master,
        jars=Path(engine.jars or os.environ.get("HEADWATER_SPARK_JARS", "")),
        log=state_dir(pipeline).absolute() / pipeline.name / f"spark-{'-'.join(sinks) or 'verify'}.log",
        driver_memory=engine.driver_memory,
        conf=conf,
    )


def open_engine(pipeline: Pipeline, catalogue: Catalogue, only: Sequence[str] = (), *, once: bool = False) -> Engine:
    """Bind and lock the sinks' generations, set the sinks up, and plan their flows.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        only: sink names; none for all.
        once: apply what is in the log now, then finish.

    Raises:
        HeadwaterError: a view, an identity, a lock or a sink's settings do not fit; nothing was started.
    """
    names = chosen_sinks(pipeline, only)
    views = {name: resolve_views(pipeline, catalogue, name) for name in names}
    topics = {name: _topics(pipeline, of) for name, of in views.items()}
    generations = [Generation(state_dir(pipeline), pipeline.name, name) for name in names]
    ids = topic_ids(pipeline, {topic for of in topics.values() for topic in of})
    for generation in generations:
        generation.lock()
        of = {topic: ids[topic] for topic in topics[generation.sink]}
        generation.bind(identity(pipeline, catalogue, generation.sink, of))
        generation.note_views([view.name for view in views[generation.sink]])
    snapshot_lsn = read_snapshot_lsn(pipeline)
    spark = open_spark(pipeline, names)
    flows: list[tuple[Flow, Start]] = []
    for generation in generations:
        flows += _flows(pipeline, catalogue, spark, generation, views[generation.sink], snapshot_lsn, once=once)
    return Engine(pipeline, spark, Runner(spark, flows), generations)


def identity(pipeline: Pipeline, catalogue: Catalogue, sink: str, ids: Mapping[str, str]) -> Identity:
    """What a sink's generation is bound to."""
    return Identity(
        system_identifier=str(catalogue.system_identifier),
        timeline=catalogue.timeline,
        database=pipeline.source.database,
        slot=pipeline.source.slot,
        topic_ids=ids,
        spec_hash=pipeline.spec_hash(sink),
    )


def topic_ids(pipeline: Pipeline, topics: set[str]) -> dict[str, str]:
    """Kafka's own ids of topics.

    Raises:
        KafkaError: a topic is not there, or the brokers do not answer.
    """
    admin = AdminClient({**pipeline.kafka.client(), "log_level": 0})
    out: dict[str, str] = {}
    futures = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=10)
    for topic, future in futures.items():
        try:
            out[topic] = str(future.result().topic_id)
        except KafkaException as error:
            raise KafkaError(
                f"topic {topic}: {error.args[0].str()}",
                means="there is no changelog to read yet",
                fix="run `headwater apply FILE`, which creates the topics and the connector",
            ) from error
    return out


def _flows(
    pipeline: Pipeline,
    catalogue: Catalogue,
    spark: SparkSession,
    generation: Generation,
    views: Sequence[View],
    snapshot_lsn: int,
    *,
    once: bool,
) -> list[tuple[Flow, Start]]:
    sink = pipeline.sinks[generation.sink]
    warehouse = isinstance(sink, IcebergSink)
    views = [analysed(spark, view) if isinstance(view, JoinedView) else view for view in views]
    computed = {view.name: analyse(spark, view).types for view in views}
    config: dict[str, Any] = {}
    if isinstance(sink, ElasticsearchSink):
        check_mapping(generation.sink, sink, views)
    if not warehouse:
        config = sink_config(generation.sink, sink, views, computed, generation.number)
    spec = flow_spec(pipeline, generation.sink, views, config)
    reading = Reading(
        bootstrap=pipeline.kafka.bootstrap,
        client=pipeline.kafka.options_plain(),
        max_offsets=pipeline.engine.max_offsets_per_trigger,
        trigger_ms=int(sink.trigger_seconds * 1000) if isinstance(sink, IcebergSink) else pipeline.engine.trigger_ms,
    )
    spec = replace(
        spec,
        snapshot_lsn=snapshot_lsn,
        stop_at_new_columns=pipeline.policy.schema_change == "stop",
        # Not the views' tables, which lack the columns that Debezium can't deliver: those would look like new ones.
        tables={topic: catalogue.tables[table.qualified] for topic, table in spec.tables.items()},
    )
    start: Start = start_live
    if isinstance(sink, IcebergSink):
        start = partial(start_warehouse, catalog=catalog_name(generation.sink), namespace=sink.namespace)
    else:
        start = _with_setup(start_live)
    planned = plan_flows(spec, reading, generation.folder, once=once, separate=warehouse)
    return [
        (_with_row_store(pipeline, flow, generation), start_joined) if is_joined(flow) else (flow, start)
        for flow in planned
    ]


def _with_row_store(pipeline: Pipeline, flow: Flow, generation: Generation) -> Flow:
    (view,) = flow.spec.views
    settings = row_store_settings(pipeline, generation, view)
    return replace(flow, spec=replace(flow.spec, row_store=settings))


def row_store_settings(pipeline: Pipeline, generation: Generation, view: str) -> dict[str, Any]:
    """``sinks.rowstore.redis.StoreSettings`` of one view's rows as plain data; holds secrets.

    Raises:
        ConfigError: the file has no ``row_store``.
    """
    part = pipeline.row_store
    if part is None:
        raise ConfigError(f"view {view} joins tables, and the file has no row_store", fix="add `row_store: {url: …}`")
    return {
        "url": part.url,
        "user": part.user,
        "password": None if part.password is None else part.password.get_secret_value(),
        "cluster": part.cluster,
        "ca_certs": part.ca_certs,
        "namespace": namespace(pipeline.name, generation.sink, view, generation.number),
        "title": f"{pipeline.name}/{generation.sink}/{view}/g{generation.number}",
        "fade_seconds": int(pipeline.kafka.tombstone_retention_hours * 3600),
        "give_up_seconds": GIVE_UP_SECONDS,
    }


def _topics(pipeline: Pipeline, views: Sequence[View]) -> set[str]:
    return {pipeline.topic(table) for view in views for table in view_tables(view)}


def _with_setup(start: Start) -> Start:
    """Set a sink up at each start of its flow, not before: a dead Elasticsearch must not keep Redis from starting."""

    def set_up_and_start(spark: SparkSession, flow: Flow) -> Any:
        flow.check()
        sink = open_sink(dict(flow.spec.sink_config))
        try:
            sink.setup()
            for view in flow.spec.views if flow.is_new else ():
                if next(iter(sink.scan(view)), None) is not None:
                    flow.refuse_filled(view)
        finally:
            sink.close()
        return start(spark, flow)

    return set_up_and_start


def flow_spec(pipeline: Pipeline, sink: str, views: Sequence[View], config: Mapping[str, Any]) -> FlowSpec:
    """The whole work of a sink as plain data."""
    topics: dict[str, tuple[str, ...]] = {}
    tables = {}
    for view in views:
        for name, table in view_tables(view).items():
            topic = pipeline.topic(name)
            topics[topic] = (*topics.get(topic, ()), view.name)
            tables[topic] = table
    return FlowSpec(
        sink=sink,
        views={view.name: view for view in views},
        topics=topics,
        tables=tables,
        sink_config=config,
        # A letter holds the record and its reason, so it may be a little larger than any record.
        dead_letters={
            "topic": pipeline.dead_letter_topic,
            "client": {**pipeline.kafka.client(), "message.max.bytes": pipeline.kafka.max_message_bytes + 65_536},
        },
    )
