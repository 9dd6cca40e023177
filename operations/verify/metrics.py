"""An audit's totals, as a metrics file of Prometheus' node exporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KINDS = ("missing", "extra", "changed")


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
