"""Batches that are kept for who looks: what took the time, from where to where in the log; operations by table."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from operations.overview.changes import Rates
from operations.overview.kept import _told
from spark.disk.batches import KEPT, batch_of, keep, kept, read_batches
from spark.disk.status import FlowStatus
from spark.meter import Meter


def report(number: int, position: int | None = 5 << 21, **more: Any) -> Any:
    """As Spark tells of a batch."""
    row = (
        None if position is None else SimpleNamespace(asDict=lambda: {"written": 3, "records": 4, "position": position})
    )
    took = {"triggerExecution": 200, "addBatch": 150, "latestOffset": 10, "queryPlanning": 20, "walCommit": 15}
    return SimpleNamespace(
        batchId=number, durationMs=took, observedMetrics={"applied": row}, timestamp="2026-11-21T10:00:00.000Z", **more
    )


def test_parts_add_up_to_the_whole() -> None:
    one = kept(batch_of(report(3)), 4 << 21)
    assert one.parts == {"offsets": 10, "plan": 20, "apply": 150, "commit": 15, "other": 5}
    assert (one.ms, one.at, one.after, one.position, one.written) == (200, 1795255200.0, 4 << 21, 5 << 21, 3)
    told = _told(one)
    assert (told["from_lsn"], told["to_lsn"], told["slowest"]) == ("0/800000", "0/A00000", "apply")
    fill = SimpleNamespace(batchId=1, durationMs={"addBatch": 7, "triggerExecution": 7}, observedMetrics={})
    one = kept(batch_of(fill), 0)  # names no moment, and has applied nothing
    assert abs(one.at - time.time()) < 5 and _told(one)["to_lsn"] is None and _told(one)["from_lsn"] is None


def test_a_meter_tells_each_batch_once_and_where_the_one_before_had_come() -> None:
    meter = Meter()
    query = SimpleNamespace(recentProgress=[report(1, 5 << 21), report(2, None), report(3, 7 << 21)])
    meter.read(query)
    meter.read(query)
    assert [(one.batch, one.after, one.position) for one in meter.fresh] == [
        (1, 0, 5 << 21),
        (2, 5 << 21, 0),
        (3, 5 << 21, 7 << 21),
    ]


def test_the_newest_batches_are_kept_over_processes(tmp_path: Path) -> None:
    for start in (0, KEPT - 1):
        keep(tmp_path, [kept(batch_of(report(start + number)), 0) for number in range(KEPT - 1)])
    newest = read_batches(tmp_path)
    assert len(newest) == KEPT and [one.batch for one in newest[:2]] == [2 * KEPT - 3, 2 * KEPT - 4]
    (tmp_path / "batches.json").write_text('[{"batch"')
    assert read_batches(tmp_path) == [] and read_batches(tmp_path / "nowhere") == []


def test_what_is_written_is_all_of_it(tmp_path: Path) -> None:
    """As `asdict` would have it, which took most of the time of each writing."""
    batches = [kept(batch_of(report(number, number << 21)), 3) for number in range(3)]
    keep(tmp_path, batches)
    assert (tmp_path / "batches.json").read_text() == json.dumps([asdict(one) for one in reversed(batches)])
    assert read_batches(tmp_path) == batches[::-1]
    restarted = ({"at": 3.5, "reason": "ended"},)
    first = FlowStatus("a flow", "running", 7, 3, 9, 8, 7, 6, 5, 1 << 60, 2, 1, "ü", ("t", "u"), 1.5)
    status = replace(first, restarted=restarted, phase_ms={"plan": 3}, batch_buckets=[1, 0])
    status.write(tmp_path)
    assert (tmp_path / "status.json").read_text() == json.dumps(asdict(status))
    assert FlowStatus.read(tmp_path) == replace(status, topics=["t", "u"], restarted=list(restarted))


def test_rates_of_tables_are_over_the_last_while_and_never_negative() -> None:
    rates = Rates()

    def look(at: float, inserted: int | None) -> Any:
        one = {"table": "t", "inserted": inserted, "updated": 0, "deleted": None if inserted is None else 7}
        return rates.add(at, [one])

    assert look(0.0, 100) == {"t": {"inserted": None, "updated": None, "deleted": None}}
    assert look(10.0, 150)["t"] == {"inserted": 5.0, "updated": 0.0, "deleted": 0.0}
    assert look(20.0, 150)["t"]["inserted"] == 0.0  # the first look is too long ago
    assert look(21.0, 3)["t"]["inserted"] is None  # Postgres began to count anew
    assert look(22.0, None) == {}
