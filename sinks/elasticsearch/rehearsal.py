"""Asks a search server whether it would make a sink's indices as they are defined, and whose those are that it has;
none is made.

A template is *simulated* (``POST _index_template/_simulate``, Elasticsearch 7.9 and OpenSearch alike): the server puts
mapping and settings together, analysers too, and refuses what it would refuse of an index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticsearch import ApiError

from cdc.errors import SinkRefused
from cdc.index_names import generation_of
from sinks.elasticsearch import mapping
from sinks.elasticsearch.client import connect, is_passing, reason_of, translated
from sinks.elasticsearch.owners import in_words, is_of_other, owner, told, way_out
from sinks.elasticsearch.settings import read_settings

# A name that no index has, and a priority that no template has: else those that there are would come in between.
PATTERN, PRIORITY = "headwater-rehearsal", 1_947_302_211
# What says that it can't be asked: rights for templates, which making an index does not need; a server without them.
_NO_ANSWER = (401, 403, 404, 405)


def refusals(config: Mapping[str, Any]) -> dict[str, str]:
    """What the server would refuse: view -> why, in its words. A view of which it can't be asked is left out.

    Args:
        config: plain data, as ``sinks.configure.sink_config`` makes it.

    Raises:
        ConfigError: a setting is wrong (terminal).
        SinkUnavailable: the server does not answer (transient).
    """
    settings = read_settings(config)
    client, found = connect(settings), {}
    try:
        for view, target in settings.targets.items():
            template = {
                "settings": {k: v for k, v in mapping.index_settings(settings.index_settings).items() if v is not None},
                "mappings": mapping.mappings(target.properties, {}, routed=target.routing is not None),
            }
            with translated(settings.who, "rehearsal of an index"):
                try:
                    client.indices.simulate_template(index_patterns=[PATTERN], priority=PRIORITY, template=template)
                except ApiError as error:
                    if is_passing(error):
                        raise
                    if error.meta.status not in _NO_ANSWER:
                        found[view] = _innermost(error)
    finally:
        client.close()
    return found


def of_others(config: Mapping[str, Any]) -> dict[str, tuple[str, str, str]]:
    """Views whose name an index of another pipeline, or another sink, has: view -> (that index, who has made it, what
    to do). Any generation counts: they share the alias that readers use. Empty where it can't be asked.

    Args:
        config: plain data, as ``sinks.configure.sink_config`` makes it.

    Raises:
        ConfigError: a setting is wrong (terminal).
        SinkUnavailable: the server does not answer (transient).
    """
    settings = read_settings(config)
    client, there = connect(settings), {}
    try:
        with translated(settings.who, "look-up of the indices' owners"):
            # One question for all: of hundreds of views the names would not fit into an address.
            there = client.indices.get_mapping(index="*", filter_path="*.mappings._meta.headwater").body
    except SinkRefused:
        pass  # such a right is not needed for making an index
    finally:
        client.close()
    found: dict[str, tuple[str, str, str]] = {}
    ours = owner(settings)
    by_name = {target.index: view for view, target in settings.targets.items()}
    for index, said in sorted(there.items()):
        theirs, (alias, _) = told(said["mappings"]), generation_of(index) or ("", 0)
        if alias in by_name and is_of_other(ours, theirs):
            found.setdefault(by_name[alias], (index, in_words(ours, theirs), way_out(ours, theirs)))
    return found


def _innermost(error: ApiError) -> str:
    """The cause of the cause: those around it only tell of the template that we simulate."""
    cause = error.body.get("error") if isinstance(error.body, dict) else None
    if not isinstance(cause, dict):
        return reason_of(error)
    while isinstance(cause.get("caused_by"), dict):
        cause = cause["caused_by"]
    beside = [str(one.get("reason")) for one in cause.get("suppressed") or ()]  # of each analyser that can't be made
    return "; ".join([str(cause.get("reason")), *beside])
