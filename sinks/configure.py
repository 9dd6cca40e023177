"""From a sink of the pipeline file and its resolved views to the plain data that ``factory.open_sink`` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc.errors import ConfigError
from cdc.pipeline import ElasticsearchSink, RedisSink
from cdc.view import View

# A write that gets no answer for this long fails its batch, so that the trouble shows in `status`; the flow is then
# started again, for ever, with its offsets where they were.
GIVE_UP_SECONDS = 30.0


def sink_config(
    name: str,
    sink: Any,
    views: Sequence[View],
    computed: Mapping[str, Mapping[str, str]],
    generation: int = 1,
) -> dict[str, Any]:
    """Plain data for executors; holds secrets.

    Args:
        name: the sink's name.
        sink: its part of the pipeline file.
        views: what it keeps.
        computed: view name -> field name -> Spark type of what Spark SQL computes.
        generation: which build of the sink.

    Raises:
        ConfigError: a kind of sink that takes no documents, or one index for several views.
    """
    if isinstance(sink, ElasticsearchSink):
        return _elasticsearch(name, sink, views, computed, generation)
    if isinstance(sink, RedisSink):
        return _redis(name, sink, views)
    raise ConfigError(f"sink {name} takes no documents")


def _secret(value: Any) -> str | None:
    return None if value is None else str(value.get_secret_value() if hasattr(value, "get_secret_value") else value)


def _present(**settings: Any) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _elasticsearch(
    name: str,
    sink: ElasticsearchSink,
    views: Sequence[View],
    computed: Mapping[str, Mapping[str, str]],
    generation: int,
) -> dict[str, Any]:
    if sink.index and len(views) > 1:
        raise ConfigError(
            f"sink {name}: `index: {sink.index}` names one index, but the sink has {len(views)} views",
            fix="leave `index` out (each view's index is then named as the view), or give one sink a view",
        )
    targets = {}
    for view in views:
        properties = merged(view.elasticsearch_mapping(computed.get(view.name, {})), sink.mapping)
        # Elasticsearch allows lower case only; a view may have been named otherwise.
        index = sink.index or view.name.lower()
        targets[view.name] = {"index": index, "generation": generation, "properties": properties}
    return {
        "type": "elasticsearch",
        "name": name,
        "targets": targets,
        "settings": dict(sink.settings),
        "give_up_seconds": GIVE_UP_SECONDS,
        **_present(
            url=_secret(sink.url),
            user=sink.user,
            password=_secret(sink.password),
            api_key=_secret(sink.api_key),
            bulk_bytes=sink.bulk_bytes,
            bulk_workers=sink.bulk_workers,
            request_timeout_seconds=sink.request_timeout_seconds,
        ),
    }


def merged(derived: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """The derived mapping with the user's fields in place of ours: a field that the user maps is wholly the user's."""
    return {**derived, **override}


def _redis(name: str, sink: RedisSink, views: Sequence[View]) -> dict[str, Any]:
    return {
        "type": "redis",
        "name": name,
        "targets": {view.name: {} for view in views},
        "give_up_seconds": GIVE_UP_SECONDS,
        **_present(
            url=_secret(sink.url),
            key_prefix=sink.key_prefix or None,
            ttl_seconds=sink.ttl_seconds,
            fence_seconds=sink.fence_seconds,
        ),
    }
