"""A span of OpenTelemetry for each batch of each flow, with links to the spans that wrote its records.

``policy.traces`` asks for it. The span is made once the batch has ended, of the times that Spark tells, so no batch
waits for anybody. Where somebody has set a provider (``opentelemetry-instrument headwater run``), that one is used;
else spans go by OTLP to where the variables of OpenTelemetry say (docs/logs.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from spark.disk.batches import Batch
from spark.flow import Flow
from spark.traces import HEADER

if TYPE_CHECKING:
    from opentelemetry.trace import Link, TracerProvider

SPAN = "headwater.batch"
# A collector that is away must not keep `run` from ending.
FLUSH_MS = 3_000
_log = logging.getLogger(__name__)


class BatchSpans:
    """Tells OpenTelemetry of batches.

    Args:
        pipeline: its name.
        provider: of spans.
        ours: whether it was made here, and is ended here.
    """

    def __init__(self, pipeline: str, provider: TracerProvider, *, ours: bool = False) -> None:
        self._pipeline, self._provider, self._ours = pipeline, provider, ours
        self._tracer = provider.get_tracer("headwater")

    def tell(self, flow: Flow, batch: Batch) -> None:
        """One that has ended. Whatever is wrong with it disturbs nobody."""
        from opentelemetry.trace import SpanKind

        try:
            began = round(batch.began * 1000) * 1_000_000  # Spark tells milliseconds
            span = self._tracer.start_span(
                SPAN,
                kind=SpanKind.CONSUMER,
                links=links(batch.traces),
                start_time=began,
                attributes=self._attributes(flow, batch),
            )
            span.end(began + batch.ms * 1_000_000)
        except Exception as error:  # an exporter of somebody else's
            _log.warning("a batch's span could not be told: %s", error, extra={**flow.about, "batch": batch.number})

    def _attributes(self, flow: Flow, batch: Batch) -> dict[str, Any]:
        about = {"pipeline": self._pipeline, **flow.about, "batch": batch.number, "position": batch.position}
        phases = {f"phase.{name}_ms": took for name, took in batch.phases.items()}
        return {f"headwater.{name}": value for name, value in {**about, **batch.counts, **phases}.items()}

    def close(self) -> None:
        """Send what is still to be sent."""
        if self._ours:
            flush, end = getattr(self._provider, "force_flush", None), getattr(self._provider, "shutdown", None)
            if flush is not None and end is not None:
                flush(FLUSH_MS)
                end()


def batch_spans(pipeline: Pipeline) -> BatchSpans | None:
    """What a pipeline's batches are told to; None when its file does not ask for it, and then nothing is imported.

    Raises:
        ConfigError: OpenTelemetry is not installed (terminal).
    """
    if not pipeline.policy.traces:
        return None
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError as error:
        raise ConfigError(
            f"policy.traces is on, and OpenTelemetry is not installed ({error.name} is missing)",
            means="nothing was started",
            fix="pip install 'headwater[otel]'; or leave policy.traces out",
        ) from error
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        return BatchSpans(pipeline.name, provider)
    return BatchSpans(pipeline.name, _exporting(), ours=True)


def _exporting() -> TracerProvider:
    """A provider that exports by OTLP; its address, headers and service name come from OTEL_* variables."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):  # no variable says another
        resource = resource.merge(Resource({SERVICE_NAME: "headwater"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def links(traces: Sequence[str]) -> list[Link]:
    """Links to the spans of these headers; what is none is left out."""
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    reader, found = TraceContextTextMapPropagator(), []
    for text in dict.fromkeys(traces):
        context = get_current_span(reader.extract({HEADER: text})).get_span_context()
        if context.is_valid:
            found.append(Link(context))
    return found
