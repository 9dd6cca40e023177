"""Mappings and settings: defaults, the user's overrides, and what may be changed on an index that exists. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Elasticsearch's own memory of deletes; covers two writers racing (a zombie beside its successor). Older replays are
# stopped by the fences, so this need not be longer: each remembered delete costs heap.
GC_DELETES = "1h"

# Said, for an index template of somebody's may name ingest pipelines, which change documents on their way or swallow
# them with the answer that all is well.
NO_PIPELINES: dict[str, Any] = {"index.default_pipeline": "_none", "index.final_pipeline": "_none"}

# Documents are kept as they came.
WHOLE: dict[str, Any] = {"enabled": True}

DEFAULT_SETTINGS: dict[str, Any] = {
    "index.number_of_shards": 1,
    # 0 replicas on a single node (green, no second copy possible), 1 as soon as there are two.
    "index.auto_expand_replicas": "0-1",
    # As Elasticsearch has it: every second while somebody searches; who comes after 30 s without a search waits for a
    # refresh and sees all the same. Every second for nobody costs a third of what indexing does.
    "index.refresh_interval": None,
    "index.gc_deletes": GC_DELETES,
    **NO_PIPELINES,
}

# What servers say of an index that may have no more of something, and the setting that bounds it: "Limit of total
# fields [1000] has been exceeded", or "… [1000] in index [x] has been …".
_LIMITS = {"total fields": "total_fields", "nested fields": "nested_fields", "mapping depth": "depth"}
_LIMIT = re.compile(rf"Limit of ({'|'.join(_LIMITS)}) \[(\d+)\]")


def more_room(reason: str, wanted: Mapping[str, Any]) -> str | None:
    """The setting by which an index takes a mapping that was one too many, with a number that is enough. Pure.

    Args:
        reason: the server's, of a mapping that it has refused.
        wanted: that mapping's ``properties``.

    Returns:
        the setting as a pipeline file and a server take it; None for a mapping that was refused for something else.
    """
    if not (found := _LIMIT.search(reason)):
        return None
    name, limit = _LIMITS[found[1]], max(int(found[2]), 1)
    # What the index has already is within the limit, and may be other fields than these.
    times = 1 + max(-(-_counted(wanted)[name] // limit), 1)
    return f"index.mapping.{name}.limit: {times * limit}"


def _counted(properties: Mapping[str, Any]) -> dict[str, int]:
    """Of some fields, what servers bound: each object and each sub-field is a field, too. A dot in a name makes an
    object as well, which names may share."""
    named: set[tuple[str, ...]] = set()
    nested = 0
    ahead: list[tuple[tuple[str, ...], str, Mapping[str, Any]]] = [((), *field) for field in properties.items()]
    while ahead:
        above, name, how = ahead.pop()
        path = (*above, *name.split("."))
        named |= {path[:end] for end in range(1, len(path) + 1)}
        nested += how.get("type") == "nested"
        ahead += [(path, *field) for kind in ("properties", "fields") for field in (how.get(kind) or {}).items()]
    return {"total_fields": len(named), "nested_fields": nested, "depth": max(map(len, named), default=0)}


def merge(default: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge of two mappings' ``properties``; the override wins.

    A field whose override names another ``type`` is replaced as a whole: the default's other parameters
    (``ignore_above`` of a keyword, say) belong to the default's type.
    """
    merged = dict(default)
    for name, value in override.items():
        old = merged.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and _same_kind(old, value):
            merged[name] = merge(old, value)
        else:
            merged[name] = dict(value) if isinstance(value, Mapping) else value
    return merged


def _same_kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Do both describe one type of field? (A field may itself be *named* type: then its mapping is no string.)"""
    kind = new.get("type")
    if "properties" in new and "properties" not in old:
        return False  # an object with known fields is another thing than one kept unindexed or flattened
    if "properties" in old and kind in ("object", "nested"):
        # Nested or not, it has the same fields, unless these are found by the server, or kept in another way.
        return not {"enabled", "dynamic", "subobjects"} & set(new)
    return not isinstance(kind, str) or kind == old.get("type")


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as dotted keys that begin with ``index.``, whichever of the server's spellings was used."""
    flat: dict[str, Any] = {}
    for key, value in _leaves(settings, ""):
        flat[key if key.startswith("index.") else f"index.{key}"] = value
    return flat


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def index_settings(user: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a new index: defaults under the user's."""
    mine = flatten(user)
    settings = DEFAULT_SETTINGS | mine
    if "index.number_of_replicas" in mine and "index.auto_expand_replicas" not in mine:
        settings["index.auto_expand_replicas"] = False  # otherwise it would override the number the user chose
    return settings


def changed_settings(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``wanted`` that the index (flat settings, values as the server prints them) has otherwise."""
    return {key: value for key, value in wanted.items() if _printed(value) != _printed(actual.get(key))}


def _printed(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return [_printed(one) for one in value]
    return str(value)


def mappings(properties: Mapping[str, Any], owner: Mapping[str, Any], *, routed: bool = False) -> dict[str, Any]:
    """The mapping of an index: fields, and who made it.

    ``dynamic: false``: a field without a mapping stays in ``_source`` but is not indexed. The alternatives are worse:
    ``true`` guesses a type from the first value it meets (and rejects later ones), ``strict`` rejects every document
    once a column is added at the source. The rest is the servers' default, said because an index template of somebody's
    may have it otherwise: then documents could not be read again, or none without a routing be written.

    Args:
        properties: the fields.
        owner: who makes it.
        routed: every document has a routing; a template may ask for it.
    """
    said = {"dynamic": False, "_source": WHOLE, "_meta": {"headwater": dict(owner)}, "properties": dict(properties)}
    return said if routed else said | {"_routing": {"required": False}}
