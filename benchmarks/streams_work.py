"""One operator over one topic, ours or as plain PySpark code: the process of benchmarks/streams.py.

``python -m benchmarks.streams_work SPEC`` prints the seconds that it took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from cdc.catalogue import Column, Table
from cdc.fold import FoldView
from cdc.log.letters import letters_to
from cdc.stateful import StatefulView
from cdc.timed import Kind, MatchView, Measure, WindowView, micros_of
from deploy.local import artifacts
from sinks.factory import open_sink
from spark.disk.checkpoint import committed_offsets
from spark.events.fold import start_fold
from spark.events.matches import start_matches
from spark.events.states import analyse_stateful
from spark.events.windows import start_windows
from spark.flow import Flow, Reading
from spark.machine.session import build_session
from spark.reading.spec import FlowSpec
from tests.support.own_classes import own_classes_at_hand

SECONDS = 600.0
COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload", "at")
KINDS = ("uuid", "text", "text", "text", "jsonb", "timestamptz")
TABLE = Table(
    "public", "outbox", tuple(Column(name, kind, kind) for name, kind in zip(COLUMNS, KINDS, strict=True)), ("id",)
)
AMOUNT = "cast(get_json_object(payload, '$.amount') as decimal(12,2))"
SEARCH = "get_json_object(payload, '$.search')"
MINUTE = micros_of("1 minute")
MEASURES = {"n": Measure("count", "*"), "total": Measure("sum", AMOUNT), "most": Measure("max", AMOUNT)}
ADDED = "cast(get_json_object(event.payload, '$.amount') as decimal(12,2))"
SEARCHED = Kind("type = 'searched'", SEARCH, {"about": "aggregateid"})
CLICKED = Kind("type = 'clicked'", SEARCH, {"id": "id"})
VIEWS: Mapping[str, StatefulView] = {
    "window": WindowView(
        "w",
        TABLE,
        ("id",),
        (),
        time="at",
        delay=MINUTE,
        size=MINUTE,
        slide=MINUTE,
        by={"about": "aggregateid"},
        groupings=(("about",),),
        measures=MEASURES,
    ),
    "fold": FoldView(
        "f",
        TABLE,
        ("aggregateid",),
        (("aggregateid", "about"),),
        initial="named_struct('n', 0L, 'total', cast(0 as decimal(22,2)))",
        step=f"named_struct('n', state.n + 1L, 'total', state.total + {ADDED})",
    ),
    "match": MatchView("m", TABLE, ("id",), (), time="at", delay=MINUTE, within=MINUTE, first=SEARCHED, then=CLICKED),
}
STARTS = {"window": start_windows, "fold": start_fold, "match": start_matches}


def main(said: Mapping[str, Any]) -> None:
    """Run one side to the topic's end."""
    folder = Path(said["folder"])
    with own_classes_at_hand():
        jars, conf = artifacts.spark_jars()[0].parent, {"spark.sql.shuffle.partitions": "2"}
        spark = build_session("bench", master="local[2]", jars=jars, log=folder / "spark.log", conf=conf)
        began = time.monotonic()
        query, checkpoint = (_ours if said["side"] == "ours" else _plain)(spark, said, folder)
        until = began + SECONDS
        while sum(committed_offsets(checkpoint)[1].get(said["topic"], {}).values()) < said["events"]:
            if not query.isActive or time.monotonic() > until:
                raise SystemExit(f"did not come to the end: {query.exception()}")
            time.sleep(0.02)
        print(time.monotonic() - began)
        query.stop()
        spark.stop()


def _ours(spark: SparkSession, said: Mapping[str, Any], folder: Path) -> tuple[Any, Path]:
    topic = said["topic"]
    view = analyse_stateful(spark, replace(VIEWS[said["operator"]], topics=(topic,)))
    letters = letters_to(f"{topic}-letters", {"bootstrap.servers": said["kafka"]}, 10 << 20)
    sink = {"type": "redis", "name": "cache", "url": said["redis"], "key_prefix": f"bench-{topic}:"}
    sink |= {"targets": {view.name: {}}, "give_up_seconds": 30.0}
    spec = FlowSpec(
        "cache", {view.name: view}, {topic: (view.name,)}, {topic: TABLE}, sink, letters, events=frozenset({topic})
    )
    flow = Flow(view.name, spec, Reading(said["kafka"], {}, said["batch"]), folder / "g1" / view.name)
    opened = open_sink(sink)
    opened.setup()
    opened.close()
    return STARTS[said["operator"]](spark, flow), flow.checkpoint


def _plain(spark: SparkSession, said: Mapping[str, Any], folder: Path) -> tuple[StreamingQuery, Path]:
    row = T.StructType.fromDDL(", ".join(f"`{one}` {'timestamp' if one == 'at' else 'string'}" for one in COLUMNS))
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", said["kafka"])
    read = read.option("subscribe", said["topic"]).option("startingOffsets", "earliest")
    records = read.option("maxOffsetsPerTrigger", said["batch"]).load()
    envelope = F.from_json(F.col("value").cast("string"), T.StructType([T.StructField("after", row)]))
    events = records.select(envelope.getField("after").alias("row")).select("row.*")
    made, mode = PLAIN[said["operator"]](events)
    url, prefix = said["redis"], f"plain-{said['topic']}:"

    def write(batch: DataFrame, _: int) -> None:
        batch.select(F.to_json(F.struct("*")).alias("document"), "key").foreachPartition(
            lambda rows: _set_all(url, prefix, rows)
        )

    checkpoint = folder / "plain"
    writer = made.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint))
    return writer.foreachBatch(write).start(), checkpoint


def _set_all(url: str, prefix: str, rows: Iterator[Any]) -> None:
    with redis.Redis.from_url(url) as client, client.pipeline(transaction=False) as pipe:
        for row in rows:
            pipe.set(f"{prefix}{row.key}", row.document)
            if len(pipe) >= 1000:
                pipe.execute()
        pipe.execute()


def _window(events: DataFrame) -> tuple[DataFrame, str]:
    amount = F.expr(AMOUNT)
    grouped = events.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"), "aggregateid")
    made = grouped.agg(F.count("*").alias("n"), F.sum(amount).alias("total"), F.max(amount).alias("most"))
    return made.withColumn("key", F.concat_ws("|", "aggregateid", F.col("window.start"))), "update"


def _fold(events: DataFrame) -> tuple[DataFrame, str]:
    """This fold happens to be an aggregation; PySpark's own state by key (applyInPandasWithState) fails with pyarrow
    of today."""
    grouped = events.groupBy(F.col("aggregateid").alias("key"))
    return grouped.agg(F.count("*").alias("n"), F.sum(F.expr(AMOUNT)).alias("total")), "update"


def _match(events: DataFrame) -> tuple[DataFrame, str]:
    search = F.expr(SEARCH)
    first = events.where("type = 'searched'").select(F.col("id").alias("key"), "at", search.alias("s"), "aggregateid")
    then = events.where("type = 'clicked'").select(F.col("id"), F.col("at").alias("at2"), search.alias("s2"))
    both = first.withWatermark("at", "1 minute").join(
        then.withWatermark("at2", "1 minute"),
        F.expr("s = s2 AND at2 >= at AND at2 <= at + interval 1 minute"),
        "leftOuter",
    )
    return both, "append"


PLAIN: Mapping[str, Callable[[DataFrame], tuple[DataFrame, str]]] = {"window": _window, "fold": _fold, "match": _match}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
