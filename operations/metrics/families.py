"""Values with labels as metrics of Prometheus' client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

Labelled = Sequence[tuple[Mapping[str, str], float]]


def gauge(name: str, said: str, values: Labelled) -> Metric:
    """A gauge; each value with its labels, all with the same ones."""
    return _filled(GaugeMetricFamily, name, said, values)


def counter(name: str, said: str, values: Labelled) -> Metric:
    """A counter; its name gains ``_total``."""
    return _filled(CounterMetricFamily, name, said, values)


def histogram(
    name: str, said: str, values: Sequence[tuple[Mapping[str, str], Sequence[tuple[str, int]], float]]
) -> Metric:
    """A histogram; each value with its labels: (upper bound, how many up to it), the last ``+Inf``; and the sum."""
    made = HistogramMetricFamily(name, said, labels=list(values[0][0]) if values else ["pipeline"])
    for of, buckets, total in values:
        made.add_metric(list(of.values()), list(buckets), total)
    return made


def _filled(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, said: str, values: Labelled
) -> Metric:
    labels = list(values[0][0]) if values else ["pipeline"]
    made = kind(name, said, labels=labels)
    for of, value in values:
        made.add_metric([of[label] for label in labels], value)
    return made
