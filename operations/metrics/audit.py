"""An audit's totals, as a metrics file of Prometheus' node exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from operations.metrics.families import Labelled, counter, gauge

KINDS = ("missing", "extra", "changed")


class Totals:
    """What the audit has seen so far.

    Args:
        every: seconds from the end of one verification to the start of the next.

    Attributes:
        runs, errors: how often it has run, and how often it could not.
        seconds: how long the last one took.
        report: of the last one that could be made; of a view that could not be compared in it, what was found before.
        succeeded: when all sinks were compared last (epoch seconds); None for never.
        repaired: documents repaired so far, of each (sink, view).
    """

    def __init__(self, every: float) -> None:
        self.every = every
        self.runs = self.errors = 0
        self.seconds = 0.0
        self.report: Mapping[str, Any] | None = None
        self.succeeded: float | None = None
        self.repaired: dict[tuple[str, str], int] = {}

    def take(self, report: Mapping[str, Any]) -> None:
        """Remember a report; a sink that could not be verified counts as an error."""
        before = {} if self.report is None else {sink["sink"]: sink["views"] for sink in self.report["sinks"]}
        failed = any(sink.get("error") for sink in report["sinks"])
        self.report = {**report, "sinks": [_known(sink, before.get(sink["sink"], ())) for sink in report["sinks"]]}
        self.errors += failed
        self.succeeded = self.succeeded if failed else report["at"]
        for labels, view in views_of(report):
            at = (labels["sink"], labels["view"])
            self.repaired[at] = self.repaired.get(at, 0) + (view["repaired"] or 0)


def _known(sink: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A sink's report; one that was not compared is as it was: what differed does so until it is looked at."""
    if not sink.get("error") and not _left_out(sink):
        return sink
    views = {view["view"]: view for view in (*before, *sink["views"])}
    return {**sink, "views": list(views.values())}


def _left_out(sink: Mapping[str, Any]) -> bool:
    """Whether nobody has looked at a sink, because it is paused."""
    return bool(sink.get("paused")) and not sink["views"]


def metrics(name: str, totals: Totals) -> str:
    """The metric file's text."""
    register = CollectorRegistry()
    register.register(_Audit(name, totals))
    return generate_latest(register).decode()


class _Audit(Collector):
    """The totals of one pipeline's audit as metrics; each bears the pipeline's name."""

    def __init__(self, name: str, totals: Totals) -> None:
        self.own, self.totals = {"pipeline": name}, totals

    def collect(self) -> Iterator[Metric]:
        """Every metric, as docs/metrics.md lists them."""
        own, totals = self.own, self.totals
        yield _counter("runs", "Verifications so far.", [(own, totals.runs)])
        yield _counter("errors", "Verifications that could not be made.", [(own, totals.errors)])
        yield _gauge("duration_seconds", "How long the last one took.", [(own, round(totals.seconds, 3))])
        yield _gauge("every_seconds", "From the end of one to the start of the next.", [(own, totals.every)])
        if totals.report is not None:
            yield from self._of_the_last(totals.report)

    def _of_the_last(self, report: Mapping[str, Any]) -> Iterator[Metric]:
        own = self.own
        views = [({**own, **labels}, view) for labels, view in views_of(report)]
        kinds = [({**labels, "kind": kind}, view) for labels, view in views for kind in KINDS]
        sample = report["sample"]["rows"] if report["sample"] else 0
        repaired = [(of, self.totals.repaired.get((of["sink"], of["view"]), 0)) for of, _ in views]
        succeeded = self.totals.succeeded
        last = [] if succeeded is None else [(own, succeeded)]
        yield _gauge("last_success_timestamp_seconds", "When all sinks were compared last.", last)
        # A sink that could not be compared does not differ for that: it has a metric of its own.
        equal = not any(view["differences"] for _, view in views)
        yield _gauge("equal", "1 if nothing differed.", [(own, int(equal))] if views else [])
        unverified = [({**own, "sink": sink["sink"]}, int(bool(sink.get("error")))) for sink in report["sinks"]]
        yield _gauge("unverified", "1 if the sink could not be compared, or not all of it.", unverified)
        yield _gauge("sample_rows", "Rows of a sample; 0 if all were compared.", [(own, sample)])
        yield _gauge("rows", "Rows that were compared.", [(of, view["expected"]) for of, view in views])
        yield _gauge("differences", "Keys that differ.", [(of, view["differences"]) for of, view in views])
        moving = [(of, view["undecided"]) for of, view in views]
        yield _gauge("undecided", "Keys whose rows never stood still.", moving)
        # What an older Headwater has noted lacks these.
        unseen = [(of, view.get("invisible", 0)) for of, view in views]
        yield _gauge("invisible", "Keys whose newest change can't be seen in Postgres yet.", unseen)
        doubtful = [(of, view.get("doubtful", 0)) for of, view in views]
        yield _gauge(
            "doubtful",
            "Keys that differ, and may be right: expired, or of events that may have been given up.",
            doubtful,
        )
        named = "Differing keys that the report names, by kind; it names 20 of each at the most."
        yield _gauge("named_differences", named, [(of, len(view[of["kind"]])) for of, view in kinds])
        yield _counter("repaired", "Documents repaired since the audit began.", repaired)


def views_of(report: Mapping[str, Any]) -> list[tuple[dict[str, str], Mapping[str, Any]]]:
    """What a report says of each view, by the labels ``sink`` and ``view``."""
    return [({"sink": s["sink"], "view": view["view"]}, view) for s in report["sinks"] for view in s["views"]]


def _gauge(name: str, said: str, values: Labelled) -> Metric:
    return gauge(f"headwater_verify_{name}", said, values)


def _counter(name: str, said: str, values: Labelled) -> Metric:
    return counter(f"headwater_verify_{name}", said, values)
