"""Run as a program, because a Spark session is one per process: wrong rows in an Iceberg table, and their repair.

``python -m tests.support.warehouse_repair FOLDER`` prints as JSON what the repair made of them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson

from cdc.pipeline import IcebergSink
from cdc.view import View
from deploy.local import artifacts
from operations.holding import Holding
from operations.opened import Opened
from operations.records.newest import Newest, Record
from operations.verify.repair import warehouse
from operations.verify.repair.work import Refused, Repair
from sinks.contract import MAX_VERSION
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogue import catalog_name
from spark.disk.state import Generation
from spark.machine.session import build_session
from spark.reading.entries import EntryDecoder
from spark.reading.record import batch_of
from spark.reading.spec import FlowSpec
from spark.warehouse.table import TablePlace, catalog_settings
from tests.support.trees import table

TABLE = table("t", "id", id="int4", v="text")
TOPIC = "p.public.t"
# id, value, version: as somebody has left them.
PLANTED = [
    (1, "right", 800),
    (2, "once", 400),
    (2, "again", MAX_VERSION),
    (3, "too high", MAX_VERSION),
    (4, "no version", None),
    (5, "ghost", 8),
    (5, "ghost", 16),
    (None, "no key", 8),
    (7, "changed", 800),
    (8, "twice the same", 800),
    (8, "twice the same", 800),
]
LOG = (1, 2, 3, 4, 7, 8, 9)


def records() -> list[Record]:
    """The newest record of each row that the source has: value ``row N``, position 800."""
    found = []
    for offset, key in enumerate(LOG):
        source = {"schema": "public", "table": "t", "lsn": 800, "ts_ms": 1, "sequence": '[null,"800"]'}
        change = {"op": "u", "source": source, "before": None, "after": {"id": key, "v": f"row {key}"}}
        found.append(Record(orjson.dumps({"id": key}), orjson.dumps(change), TOPIC, 0, offset))
    return found


def main(folder: Path) -> None:
    """Plant, repair, print."""
    part = IcebergSink(
        type="iceberg", catalog_uri=str(folder / "catalog.db"), warehouse=str(folder / "w"), namespace="n"
    )
    catalog = catalog_name("wh")
    view = replace(View.identity(TABLE), name="t")
    jars = artifacts.spark_jars()[0].parent
    conf = catalog_settings(catalog, iceberg.spark_properties(part))
    spark = build_session("repair", master="local[2]", jars=jars, log=folder / "spark.log", conf=conf)
    place = TablePlace(part, catalog, "t", 1, 0, "p/wh")
    name = place.make(spark, view)
    spark.createDataFrame(PLANTED, "id int, v string, _hw_version bigint").coalesce(1).writeTo(name).append()
    pipeline: Any = SimpleNamespace(name="p", sinks={"wh": part})
    opened = Opened(pipeline, Generation(folder, "p", "wh", 1), [view], 0)
    spec = FlowSpec("wh", {"t": view}, {TOPIC: ("t",)}, {TOPIC: TABLE}, {}, {})
    made = {record.offset: record for record in records()}
    entries = EntryDecoder(spec).decode(batch_of(list(made.values()))).entries
    newest = {entry.id: Newest(entry, made[entry.offset]) for entry in entries}
    warehouse.newest_records = lambda *_: newest  # type: ignore[assignment] # the log itself is another test's
    holding = Holding(opened, view)
    refused = Refused("?")
    work = Repair(opened, cast(Any, SimpleNamespace(spec=spec)), holding, spark, refused)
    before = spark.table(f"{name}.snapshots").count()
    kinds = dict.fromkeys(("2", "3", "4", "7", "8"), "changed") | {"9": "missing", "5": "extra", "null": "extra"}
    warehouse.repair_rows(work, kinds)
    rows = spark.table(name).orderBy("id").collect()
    print(json.dumps({
        "rows": [[row["id"], row["v"], row["_hw_version"]] for row in rows],
        "commits": spark.table(f"{name}.snapshots").count() - before,
        "refused": refused.reasons,
    }))  # fmt: skip
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
