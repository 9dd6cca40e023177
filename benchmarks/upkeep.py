"""Do reads of a warehouse's table stay as quick as of one that was just written, after many micro-batches?

``python -m benchmarks.run upkeep`` runs as many batches as ten minutes have, or HEADWATER_UPKEEP_BATCHES; ``make
bench-upkeep`` ten thousand, which takes hours: with HEADWATER_UPKEEP_FOLDER, a folder that stays, what was broken off
goes on where it was; a folder that is finished is refused. Figures of ten thousand have names of their own. The table
has a million rows; a batch changes 440 all over it and adds 60. Read by Spark and by DuckDB, in turns with a table of
the same rows that was written a moment ago.
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
from benchmarks.upkeep_work import ENGINES, Progress

BATCHES, UNMAINTAINED, ALL = int(os.environ.get("HEADWATER_UPKEEP_BATCHES", "220")), 110, 10_000
PEER = "a table of the same rows, just written"
FORMAT = "3"


def measure(batches: int = BATCHES, unmaintained: int = UNMAINTAINED, part: str = "upkeep") -> list[Measurement]:
    """Ratios of reads, with upkeep and without, and what upkeep costs."""
    command = f"python -m benchmarks.run {part}"
    name, short = ("warehouse_read_after_10k_batches_ratio", "")
    if batches != ALL:  # what few batches do must not stand where ten thousand were measured
        name, short = "warehouse_read_after_batches_ratio", "/short"
    with _folder() as folder, tempfile.TemporaryDirectory(prefix="headwater-bench-") as other:
        Progress.of(folder, batches)  # what is refused is refused before anything is measured
        left = _work(Path(other), unmaintained, on=False)
        kept = _work(folder, batches, on=True)  # last: hours of work are not lost by what fails after it
    means = {engine: statistics.mean(one[engine] for one in kept["ratios"]) for engine in ENGINES}
    worst = {engine: max(one[engine] for one in kept["ratios"]) for engine in ENGINES}

    def ratio(of: str, value: float, count: int = batches) -> Measurement:
        return Measurement(f"{name}{of}", round(value, 3), "ratio", count, PEER, 1.0, round(value, 3), command=command)

    return [
        ratio("", max(means.values())),
        *(ratio(f"/{engine}", value) for engine, value in means.items()),
        *(ratio(f"/{engine}_worst_moment", value) for engine, value in worst.items()),
        *(ratio(f"/{engine}_without_upkeep", left["ratios"][-1][engine], unmaintained) for engine in ENGINES),
        Measurement(f"warehouse_upkeep_share{short}", _share(kept), "ratio", batches, command=command),
        Measurement(f"warehouse_upkeep_longest_s{short}", round(kept["longest_s"], 2), "s", batches, command=command),
        Measurement(f"warehouse_small_merge_p50_s{short}", round(kept["merge_s"], 3), "s", batches, command=command),
    ]


measure_all = partial(measure, ALL, UNMAINTAINED, "upkeep_10k")


def _share(kept: dict[str, Any]) -> float:
    upkeep, merges = float(kept["upkeep_s"]), float(kept["merges_s"])
    return round(upkeep / (upkeep + merges), 3)


@contextmanager
def _folder() -> Iterator[Path]:
    if kept := os.environ.get("HEADWATER_UPKEEP_FOLDER"):
        folder = Path(kept).absolute()  # the program that works in it stands elsewhere
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as made:
        yield Path(made)


def _work(folder: Path, batches: int, *, on: bool) -> dict[str, Any]:
    module = "benchmarks.upkeep_work"
    argv = [sys.executable, "-m", module, str(folder), str(batches), FORMAT, "on" if on else "off"]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(argv, cwd=Path(__file__).parents[1], env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


__all__ = ["measure", "measure_all"]
