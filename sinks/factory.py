"""From plain data to a sink: what the engine calls on the driver and again on every executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.errors import ConfigError
from sinks.contract import OnWait, Sink, Target
from sinks.retry import quiet


def open_sink(config: Mapping[str, Any], on_wait: OnWait = quiet) -> Sink:
    """Build a sink; no connection is made before its first verb.

    Args:
        config: JSON-able, as ``sinks.configure`` makes it; holds secrets in clear, so it is never logged.
        on_wait: told one line each time the sink waits for its server.

    Raises:
        ConfigError: unknown type or wrong setting.
    """
    kind = config.get("type")
    if kind in ("elasticsearch", "opensearch"):
        from sinks.elasticsearch import ElasticsearchSink

        return ElasticsearchSink(config, on_wait)
    if kind == "redis":
        from sinks.redis import RedisSink

        return RedisSink(config, on_wait)
    raise ConfigError(f"sink {config.get('name', '?')!r}: no document sink of type {kind!r}")


def open_target(config: Mapping[str, Any], on_wait: OnWait = quiet) -> Target:
    """Build what looks at a sink of any kind; arguments and errors as ``open_sink``."""
    if config.get("type") == "iceberg":
        from sinks.iceberg.target import IcebergTarget

        return IcebergTarget(config)
    return open_sink(config, on_wait)
