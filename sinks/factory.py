"""From a pipeline's sink to plain data, and from plain data to a sink.

The first half runs on the driver, which knows the pipeline file and the catalogue; what it makes travels to executors
as JSON-able data (secrets in clear: it is never logged), where the second half opens the sink.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from cdc.errors import ConfigError
from cdc.types import elasticsearch_mapping, mapping_of_spark
from cdc.view import View
from sinks.contract import OnWait, Sink
from sinks.retry import quiet

# Settings that both sides call the same; the ones a sink's model does not have are left to the sink's default.
_COMMON = ("url", "user", "password", "ca_certs", "max_document_bytes", "request_timeout_seconds", "fence_seconds")
_ELASTICSEARCH = (*_COMMON, "api_key", "settings", "bulk_bytes", "bulk_count", "bulk_workers")
_REDIS = (*_COMMON, "key_prefix", "ttl_seconds", "cluster", "pipeline_count", "pipeline_bytes")


def open_sink(config: Mapping[str, Any], on_wait: OnWait = quiet) -> Sink:
    """Build a sink; no connection is made before its first verb.

    Args:
        config: as ``sink_config`` makes it; a bound on waiting may be added as ``give_up_seconds``.
        on_wait: told one line each time the sink waits for its server.

    Raises:
        ConfigError: unknown type or wrong setting.
    """
    kind = config.get("type")
    if kind == "elasticsearch":
        from sinks.elasticsearch import ElasticsearchSink

        return ElasticsearchSink(config, on_wait)
    if kind == "redis":
        from sinks.redis import RedisSink

        return RedisSink(config, on_wait)
    raise ConfigError(f"sink {config.get('name', '?')!r}: no document sink of type {kind!r}")


def sink_config(
    sink: Any,
    views: Sequence[View],
    computed: Mapping[str, Mapping[str, str]] | None = None,
    *,
    name: str | None = None,
    generation: int = 1,
) -> dict[str, Any]:
    """A pipeline's document sink as plain data.

    Args:
        sink: the pipeline's ``ElasticsearchSink`` or ``RedisSink``.
        views: the views it keeps.
        computed: view name -> {field computed by Spark SQL: its Spark type}.
        name: the sink's name in the pipeline file, for messages and for who owns an index.
        generation: which build of the sink.

    Raises:
        ConfigError: `index` or `mapping` does not fit the views.
    """
    common = {"type": sink.type, "name": name or sink.type}
    if sink.type == "elasticsearch":
        targets = _indices(sink, views, computed or {}, name or sink.type, generation)
        return {**common, **_settings(sink, _ELASTICSEARCH), "targets": targets}
    if sink.type == "redis":
        return {**common, **_settings(sink, _REDIS), "targets": {view.name: {} for view in views}}
    raise ConfigError(f"sink {name!r}: {sink.type} takes tables, not documents")


def _settings(sink: Any, names: Sequence[str]) -> dict[str, Any]:
    found = {}
    for name in names:
        value = getattr(sink, name, None)
        if value is not None:
            found[name] = _json(value.get_secret_value() if hasattr(value, "get_secret_value") else value)
    return found


def _json(value: Any) -> Any:
    """Mappings as plain dicts, whatever immutable kind the model holds."""
    if isinstance(value, Mapping):
        return {key: _json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    return value


def _indices(
    sink: Any, views: Sequence[View], computed: Mapping[str, Mapping[str, str]], name: str, generation: int
) -> dict[str, Any]:
    index = getattr(sink, "index", None)
    if index and len(views) > 1:
        raise ConfigError(
            f"sink {name!r}: `index: {index}` names one index, but the sink keeps {len(views)} views",
            fix="leave `index` out (each view's index is then named as the view), or make a sink for each view",
        )
    overrides = _json(getattr(sink, "mapping", None) or {})
    properties = {view.name: default_properties(view, computed.get(view.name, {})) for view in views}
    _check_overrides(overrides, properties, name)
    from sinks.elasticsearch.mapping import merge

    return {
        view: {
            "index": index or view,
            "generation": generation,
            "properties": merge(fields, {field: how for field, how in overrides.items() if field in fields}),
        }
        for view, fields in properties.items()
    }


def default_properties(view: View, computed: Mapping[str, str]) -> dict[str, Any]:
    """The mapping's ``properties`` for a view's documents, from the types of its columns and computed fields."""
    by_name = {column.name: column for column in view.table.columns}
    properties = {out: elasticsearch_mapping(by_name[source]) for source, out in view.columns}
    return properties | {field: mapping_of_spark(kind) for field, kind in computed.items()}


def _check_overrides(overrides: Mapping[str, Any], properties: Mapping[str, Mapping[str, Any]], name: str) -> None:
    known = {field for fields in properties.values() for field in fields}
    for field in overrides:
        if field not in known:
            near = difflib.get_close_matches(field, known, 1)
            raise ConfigError(
                f"sink {name!r}: `mapping` names a field {field!r} that none of its views has",
                fix=f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(sorted(known))}",
            )
