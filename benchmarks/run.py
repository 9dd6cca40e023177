"""``make bench``: measure, print, and write ``benchmarks/results/latest.json``.

``python -m benchmarks.run joins state`` measures only the named parts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks import avro, idle, joins, loads, rebuild, scaling, search, stack, state
from benchmarks.pipeline import Bench
from benchmarks.results import LATEST, Measurement, write

PARTS = ("stack", "loads", "idle", "joins", "state", "rebuild", "scaling", "avro", "search")


def main(parts: tuple[str, ...]) -> None:
    """Measure the named parts; all by default."""
    unknown = set(parts) - set(PARTS)
    if unknown:
        sys.exit(f"no such part: {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    chosen = parts or PARTS
    if "stack" in chosen:
        _report(stack.measure())
    if {"loads", "idle"} & set(chosen):
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            bench = Bench(Path(folder))
            bench.headwater("apply", "--wait")
            try:
                if "loads" in chosen:
                    _report(loads.measure(bench))
                if "idle" in chosen:
                    _report(idle.measure(bench))
            finally:
                bench.headwater("drop", "--topics", "--yes")
    if "state" in chosen:
        _report(state.measure())
    if "joins" in chosen:
        _report(joins.measure())
    if "rebuild" in chosen:
        _report(rebuild.measure())
    if "scaling" in chosen:
        _report(scaling.measure())
    if "avro" in chosen:
        _report(avro.measure())
    if "search" in chosen:
        _report(search.measure())
    print(f"written to {LATEST.relative_to(Path.cwd()) if LATEST.is_relative_to(Path.cwd()) else LATEST}")


def _report(found: list[Measurement]) -> None:
    for measurement in found:
        print(measurement.line(), flush=True)
    write(found)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
