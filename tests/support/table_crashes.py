"""A joined view's table whose commits crash at chosen steps: a fill, live batches, and what a fan-out has deferred.

``python -m tests.support.table_crashes SPEC`` makes the records itself, starts the flow anew after each crash, and
prints of each view what the table holds, what it should hold, which crashes came about, and what is left pending.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row
from redis import Redis

from cdc.join.tree import Aggregate
from cdc.join.view import JoinedView
from cdc.log.letters import letters_to
from deploy.local import artifacts
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.rows import VERSION_COLUMN
from spark.disk.checkpoint import committed_offsets
from spark.disk.filling import is_live
from spark.disk.lease import Lease
from spark.flow import Flow, Reading
from spark.join.engine import FAN_OUT
from spark.join.query import JoinedQuery
from spark.join.start import start_joined
from spark.join.tables import JoinedTable
from spark.machine.session import build_session
from spark.reading.spec import FlowSpec
from spark.warehouse.table import catalog_settings
from tests.support.trees import node, table

CATALOG = "hw_lake"
PARENTS = table("parents", "id", id="int4", name="text")
KIDS = table("kids", "id", id="int4", parent="int4")
TOYS = table("toys", "id", id="int4", kid="int4", cost="numeric(8,2)")
# At these steps of a commit: nothing is in the table yet; it is, and the row store does not know; both do.
STEPS = ("made", "committed", "ended")
SECONDS = 60.0


def view(name: str) -> JoinedView:
    """Kids with their parent, their toys and their cost; ``counted`` parents also say how many kids they have, so that
    the root's rows are also others' (``Node.once``)."""
    kids = (Aggregate("kids", KIDS, (("id", "parent"),), "count"),) if name == "counted" else ()
    parent = node(PARENTS, "of", "ref", [("parent", "id")], columns=(("name", "name"),), aggregates=kids)
    toys = node(TOYS, "toys", "child", [("id", "kid")], columns=(("id", "id"), ("cost", "cost")))
    spent = Aggregate("spent", TOYS, (("id", "kid"),), "sum", value="cost")
    root = node(KIDS, name, columns=(("id", "id"),), refs=(parent,), children=(toys,), aggregates=(spent,))
    return JoinedView(name, KIDS, ("id",), root.columns, root=root)


class Crash(Exception):
    """What a killed process does not even say."""


class Crashing(JoinedTable):
    """A table that crashes once at each step of the first commit of each kind that comes there."""

    left: list[tuple[str, str]]
    now = threading.local()  # a batch and a deferred job wait for each other in threads of their own

    def commit(self, entries: DataFrame, said: tuple[str, int, Any], **how: bool) -> Row:
        """Under which name crashes are looked for."""
        self.now.kind = next((kind for kind in ("fill", "later") if said[0].startswith(f"{kind}-")), "live")
        return super().commit(entries, said, **how)

    def _merge(self, *given: Any, **named: Any) -> None:
        self._perhaps("made")
        super()._merge(*given, **named)
        self._perhaps("committed")

    def _end(self, attempts: Any) -> None:
        super()._end(attempts)
        self._perhaps("ended")

    def _perhaps(self, step: str) -> None:
        kind: str = self.now.kind
        if (kind, step) in self.left:
            self.left.remove((kind, step))
            raise Crash(f"Crash at {kind} {step}")


class Log:
    """Three tables and the log of their changes."""

    def __init__(self, kafka: str, prefix: str) -> None:
        self.producer, self.prefix = Producer({"bootstrap.servers": kafka}), prefix
        self.rows: dict[str, dict[int, dict[str, Any]]] = {"parents": {}, "kids": {}, "toys": {}}
        self.lsn, self.count = 8_000_000, 0

    def put(self, table: str, key: int, **values: Any) -> None:
        """A row as it is from now on; without values it is gone."""
        self.lsn += 8
        source = {"schema": "public", "table": table, "lsn": self.lsn, "ts_ms": 1, "sequence": f'[null,"{self.lsn}"]'}
        op = "u" if key in self.rows[table] else "c"
        after = {"id": key, **values} if values else None
        if after is None:
            op = "d"
            self.rows[table].pop(key, None)
        else:
            self.rows[table][key] = after
        change = {"op": op, "source": source, "before": None, "after": after}
        self._produce(table, key, orjson.dumps(change))
        if after is None:
            self._produce(table, key, None)

    def _produce(self, table: str, key: int, value: bytes | None) -> None:
        self.producer.produce(f"{self.prefix}.{table}", key=orjson.dumps({"id": key}), value=value)
        self.producer.poll(0)
        self.count += 1

    def end(self) -> int:
        """All records are in the log; how many there are."""
        assert self.producer.flush(30) == 0
        return self.count

    def documents(self, *, counted: bool) -> dict[str, Any]:
        """What must be in the table."""
        found, kids = {}, Counter(kid["parent"] for kid in self.rows["kids"].values())
        for key, kid in self.rows["kids"].items():
            toys = sorted((toy for toy in self.rows["toys"].values() if toy["kid"] == key), key=lambda toy: toy["id"])
            parent = self.rows["parents"].get(kid["parent"])
            costs = [float(toy["cost"]) for toy in toys]
            found[str(key)] = {
                "id": key,
                "of": parent and {"name": parent["name"], **({"kids": kids[kid["parent"]]} if counted else {})},
                "toys": [{"id": toy["id"], "cost": toy["cost"]} for toy in toys],
                "spent": f"{sum(costs):.2f}" if costs else None,
            }
        return found


def main(said: Mapping[str, Any]) -> dict[str, Any]:
    """Fill, change, crash, look."""
    folder, log = Path(said["folder"]), Log(said["kafka"], said["topic"])
    lake = SimpleNamespace(
        catalog_uri=str(folder / "c.db"), warehouse=str(folder / "w"), namespace="shop", format_version=3
    )
    spark = build_session(
        "test",
        master="local[2]",
        jars=artifacts.spark_jars()[0].parent,
        log=folder / "spark.log",
        driver_memory="512m",
        conf=catalog_settings(CATALOG, iceberg.spark_properties(lake)),
    )
    try:
        lease = Lease(folder / "g1", "tested")
        lease.take()
        begin(log)
        found = {}
        for number, name in enumerate(("kids", "counted")):
            start = partial(
                start_joined, tabled=partial(Crashing, sink=lake, catalog=CATALOG, lease=lease, owner="test/lake")
            )
            found[name] = followed(partial(start, spark), flow_of(said, name, lease.token), log, lake, number)
        return found
    finally:
        spark.stop()


def followed(start: Callable[[Flow], JoinedQuery], flow: Flow, log: Log, lake: Any, number: int) -> dict[str, Any]:
    """One view's flow, from its fill to the log's end, with all crashes."""
    # What comes after the fill is the same for both.
    kinds = ("fill",) if flow.name == "counted" else ("fill", "live", "later")
    Crashing.left = [(kind, step) for kind in kinds for step in STEPS]
    crashes = until(partial(start, flow), lambda query: is_live(flow.folder))
    filled = held(lake, flow.name)
    for turn in range(len(kinds)):
        change(log, number * len(STEPS) + turn)
        crashes += until(partial(start, flow), lambda query: _read(flow) >= log.end() and query.waiting == 0)
    store = flow.spec.row_store or {}
    with Redis.from_url(store["url"]) as client:
        pending = [key.decode() for key in client.scan_iter(match=f"{store['namespace']}u:*")]
    return {
        "crashes": crashes,
        "left": Crashing.left,
        "filled": len(filled),
        "table": held(lake, flow.name),
        "wanted": log.documents(counted=flow.name == "counted"),
        "pending": pending,
    }


def flow_of(said: Mapping[str, Any], name: str, token: int) -> Flow:
    """The flow of one of the views above."""
    made, topic = view(name), said["topic"]
    letters = letters_to(f"{topic}-letters", {"bootstrap.servers": said["kafka"]}, 10 << 20)
    tables = {f"{topic}.{one.name}": one for one in (PARENTS, KIDS, TOYS)}
    namespace = f"{topic}:{name}:"
    store = {"url": said["store"], "namespace": namespace, "title": "crashes", "token": token, "give_up_seconds": 30.0}
    spec = FlowSpec(
        "lake", {made.name: made}, dict.fromkeys(tables, (made.name,)), tables, {}, letters, row_store=store
    )
    reading = Reading(said["kafka"], {}, 900)  # several slices a fill
    return Flow(made.name, spec, reading, Path(said["folder"]) / "g1" / made.name)


def begin(log: Log) -> None:
    """What is there before the fill; kids of one parent are more than a batch makes at once."""
    for key in range(3):
        log.put("parents", key, name=f"parent {key}")
    for key in range(FAN_OUT + 300):
        log.put("kids", key, parent=1 if key > 50 else 2)
    for key in range(100):
        log.put("toys", key, kid=key % 40, cost="1.25")
    for key in range(300):  # they are in two slices of a fill
        log.put("kids", key, parent=1 if key > 60 else 2)
    log.end()


def change(log: Log, number: int) -> None:
    """A fan-out to all, rows that come, move and go."""
    log.put("parents", 1, name=f"renamed {number}")
    for key in range(number * 10, number * 10 + 10):
        log.put("toys", key, kid=key + 45, cost="2.50")
        log.put("kids", key + 60)
    log.put("toys", 90 + number)
    log.put("kids", 5000 + number, parent=0)
    log.put("kids", number, parent=7)
    log.end()


def until(start: Callable[[], JoinedQuery], done: Callable[[JoinedQuery], bool]) -> list[str]:
    """Run until all is done, beginning anew after each crash; how it crashed."""
    crashes, ends = [], time.monotonic() + SECONDS
    while True:
        query = start()
        while query.isActive and not done(query):
            if time.monotonic() > ends:
                raise SystemExit(f"it did not come to an end: {query.status}, {crashes}, {Crashing.left}")
            time.sleep(0.05)
        query.stop()
        error = query.exception()
        if error is None:
            return crashes
        if "Crash" not in f"{error!r}{error}":
            raise error
        crashes.append(str(error).strip().splitlines()[-1][-200:])


def _read(flow: Flow) -> int:
    return sum(sum(parts.values()) for parts in committed_offsets(flow.checkpoint)[1].values())


def held(lake: Any, name: str) -> dict[str, Any]:
    """What the table holds; a row that is there twice ends the test."""
    found: dict[str, Any] = {}
    for batch in iceberg.scan(lake, CATALOG, name):
        for row in batch.to_pylist():
            del row[VERSION_COLUMN]
            if str(row["id"]) in found:
                raise SystemExit(f"{row} is there twice")
            found[str(row["id"])] = json.loads(json.dumps(row, default=str))
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
