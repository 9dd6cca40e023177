"""The initial load of OpenSearch, and its own ceiling with the same documents in the same run.

``python -m benchmarks.run opensearch``
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.loads import beside_ceiling
from benchmarks.pipeline import TEXT, Bench
from benchmarks.results import Measurement
from cdc.pipeline import OpenSearchSink
from sinks.elasticsearch.opensearch import unsigned

ELASTIC = '{type: elasticsearch, url: "${HEADWATER_ELASTICSEARCH}", view'
THEIRS = '{type: opensearch, url: "${HEADWATER_OPENSEARCH}", view'


def measure() -> list[Measurement]:
    """One load in turn with `parallel_bulk`."""
    with tempfile.TemporaryDirectory(prefix="headwater-opensearch-") as folder:
        bench = Bench(Path(folder), TEXT.replace(ELASTIC, THEIRS), ["opensearch"])
        sink = bench.pipeline.sinks["search"]
        assert isinstance(sink, OpenSearchSink)
        with bench.applied(), unsigned(sink.url, request_timeout=120) as client:
            return [beside_ceiling(bench, client, "opensearch_load_vs_bulk_ceiling")]
