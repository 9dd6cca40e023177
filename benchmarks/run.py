"""``make bench``: measure, print, and write ``benchmarks/results/latest.json``.

``python -m benchmarks.run joins state`` measures only the named parts.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from cdc.errors import HeadwaterError

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
    """Measure the named parts; by default all but those that want to be named.

    One that fails leaves its figures as they were, and keeps no other from being measured: they take hours together.
    """
    unknown = set(parts) - {*PARTS, *ONLY_BY_NAME}
    if unknown:
        sys.exit(f"no such part: {', '.join(unknown)}; choose from {', '.join((*PARTS, *ONLY_BY_NAME))}")
    chosen = parts or PARTS
    shared = [name for name in ("loads", "idle") if name in chosen]
    work: dict[str, Callable[[], None]] = {"stack": lambda: _report(stack.measure())} if "stack" in chosen else {}
    if shared:
        work[" and ".join(shared)] = lambda: _of_one_pipeline(shared)
    work |= {name: partial(_alone, name) for name in ALONE if name in chosen}
    failed = [name for name, measure in work.items() if not _measured(name, measure)]
    print(f"written to {LATEST.relative_to(Path.cwd()) if LATEST.is_relative_to(Path.cwd()) else LATEST}")
    if failed:
        sys.exit(f"failed, and its figures are those of before: {', '.join(failed)}")


def _measured(name: str, measure: Callable[[], None]) -> bool:
    try:
        measure()
    except HeadwaterError as error:
        print(f"{name} failed: {error}", file=sys.stderr, flush=True)
    except Exception:
        print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    else:
        return True
    return False


def _of_one_pipeline(parts: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        bench = Bench(Path(folder))
        with bench.applied():
            if "loads" in parts:
                _report(loads.measure(bench))
            if "idle" in parts:
                _report(idle.measure(bench))


def _alone(name: str) -> None:
    _report(ALONE[name]())


def _report(found: list[Measurement]) -> None:
    for measurement in found:
        print(measurement.line(), flush=True)
    write(found)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
