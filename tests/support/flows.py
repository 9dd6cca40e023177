"""Flows over records of the test's own, in a process of their own: no Postgres, no connector, one small topic.

``python -m tests.support.flows SPEC`` starts two flows one after the other, a warehouse's and that of the sink that the
JSON describes, lets each read all there is, and prints what its status would count, and the warehouse's rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cdc.catalogue import Column, Table
from cdc.log.letters import letters_to
from cdc.view import View
from deploy.local import artifacts
from sinks.factory import open_sink
from sinks.iceberg import catalogue as iceberg
from spark.disk.batches import Batch
from spark.disk.checkpoint import committed_offsets
from spark.disk.lease import Lease
from spark.flow import Flow, Reading, start_live
from spark.machine.session import build_session
from spark.meter import Meter
from spark.reading.spec import FlowSpec
from spark.warehouse.merge import start_warehouse
from spark.warehouse.table import catalog_settings

CATALOG = "hw_lake"
TABLE = Table(
    "public",
    "item",
    (Column("id", "integer", "int4", nullable=False, ordinal=1), Column("v", "text", "text", ordinal=2)),
    ("id",),
)
SECONDS = 120.0


def main(said: Mapping[str, Any]) -> dict[str, Any]:
    """Run both flows to the log's end."""
    folder = Path(said["folder"])
    place = {"catalog_uri": str(folder / "c.db"), "warehouse": str(folder / "w")}
    lake = SimpleNamespace(**place, namespace="shop", format_version=3)
    spark = build_session(
        "test",
        master="local[2]",
        jars=artifacts.spark_jars()[0].parent,
        log=folder / "spark.log",
        driver_memory="512m",
        conf={**catalog_settings(CATALOG, iceberg.spark_properties(lake)), **said["conf"]},
    )
    try:
        flow = flow_of(said, "warehouse", View.identity(TABLE), {})
        lease = Lease(folder / "g1", "tested")
        lease.take()
        found = {
            "warehouse": _counted(
                start_warehouse(spark, flow, lake, CATALOG, lease, "test/warehouse"), flow, said["records"]
            )
        }
        spark.catalog.refreshTable(f"{CATALOG}.shop.item")
        found["warehouse"]["rows"] = sorted(row["id"] for row in spark.table(f"{CATALOG}.shop.item").collect())
        whole = View.identity(TABLE)
        view = View(whole.name, TABLE, whole.key, whole.columns, said["fields"], said["where"])
        flow = flow_of(said, "cache", view, said["sink"])
        open_sink(said["sink"]).setup()
        found["cache"] = _counted(start_live(spark, flow), flow, said["records"])
        return found
    finally:
        spark.stop()


def flow_of(said: Mapping[str, Any], name: str, view: View, config: Mapping[str, Any]) -> Flow:
    """A flow of the one table."""
    letters = letters_to(f"{said['topic']}-letters", {"bootstrap.servers": said["kafka"]}, 10 << 20)
    spec = FlowSpec(name, {view.name: view}, {said["topic"]: (view.name,)}, {said["topic"]: TABLE}, config, letters)
    return Flow(
        name,
        spec,
        Reading(said["kafka"], {}, None, traces=said.get("traces", False)),
        Path(said["folder"]) / "g1" / name,
    )


def _counted(query: Any, flow: Flow, records: int) -> dict[str, Any]:
    """Let it read so many records; what its status counts then."""
    try:
        _until_read(query, flow, records)
        meter, told, until = Meter(), list[Batch](), time.monotonic() + 10
        while meter.totals["records"] < records and time.monotonic() < until:
            meter.read(query, told.append)  # a report follows its batch's commit by a moment
            time.sleep(0.1)
        return {"totals": meter.totals, "batches": meter.batch_id + 1, "told": [asdict(batch) for batch in told]}
    finally:
        query.stop()


def _until_read(query: Any, flow: Flow, count: int) -> None:
    until = time.monotonic() + SECONDS
    while sum(sum(parts.values()) for parts in committed_offsets(flow.checkpoint)[1].values()) < count:
        if not query.isActive or time.monotonic() > until:
            raise SystemExit(f"the flow did not come to the log's end: {query.exception()}")
        time.sleep(0.1)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
