"""Flows of windows over records of a test's own, in a process of its own that may be killed.

``python -m tests.support.timed SPEC`` runs the view that the JSON names into its sink until all records are committed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from cdc.catalogue import Column, Table
from cdc.timed import Measure, WindowView, micros_of
from spark.windows import analyse_windows, start_windows
from tests.support.folds import OUTBOX, run

EVENTS = Table(
    "public",
    "outbox",
    (*OUTBOX.columns, Column("at", "timestamptz", "timestamptz", ordinal=6)),
    ("id",),
)
SIZE, SLIDE, GAP, DELAY, CORRECT = (
    micros_of(text) for text in ("1 hour", "30 minutes", "5 minutes", "10 minutes", "1 day")
)
_BASE = WindowView(
    "views",
    EVENTS,
    ("id",),
    (),
    time="at",
    delay=DELAY,
    condition="type <> 'noise'",
    by={"about": "aggregateid", "kind": "type"},
    groupings=(("about", "kind"), ("kind",), ()),
    measures={
        "n": Measure("count", "*"),
        "amounts": Measure("count", "get_json_object(payload, '$.amount')"),
        "total": Measure("sum", "cast(get_json_object(payload, '$.amount') as decimal(12,2))"),
        "mean": Measure("avg", "cast(get_json_object(payload, '$.amount') as decimal(12,2))"),
        "least": Measure("min", "cast(get_json_object(payload, '$.amount') as decimal(12,2))"),
        "latest": Measure("max", "at"),
        "word": Measure("max", "type"),
        "users": Measure("approx_count_distinct", "get_json_object(payload, '$.user')"),
        "p90": Measure("percentile", "cast(get_json_object(payload, '$.amount') as double)", 0.9),
    },
)
VIEWS = {
    "tumbling": replace(_BASE, size=SIZE, slide=SIZE),
    "hopping": replace(_BASE, size=SIZE, slide=SLIDE, groupings=(("about",),), by={"about": "aggregateid"}),
    "corrected": replace(_BASE, size=SIZE, slide=SIZE, correct=CORRECT),
    "session": replace(_BASE, gap=GAP, groupings=(("about",),), by={"about": "aggregateid"}),
}


def main(text: str) -> None:
    """Run the flow to the log's end."""
    said = json.loads(text)
    view = replace(VIEWS[said["view"]], topics=(said["topic"],))
    run(said, lambda spark: analyse_windows(spark, view), start_windows)


if __name__ == "__main__":
    main(sys.argv[1])
