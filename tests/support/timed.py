"""Flows of windows and matches over records of a test's own, in a process of its own that may be killed.

``python -m tests.support.timed SPEC`` runs the view that the JSON names into its sink until all records are committed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from cdc.catalogue import Column, Table
from cdc.timed import Kind, MatchView, Measure, TimedView, WindowView, micros_of
from spark.events.matches import start_matches
from spark.events.states import analyse_stateful
from spark.events.windows import start_windows
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
        "sign": Measure("max", "get_json_object(payload, '$.sign')"),
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


_VIEWED = Kind("type = 'viewed'", "aggregateid", {"user": "get_json_object(payload, '$.user')", "seen": "at"})
_GREATER = Kind("type = 'größer'", "aggregateid", {"amount": "get_json_object(payload, '$.amount')"})
_PAIRS = MatchView("pairs", EVENTS, ("id",), (), time="at", delay=DELAY, within=GAP, first=_VIEWED, then=_GREATER)
MATCHES = {
    "all": _PAIRS,
    "corrected": replace(_PAIRS, correct=CORRECT),
    "followed": replace(_PAIRS, keep="followed"),
    "alone": replace(_PAIRS, keep="alone"),
    "threshold": replace(_PAIRS, then=None, count=3, within=micros_of("40 minutes")),
}

# Events' values of decimals of so many digits and such a scale, and their average. Of wide ones Spark SQL's `/` has few
# digits, what it rounds of (22,2) is rounded again, and for that of (38,2) there is no room.
AVERAGES: dict[str, tuple[list[str], str | None]] = {
    "x38_18": (["1", "2", "2"], "1.6666666666666666666667"),
    "x30_4": (["1", "2", "2"], "1.66666667"),
    "x22_2": (["0.01"] * 199 + ["0", "0"], "0.009900"),
    "x12_2": (["-0.01", "-0.02", "-0.02"], "-0.016667"),
    "x38_36": (["1.5", "-1.4"], "0.05"),
    "x38_2": (["1" + "0" * 35], None),
}


def averages() -> tuple[dict[str, Measure], list[dict[str, Any]]]:
    """The measures of AVERAGES, and the payloads of the events that they are of."""
    said = "cast(get_json_object(payload, '$.{}') as decimal({}))"
    measures = {name: Measure("avg", said.format(name, name[1:].replace("_", ","))) for name in AVERAGES}
    rows: list[dict[str, Any]] = [{} for _ in range(max(len(values) for values, _ in AVERAGES.values()))]
    for name, (values, _) in AVERAGES.items():
        for row, value in zip(rows, values, strict=False):
            row[name] = value
    return measures, rows


def main(text: str) -> None:
    """Run the flow to the log's end."""
    said = json.loads(text)
    windows = said["kind"] == "window"
    views: dict[str, TimedView] = {**(VIEWS if windows else MATCHES)}
    view = replace(views[said["view"]], topics=(said["topic"],))
    run(said, lambda spark: analyse_stateful(spark, view), start_windows if windows else start_matches)


if __name__ == "__main__":
    main(sys.argv[1])
