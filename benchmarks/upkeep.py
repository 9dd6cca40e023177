"""Do reads of a warehouse's table stay as quick as of one that was just written, after many micro-batches?

``python -m benchmarks.run upkeep`` runs as many batches as ten minutes have, or HEADWATER_UPKEEP_BATCHES; ``make
bench-upkeep`` ten thousand, which takes hours: with HEADWATER_UPKEEP_FOLDER, a folder that stays, what was broken off
goes on where it was. The table has a million rows; a batch changes 440 all over it and adds
60. Read by Spark and by DuckDB, in turns with a table of the same rows that was written a moment ago.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results import Measurement
from benchmarks.upkeep_work import ENGINES

NAME, PEER = "warehouse_read_after_10k_batches_ratio", "a table of the same rows, just written"
BATCHES, UNMAINTAINED, ALL = int(os.environ.get("HEADWATER_UPKEEP_BATCHES", "220")), 110, 10_000
FORMAT = "3"


def measure(batches: int = BATCHES, unmaintained: int = UNMAINTAINED, part: str = "upkeep") -> list[Measurement]:
    """Ratios of reads, with upkeep and without, and what upkeep costs."""
    command = f"python -m benchmarks.run {part}"
    kept, left = _work(batches, on=True), _work(unmaintained, on=False)
    means = {engine: statistics.mean(one[engine] for one in kept["ratios"]) for engine in ENGINES}
    worst = {engine: max(one[engine] for one in kept["ratios"]) for engine in ENGINES}

    def ratio(name: str, value: float, count: int = batches) -> Measurement:
        return Measurement(name, round(value, 3), "ratio", count, PEER, 1.0, round(value, 3), command=command)

    return [
        ratio(NAME, max(means.values())),
        *(ratio(f"{NAME}/{engine}", value) for engine, value in means.items()),
        *(ratio(f"{NAME}/{engine}_worst_moment", value) for engine, value in worst.items()),
        *(ratio(f"{NAME}/{engine}_without_upkeep", left["ratios"][-1][engine], unmaintained) for engine in ENGINES),
        Measurement("warehouse_upkeep_share", _share(kept), "ratio", batches, command=command),
        Measurement("warehouse_upkeep_longest_s", round(kept["longest_s"], 2), "s", batches, command=command),
        Measurement("warehouse_small_merge_p50_s", round(kept["merge_s"], 3), "s", batches, command=command),
    ]


measure_all = partial(measure, ALL, UNMAINTAINED, "upkeep_10k")


def _share(kept: dict[str, Any]) -> float:
    upkeep, merges = float(kept["upkeep_s"]), float(kept["merges_s"])
    return round(upkeep / (upkeep + merges), 3)


@contextmanager
def _folder(*, on: bool) -> Iterator[str]:
    if on and (kept := os.environ.get("HEADWATER_UPKEEP_FOLDER")):
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        yield folder


def _work(batches: int, *, on: bool) -> dict[str, Any]:
    with _folder(on=on) as folder:
        module = "benchmarks.upkeep_work"
        argv = [sys.executable, "-m", module, folder, str(batches), FORMAT, "on" if on else "off"]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        ran = subprocess.run(
            argv, cwd=Path(__file__).parents[1], env=env, stdout=subprocess.PIPE, text=True, check=True
        )
        found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        return found


__all__ = ["measure", "measure_all"]
