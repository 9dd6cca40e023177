"""A span a batch, with links to the spans that wrote its records; nothing of it where nobody has asked for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline, load
from operations.run.batch_spans import BatchSpans, batch_spans, links
from spark.disk.batches import Batch
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from tests.support.lone_cache import FILE

ROOT = Path(__file__).parents[3]
FLOW = Flow("flight", FlowSpec("search", {}, {}, {}, {}, {}, generation=2), Reading("", {}, None), Path("f"))
COUNTS = {"records": 9, "written": 7, "retries": 0}


def header(number: int) -> str:
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


def batch(*traces: str) -> Batch:
    return Batch(41, 1_700_000_000.25, 1_500, {"apply": 1_200, "plan": 300}, COUNTS, 5, traces)


@pytest.fixture
def sent() -> Iterator[tuple[InMemorySpanExporter, BatchSpans]]:
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter, BatchSpans("shop", provider, ours=True)
    provider.shutdown()


def made(folder: Path, traces: str = "true") -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(FILE.format(folder=folder / "state") + f"policy: {{traces: {traces}}}\n")
    return load(path)


def test_a_batch_is_a_span_of_its_time_with_links(sent: tuple[InMemorySpanExporter, BatchSpans]) -> None:
    exporter, spans = sent
    spans.tell(FLOW, batch(header(1), header(2), "no header at all", header(1)))
    [span] = exporter.get_finished_spans()
    assert (span.name, span.kind.name) == ("headwater.batch", "CONSUMER")
    assert span.start_time == 1_700_000_000_250_000_000 and span.end_time == span.start_time + 1_500_000_000
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [(2, 2), (3, 3)]
    assert dict(span.attributes or {}) == {
        "headwater.pipeline": "shop",
        "headwater.sink": "search",
        "headwater.generation": 2,
        "headwater.flow": "flight",
        "headwater.batch": 41,
        "headwater.position": 5,
        "headwater.phase.apply_ms": 1_200,
        "headwater.phase.plan_ms": 300,
        **{f"headwater.{name}": count for name, count in COUNTS.items()},
    }


def test_what_is_no_span_is_no_link() -> None:
    assert links(["", "00-0-0-00", f"00-{'0' * 32}-{'0' * 16}-01"]) == []


def test_an_exporter_that_fails_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise RuntimeError("no room")

    provider: Any = SimpleNamespace(get_tracer=lambda _name: SimpleNamespace(start_span=fails))
    BatchSpans("shop", provider).tell(FLOW, batch())
    assert "a batch's span could not be told: no room" in caplog.text


def test_nobody_is_told_unless_the_file_asks_for_it(tmp_path: Path) -> None:
    assert batch_spans(made(tmp_path, "false")) is None
    told = (
        "import sys; from pathlib import Path; import operations.run.engine; from cdc.pipeline import load;"
        "from operations.run.batch_spans import batch_spans;"
        f"assert batch_spans(load(Path({str(tmp_path / 'pipeline.yaml')!r}))) is None;"
        # The API comes along with the client of Elasticsearch.
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))]"
    )
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_opentelemetry_it_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"OpenTelemetry is not installed[\s\S]*headwater\[otel\]"):
        batch_spans(made(tmp_path))


def test_somebody_elses_provider_is_used_and_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    spans = batch_spans(made(tmp_path))
    assert spans is not None
    spans.close()
    spans.tell(FLOW, batch(header(1)))
    assert len(exporter.get_finished_spans()) == 1
    provider.shutdown()


def test_one_of_our_own_is_ended_though_nobody_takes_its_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "flights")
    spans = batch_spans(made(tmp_path))
    assert spans is not None
    provider: Any = spans._provider
    assert provider.resource.attributes["service.name"] == "flights"
    spans.close()
    monkeypatch.delenv("OTEL_SERVICE_NAME")
    spans = batch_spans(made(tmp_path))
    assert spans is not None
    provider = spans._provider
    assert provider.resource.attributes["service.name"] == "headwater"
    spans.close()
