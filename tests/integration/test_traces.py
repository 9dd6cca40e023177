"""The spans of applications in the headers of records come out as links of a batch's span, through Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from operations.run.batch_spans import BatchSpans
from spark.disk.batches import Batch
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from spark.traces import MOST
from tests.integration.test_flow_batches import VIEW, event, tombstone
from tests.support.servers import servers
from tests.support.sinks import subject_on

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

# More spans than a batch's may have links; of each two records, and some records without.
SPANS = 200


def header(number: int) -> str:
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


@pytest.fixture(scope="module")
def topic() -> Iterator[str]:
    servers().up(["kafka"])
    brokers, name = servers().endpoints.kafka, f"hwtest-{uuid.uuid4().hex[:8]}"
    admin, names = AdminClient({"bootstrap.servers": brokers}), [name, f"{name}-letters"]
    for future in admin.create_topics([NewTopic(one, 1, 1) for one in names]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(SPANS):
        more: list[Any] = [("other", b"\xff\x00"), ("traceparent", header(number).encode())]
        key, value = event(number, "made", 10 + number, "c")
        producer.produce(name, key=key, value=value, headers=more)
        producer.produce(name, key=key, value=event(number, "again", 1_000 + number)[1], headers=more)
    producer.produce(name, key=tombstone(1)[0], value=None)
    producer.produce(name, key=tombstone(2)[0], value=None, headers=[("traceparent", None)])
    assert producer.flush(30) == 0
    yield name
    for future in admin.delete_topics(names).values():
        future.result(30)


@pytest.fixture(scope="module", params=[True, False], ids=["on", "off"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, topic: str) -> Iterator[Any]:
    """(whether it is on, flow -> its batches)."""
    folder = tmp_path_factory.mktemp("flows")
    with subject_on(servers(), "redis") as subject:
        spec = {
            "folder": str(folder),
            "kafka": servers().endpoints.kafka,
            "topic": topic,
            "records": 2 * SPANS + 2,
            "conf": {},
            "sink": subject.config() | {"targets": {VIEW: {}}},
            "fields": {"length": "length(v)"},
            "where": None,
            "traces": request.param,
        }
        argv = [sys.executable, "-m", "tests.support.flows", json.dumps(spec)]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        ran = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-3000:]
        found = json.loads(ran.stdout.splitlines()[-1])
        yield request.param, {name: [Batch(**one) for one in found[name]["told"]] for name in ("warehouse", "cache")}


@pytest.mark.parametrize("flow", ["warehouse", "cache"])
def test_a_batch_is_linked_to_some_of_those_who_wrote_it(told: Any, flow: str) -> None:
    on, batches = told[0], told[1][flow]
    assert batches and sum(batch.counts["records"] for batch in batches) == 2 * SPANS + 2
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = BatchSpans("p", provider)
    for batch in batches:
        spans.tell(Flow(flow, FlowSpec(flow, {}, {}, {}, {}, {}), Reading("", {}, None), Path("f")), batch)
    made = exporter.get_finished_spans()
    provider.shutdown()
    assert len(made) == len(batches)
    linked = [link.context.trace_id for span in made for link in span.links]
    assert set(linked) <= {number + 1 for number in range(SPANS)}
    for span in made:
        assert len(span.links) <= MOST
    if on:
        assert max(len(span.links) for span in made) > MOST // 2, "200 spans fall into nearly all of 32 heaps"
    else:
        assert not linked


def test_phases_and_time_in_the_sink_are_measured(told: Any) -> None:
    _, batches = told
    assert all(batch.phases["apply"] > 0 and sum(batch.phases.values()) == batch.ms for batch in batches["cache"])
    assert sum(batch.counts["sink_us"] for batch in batches["cache"]) > 0
