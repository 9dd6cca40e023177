"""A fold's flow over records of the test's own, in a process of its own that may be killed.

``python -m tests.support.folds SPEC`` runs it into the sink that the JSON describes until all records are committed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from orjson import loads
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.catalogue import Column, Table
from cdc.fold import FoldView
from cdc.log.letters import letters_to
from cdc.pipeline import IcebergSink
from cdc.stateful import StatefulView
from cdc.view import View
from deploy.local import artifacts
from sinks.configure import sink_config
from sinks.factory import open_sink, open_target
from sinks.iceberg import catalogue as iceberg
from spark.disk.checkpoint import committed_offsets
from spark.disk.lease import Lease
from spark.events.fold import analyse_fold, start_fold
from spark.events.kept import Open, documents_of
from spark.events.kept_tables import StateTable
from spark.flow import Flow, Reading
from spark.machine.session import build_session
from spark.reading.spec import FlowSpec
from spark.running import Query
from spark.warehouse.table import catalog_settings
from tests.support.own_classes import own_classes_at_hand

OUTBOX = Table(
    "public",
    "outbox",
    (
        Column("id", "uuid", "uuid", nullable=False, ordinal=1),
        Column("aggregatetype", "text", "text", nullable=False, ordinal=2),
        Column("aggregateid", "text", "text", nullable=False, ordinal=3),
        Column("type", "text", "text", nullable=False, ordinal=4),
        Column("payload", "jsonb", "jsonb", ordinal=5),
    ),
    ("id",),
)
INITIAL = "named_struct('n', 0, 'total', cast(0 as decimal(20,2)), 'words', array(cast(null as string)))"
STEP = (
    "CASE WHEN event.type = 'ended' THEN NULL ELSE named_struct('n', nvl(nullif(state.n, -1), 0) + 1, 'total', "
    "state.total + cast(get_json_object(event.payload, '$.amount') as decimal(12,2)), 'words', "
    "slice(concat(state.words, array(event.type)), greatest(size(state.words) - 1, 1), 3)) END"
)
SECONDS = 240.0
# As Spark knows the warehouse of a test's folder.
CATALOG = "hw_lake"


def view_of(topic: str) -> FoldView:
    """The view that is tested."""
    key = ("aggregateid",)
    return FoldView("account", OUTBOX, key, (("aggregateid", "account"),), topics=(topic,), initial=INITIAL, step=STEP)


def main(said: Mapping[str, Any]) -> None:
    """Run the flow to the log's end."""
    run(said, lambda spark: analyse_fold(spark, view_of(said["topic"])), start_fold)


def run(
    said: Mapping[str, Any],
    analysed: Callable[[SparkSession], StatefulView],
    start: Callable[[SparkSession, Flow, Open], Query],
) -> None:
    """Run the flow of a view over a topic of events to the topic's end.

    Args:
        said: folder, kafka, topic, records, sink (nothing for a warehouse in the folder), conf, max_offsets,
            snapshot_lsn.
        analysed: the view, with its types.
        start: its flow.
    """
    folder, topic = Path(said["folder"]), said["topic"]
    with own_classes_at_hand():
        jars = artifacts.spark_jars()[0].parent
        conf = said["conf"] | (
            {} if said["sink"] else catalog_settings(CATALOG, iceberg.spark_properties(lake_of(folder)))
        )
        spark = build_session("t", master="local[2]", jars=jars, log=folder / "spark.log", conf=conf)
        view = analysed(spark)
        letters = letters_to(f"{topic}-letters", {"bootstrap.servers": said["kafka"]}, 10 << 20)
        names, tables = {topic: (view.name,)}, {topic: view.table}
        spec = FlowSpec("cache", {view.name: view}, names, tables, said["sink"], letters, events=frozenset({topic}))
        spec = replace(spec, snapshot_lsn=said["snapshot_lsn"])
        flow = Flow(view.name, spec, Reading(said["kafka"], {}, said["max_offsets"]), folder / "g1" / view.name)
        query, until = start(spark, flow, place_of(flow, folder)), time.monotonic() + SECONDS
        print("running", flush=True)
        while sum(committed_offsets(flow.checkpoint)[1].get(topic, {}).values()) < said["records"]:
            if not query.isActive or time.monotonic() > until:
                raise SystemExit(f"the flow did not come to the log's end: {query.exception()}")
            time.sleep(0.02)
        cast(StreamingQuery, getattr(query, "_query", query)).processAllAvailable()  # what the last batch has made due
        query.stop()
        spark.stop()


def lake_of(folder: Path) -> IcebergSink:
    """A warehouse's part of a pipeline file, in a test's folder."""
    said = {"catalog_uri": str(folder / "c.db"), "warehouse": str(folder / "w"), "namespace": "kept"}
    return IcebergSink.model_validate(said | {"type": "iceberg", "tables": "all"})


def place_of(flow: Flow, folder: Path) -> Open:
    """Where a flow writes: to its sink, or to a table that this process has taken."""
    if flow.spec.sink_config:
        open_sink(dict(flow.spec.sink_config)).setup()
        return documents_of
    lease = Lease(folder / "g1", "tested")
    lease.take()
    return lambda spark, flow: CrashingTable(spark, flow, lake_of(folder), CATALOG, lease, "test/cache")


class CrashingTable(StateTable):
    """A table whose process is killed once when Spark's state has been committed and the table has not, and once when
    both have, and Spark does not know it; the test's folder remembers which were."""

    def __init__(self, spark: SparkSession, flow: Flow, *more: Any) -> None:
        super().__init__(spark, flow, *more)
        write, folder = self._merger._write, flow.folder.parent.parent

        def crashing(source: DataFrame, *, empty: bool) -> None:
            if not empty:
                _crash_once(folder / "crashed-before")
            write(source, empty=empty)
            if not empty and (folder / "crashed-before").exists():
                _crash_once(folder / "crashed-after")

        self._merger._write = crashing  # type: ignore[method-assign]


def _crash_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def held_in(folder: Path, view: View) -> dict[str, dict[str, Any]]:
    """What the table of a test's folder holds, as verification reads it; no key is there twice."""
    target = open_target(sink_config("lake", lake_of(folder), [view], {}))
    found = [(one.key, loads(cast(bytes, one.document))) for one in target.scan(view.name)]
    assert len(dict(found)) == len(found)
    return dict(found)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
