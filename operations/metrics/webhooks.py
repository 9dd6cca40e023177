"""How webhooks are, as metrics: from the notes in the state folder, as all metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from operations.metrics.families import counter, gauge
from operations.push.health import push_report

Samples = list[tuple[Mapping[str, str], float]]


def push_metrics(pipelines: Iterable[Pipeline]) -> Iterator[Metric]:
    """Every metric of webhooks, as docs/metrics.md lists them."""
    found: list[tuple[Mapping[str, str], dict[str, Any]]] = []
    for pipeline in pipelines:
        try:
            found += [({"pipeline": pipeline.name, "webhook": one["name"]}, one) for one in push_report(pipeline)]
        except (HeadwaterError, OSError):  # of the others is told
            continue
    # Nobody is alarmed of a pause, or of a file that was only saved.
    asked = [(of, one["state"]) for of, one in found if one["state"] not in ("paused", "unapplied")]
    well: Samples = [(of, int(state in ("delivering", "standby", "starting"))) for of, state in asked]
    yield gauge("headwater_push_well", "1 while the webhook takes events, 0 while it is failing or stopped.", well)
    for name, said, key in (
        ("lag_entries", "Changes of the view that wait for the webhook.", "lag_entries"),
        ("delivered_timestamp_seconds", "When a batch was last taken.", "delivered_at"),
    ):
        values: Samples = [(of, one[key]) for of, one in found if one[key] is not None]
        yield gauge(f"headwater_push_{name}", said, values)
    for name, said in (("events", "Events that were taken."), ("letters", "Batches that were refused.")):
        counted: Samples = [(of, one[name]) for of, one in found if one[name] is not None]
        yield counter(f"headwater_push_{name}", said, counted)
