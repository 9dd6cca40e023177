"""The pipeline file: one YAML file says what is captured, which documents are made of it and where they are kept.

``load(path)`` gives a frozen ``Pipeline`` or raises ``PipelineFileError`` with file, line and column of all that is
wrong. The package knows no server and opens nothing but the file.
"""

from __future__ import annotations

from cdc.masking import looks_secret, mask_text, masked, reveal
from cdc.pipeline.loading import load, loads
from cdc.pipeline.models import Alert, Engine, Pipeline, Policy
from cdc.pipeline.push import Webhook
from cdc.pipeline.rowstore import RowStore
from cdc.pipeline.search import ElasticsearchSink, OpenSearchSink, SearchSink
from cdc.pipeline.sinks import IcebergSink, RedisSink, Sink
from cdc.pipeline.source import Connect, Kafka, Source
from cdc.pipeline.views import View

__all__ = [
    "Alert",
    "Connect",
    "ElasticsearchSink",
    "Engine",
    "IcebergSink",
    "Kafka",
    "OpenSearchSink",
    "Pipeline",
    "Policy",
    "RedisSink",
    "RowStore",
    "SearchSink",
    "Sink",
    "Source",
    "View",
    "Webhook",
    "load",
    "loads",
    "looks_secret",
    "mask_text",
    "masked",
    "reveal",
]
