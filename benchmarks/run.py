"""``make bench``: measure, print, and write ``benchmarks/results/latest.json``.

``python -m benchmarks.run joins state`` measures only the named parts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import (
    avro,
    erase,
    first,
    fresh,
    hot,
    idle,
    joins,
    lake,
    lake_jdbc,
    lake_peers,
    loads,
    opensearch,
    page,
    push,
    rebuild,
    rest,
    ryw,
    scaling,
    schema,
    search,
    stack,
    standing,
    state,
    status,
    streams,
    suite,
    tables,
    upkeep,
    warehouse,
)
from benchmarks.pipeline import Bench
from benchmarks.results import LATEST, Measurement, write

# Name -> what measures it by itself; `loads` and `idle` share a pipeline.
ALONE: Mapping[str, Callable[[], list[Measurement]]] = {
    "state": state.measure,
    "joins": joins.measure,
    "joins_1m": joins.measure_million,
    "rebuild": rebuild.measure,
    "scaling": scaling.measure,
    "avro": avro.measure,
    "search": search.measure,
    "opensearch": opensearch.measure,
    "preview": first.measure_preview,
    "init": first.measure_init,
    "schema": schema.measure,
    "ryw": ryw.measure,
    "status": status.measure,
    "page": page.measure,
    "push": push.measure,
    "rest": rest.measure,
    "hot": hot.measure,
    "tables": tables.measure,
    "fresh": fresh.measure,
    "lake": lake.measure,
    "lake_peers": lake_peers.measure,
    "lake_jdbc": lake_jdbc.measure,
    "warehouse": warehouse.measure,
    "upkeep": upkeep.measure,
    "erase": erase.measure,
    "streams": streams.measure,
    "standing": standing.measure,
    "upkeep_10k": upkeep.measure_all,
    "suite": suite.measure,
}
# Take a quarter of an hour, half an hour and hours, and the machine for themselves; or fetch what nothing else needs.
ONLY_BY_NAME = ("suite", "joins_1m", "upkeep_10k", "lake_peers", "lake_jdbc")
PARTS = ("stack", "loads", "idle", *(name for name in ALONE if name not in ONLY_BY_NAME))


def main(parts: tuple[str, ...]) -> None:
    """Measure the named parts; by default all but those that want to be named."""
    unknown = set(parts) - {*PARTS, *ONLY_BY_NAME}
    if unknown:
        sys.exit(f"no such part: {', '.join(unknown)}; choose from {', '.join((*PARTS, *ONLY_BY_NAME))}")
    chosen = parts or PARTS
    if "stack" in chosen:
        _report(stack.measure())
    if {"loads", "idle"} & set(chosen):
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            bench = Bench(Path(folder))
            with bench.applied():
                if "loads" in chosen:
                    _report(loads.measure(bench))
                if "idle" in chosen:
                    _report(idle.measure(bench))
    for name, measure in ALONE.items():
        if name in chosen:
            _report(measure())
    print(f"written to {LATEST.relative_to(Path.cwd()) if LATEST.is_relative_to(Path.cwd()) else LATEST}")


def _report(found: list[Measurement]) -> None:
    for measurement in found:
        print(measurement.line(), flush=True)
    write(found)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
