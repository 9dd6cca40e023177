"""``headwater verify --every``: an audit that never ends, its result a metric.

The file is in Prometheus's text format, replaced in one step each time, for a node exporter's textfile collector.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cdc.errors import ConfigError, HeadwaterError
from cdc.pipeline import Pipeline
from console.comparing import Asked
from console.places import state_dir
from console.verify import verified
from spark.files import write_atomic

KINDS = ("missing", "extra", "changed")


class _Ended(Exception):
    """Somebody asked the audit to stop while it waited for a sink."""


def audit(pipeline: Pipeline, asked: Asked, every: float) -> None:
    """Verify until SIGTERM or SIGINT.

    Args:
        pipeline: the loaded file.
        asked: what to verify; each time another sample.
        every: seconds from the end of one verification to the start of the next.

    Raises:
        ConfigError: what is asked can never be done (no such sink).
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    totals = Totals()
    path = metric_file(pipeline)
    while not stop.is_set():
        started = time.monotonic()
        try:
            report = verified(pipeline, replace(asked, seed=asked.seed + totals.runs), on_pause=_ender(stop))
        except _Ended:
            break
        except ConfigError:
            raise
        except HeadwaterError as error:  # a server that is down comes back; the audit is still there then
            totals.errors += 1
            click.echo(f"{_clock()} could not verify: {error.what}", err=True)
        else:
            totals.take(report)
            click.echo(line(report), err=True)
        totals.runs += 1
        totals.seconds = time.monotonic() - started
        write_atomic(path, metrics(pipeline.name, totals))
        stop.wait(every)


def metric_file(pipeline: Pipeline) -> Path:
    """Where the result is."""
    return state_dir(pipeline) / pipeline.name / "verify.prom"


def _ender(stop: threading.Event) -> Callable[[], None]:
    def on_pause() -> None:
        if stop.is_set():
            raise _Ended

    return on_pause


class Totals:
    """What the audit has seen so far.

    Attributes:
        runs, errors: how often it has run, and how often it could not.
        seconds: how long the last one took.
        report: of the last one that could be made.
        repaired: documents repaired so far, of each (sink, view).
    """

    def __init__(self) -> None:
        self.runs = self.errors = 0
        self.seconds = 0.0
        self.report: Mapping[str, Any] | None = None
        self.repaired: dict[tuple[str, str], int] = {}

    def take(self, report: Mapping[str, Any]) -> None:
        """Remember a report; a sink that could not be verified counts as an error."""
        self.report = report
        self.errors += any(sink.get("error") for sink in report["sinks"])
        for labels, view in _views(report):
            at = (labels["sink"], labels["view"])
            self.repaired[at] = self.repaired.get(at, 0) + (view["repaired"] or 0)


def line(report: Mapping[str, Any]) -> str:
    """One run in one line."""
    rows = sum(view["expected"] for _, view in _views(report))
    wrong = [f"{labels['sink']}/{labels['view']} {v['differences']:,} differ" for labels, v in _views(report)
             if v["differences"]]  # fmt: skip
    wrong += [f"{sink['sink']} could not be verified" for sink in report["sinks"] if sink.get("error")]
    verdict = ", ".join(wrong) or "equal"
    what = "rows of a sample" if report["sample"] else "rows"
    return f"{_clock()} {rows:,} {what} in {report['seconds']:.1f} s: {verdict}"


def metrics(name: str, totals: Totals) -> str:
    """The metric file's text."""
    own = {"pipeline": name}
    out = [
        *_metric("runs_total", "counter", "Verifications so far.", [(own, totals.runs)]),
        *_metric("errors_total", "counter", "Verifications that could not be made.", [(own, totals.errors)]),
        *_metric("duration_seconds", "gauge", "How long the last one took.", [(own, round(totals.seconds, 3))]),
    ]
    report = totals.report
    if report is None:
        return "\n".join([*out, ""])
    views = [({**own, **labels}, view) for labels, view in _views(report)]
    kinds = [({**labels, "kind": kind}, view) for labels, view in views for kind in KINDS]
    sample = report["sample"]["rows"] if report["sample"] else 0
    repaired = [({**labels}, self_of(totals, labels)) for labels, _ in views]
    out += _metric("last_success_timestamp_seconds", "gauge", "When a result was last had.", [(own, report["at"])])
    out += _metric("equal", "gauge", "1 if nothing differed.", [(own, int(report["equal"]))])
    out += _metric("sample_rows", "gauge", "Rows of a sample; 0 if all were compared.", [(own, sample)])
    out += _metric("rows", "gauge", "Rows that were compared.", [(of, view["expected"]) for of, view in views])
    out += _metric("differences", "gauge", "Keys that differ.", [(of, view["differences"]) for of, view in views])
    out += _metric("undecided", "gauge", "Keys whose rows never stood still.", [(o, v["undecided"]) for o, v in views])
    named = "Differing keys that the report names, by kind; it names 20 of each at the most."
    out += _metric("named_differences", "gauge", named, [(of, len(view[of["kind"]])) for of, view in kinds])
    out += _metric("repaired_total", "counter", "Documents repaired since the audit began.", repaired)
    return "\n".join([*out, ""])


def self_of(totals: Totals, labels: Mapping[str, str]) -> int:
    """Documents repaired of one view."""
    return totals.repaired.get((labels["sink"], labels["view"]), 0)


def _views(report: Mapping[str, Any]) -> list[tuple[dict[str, str], Mapping[str, Any]]]:
    return [({"sink": s["sink"], "view": view["view"]}, view) for s in report["sinks"] for view in s["views"]]


def _metric(name: str, kind: str, said: str, values: Sequence[tuple[Mapping[str, str], float]]) -> list[str]:
    full = f"headwater_verify_{name}"
    lines = [f"# HELP {full} {said}", f"# TYPE {full} {kind}"]
    for labels, value in values:
        listed = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{full}{{{listed}}} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _clock() -> str:
    return time.strftime("%H:%M:%S")
