"""From a sink of the pipeline file and its resolved views to the plain data that ``factory.open_sink`` takes."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cdc.errors import ConfigError
from cdc.gather import Gathering
from cdc.join.view import JoinedView
from cdc.keyspaces import owner_of
from cdc.pipeline import IcebergSink, OpenSearchSink, Pipeline, RedisSink, SearchSink
from cdc.resolve.names import present
from cdc.stateful import StatefulView
from cdc.timed import TimedView
from cdc.view import View
from sinks.elasticsearch.mapping import merge
from sinks.iceberg.catalogue import catalog_name
from sinks.iceberg.place import Place
from sinks.iceberg.rows import ID_COLUMN
from sinks.iceberg.storage import location


def sink_config(
    name: str,
    sink: Any,
    views: Sequence[View],
    computed: Mapping[str, Mapping[str, str]],
    generation: int = 1,
    token: int = 0,
    pipeline: str = "",
) -> dict[str, Any]:
    """Plain data for ``sinks.factory``; holds secrets.

    Args:
        name: the sink's name.
        sink: its part of the pipeline file.
        views: what it keeps.
        computed: view name -> field name -> Spark type of what Spark SQL computes.
        generation: which build of the sink.
        token: of the lease under which it writes; 0 for who only reads.
        pipeline: the pipeline's name, under which a sink claims its keys, indices or tables.

    Raises:
        ConfigError: one index for several views.
    """
    if isinstance(sink, SearchSink):
        whose = {"pipeline": pipeline} if pipeline else {}
        return _search(name, sink, views, computed, generation) | {"token": token, **whose}
    if isinstance(sink, RedisSink):
        return _redis(name, sink, views, generation) | {"token": token, "owner": owner_of(pipeline, name)}
    if isinstance(sink, IcebergSink):
        targets = {view.name: _table(view, generation) for view in views}
        return _iceberg(name, sink) | {"targets": targets, "owner": owner_of(pipeline, name)}
    raise ConfigError(f"sink {name}: there is no kind {type(sink).__name__}")


def plain_config(pipeline: Pipeline, name: str, generation: int, views: Sequence[str]) -> dict[str, Any]:
    """A sink's settings for what needs no mapping: to drop, to promote, to look.

    Args:
        pipeline: as the generation was defined.
        name: the sink's name.
        generation: which one.
        views: names of its views.
    """
    sink = pipeline.sinks[name]
    config = sink_config(name, sink, [], {}, generation, pipeline=pipeline.name)
    config["targets"] = {view: _plain_target(sink, view, generation) for view in views}
    return config


def _plain_target(sink: Any, view: str, generation: int) -> dict[str, object]:
    if isinstance(sink, SearchSink):
        return {"index": sink.index_of(view), "generation": generation, "properties": {}}
    return {"generation": generation, "key": []} if isinstance(sink, IcebergSink) else {"generation": generation}


def shared_folders(sink: Any) -> list[Path]:
    """Folders that every machine of a Spark cluster must see, because a sink's files are there."""
    place = location(str(_secret(sink.warehouse))) if isinstance(sink, IcebergSink) else "://"
    return [] if "://" in place else [Path(place)]


def _iceberg(name: str, sink: IcebergSink) -> dict[str, Any]:
    return {"type": "iceberg", "name": name, "catalog": catalog_name(name), **asdict(Place.of(sink))}


def _table(view: View, generation: int) -> dict[str, Any]:
    if isinstance(view, TimedView):
        return {"generation": generation, "key": [(ID_COLUMN, "text")], "documents": True}
    outs = dict(view.columns)
    columns = [view.table.by_name[name] for name in view.key]
    return {
        "generation": generation,
        "key": [(outs[column.name], "" if column.array else column.base_type) for column in columns],
        "documents": isinstance(view, StatefulView),
    }


def _secret(value: Any) -> str | None:
    return None if value is None else str(value.get_secret_value() if hasattr(value, "get_secret_value") else value)


def _present(**settings: Any) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _search(
    name: str,
    sink: SearchSink,
    views: Sequence[View],
    computed: Mapping[str, Mapping[str, str]],
    generation: int,
) -> dict[str, Any]:
    if sink.index and len(views) > 1:
        raise ConfigError(
            f"sink {name}: `index: {sink.index}` names one index, but the sink has {len(views)} views",
            fix="leave `index` out (each view's index is then named as the view), or give one sink a view",
        )
    targets: dict[str, dict[str, Any]] = {}
    for view in views:
        properties = merged(view.elasticsearch_mapping(computed.get(view.name, {})), plain(sink.mapping))
        index = sink.index_of(view.name)
        targets[view.name] = {"index": index, "generation": generation, "properties": properties}
        if sink.routing is not None:
            targets[view.name]["routing"] = {
                "at": view.key.index(present(view.table, sink.routing)),
                "of": len(view.key),
            }
    return {
        "type": sink.type,
        "name": name,
        "targets": targets,
        "settings": plain(sink.settings),
        **_present(
            url=_secret(sink.url),
            user=sink.user,
            password=_secret(sink.password),
            api_key=_secret(sink.api_key),
            signer=sink.signer if isinstance(sink, OpenSearchSink) else None,
            bulk_bytes=sink.bulk_bytes,
            # The client refuses it for an address without encryption.
            ca_certs=sink.ca_certs if sink.url.startswith("https:") else None,
            bulk_count=sink.bulk_count,
            bulk_workers=sink.bulk_workers,
            request_timeout_seconds=sink.request_timeout_seconds,
            # After this long a batch fails, so that the trouble shows in `status`; its flow starts again, for ever.
            give_up_seconds=sink.give_up_seconds,
            fence_seconds=sink.fence_seconds,
        ),
    }


def merged(derived: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """The derived mapping with the user's on top, see ``mapping.merge``.

    A field that this view does not have is added if the user says its type (a target of ``copy_to``, say); else the
    words are meant for another view of the same sink.
    """
    meant = {
        field: how
        for field, how in override.items()
        if field in derived or (isinstance(how, Mapping) and ("type" in how or "properties" in how))
    }
    return merge(derived, meant)


# What Elasticsearch and OpenSearch have of their own in every document; an index with such a field can't be made.
THEIR_OWN = frozenset(
    f"_{name}"
    for name in (
        *("id", "index", "source", "routing", "version", "seq_no", "primary_term", "field_names", "ignored"),
        *("nested_path", "doc_count", "data_stream_timestamp"),
    )
)


def check_mapping(name: str, sink: SearchSink, views: Sequence[View], *, goes_on: bool = False) -> None:
    """Find typing errors in `mapping:`, and names that no index can have; call it with all of the sink's views.

    Args:
        name: the sink's.
        sink: its part of the pipeline file.
        views: all that it keeps. What a fold shows is known once Spark has analysed it: with one of which it is not,
            `mapping:` may name anything.
        goes_on: a generation goes on as it was made, and a field that `mapping:` names may have gone since.

    Raises:
        ConfigError: fields that no view has and no other field copies to, fields under a server's own names; all.
    """
    found = Gathering()
    for view in views:
        columns = {out: column for column, out in view.columns}
        for out in _fields(view):
            if why := no_name(out):
                what = f"sink {name}, view {view.name}: no index can have a field {out!r}: {why}"
                fix = f"give it another name in views.{view.name}"
                if column := columns.get(out):
                    fix = f"give column {column!r} another name under views.{view.name}.columns: {{{column}: a_name}}"
                found.wrong.append(ConfigError(what, fix=fix))
    if not goes_on and not any(isinstance(view, StatefulView) and view.shown is None for view in views):
        for field, near in _named_wrong(sink.mapping, [_fields(view) for view in views], {*_copied(sink.mapping)}):
            error = ConfigError(
                f"sink {name}: `mapping` names a field {field!r} that none of its views has",
                fix=f"{near}; if its column has gone, take {field!r} out of `mapping:`",
            )
            found.wrong.append(error)
    found.end()


def _fields(view: View) -> dict[str, dict[str, Any] | None]:
    """What a view's documents have: name -> the fields of the rows of another table there; None of anything else, which
    may be mapped as one likes."""
    names = [out for _, out in view.columns]
    if isinstance(view, StatefulView):
        names += view.shown or ()
    if not isinstance(view, JoinedView):
        return dict.fromkeys([*names, *view.fields])
    mapped = view.elasticsearch_mapping()
    names += [one.name for one in view.tree.aggregates]
    return dict.fromkeys([*names, *view.fields]) | {
        one.name: mapped[one.name].get("properties") for one in view.tree.shown
    }


def _copied(mapping: Mapping[str, Any]) -> Iterator[str]:
    """Fields, by their paths, that others are copied to, at whatever depth."""
    for how in mapping.values():
        if isinstance(how, Mapping):
            targets = how.get("copy_to", ())
            yield from (targets,) if isinstance(targets, str) else targets
            below = how.get("properties")
            yield from _copied(below) if isinstance(below, Mapping) else ()


def _named_wrong(
    mapping: Mapping[str, Any], known: Sequence[Mapping[str, Any]], copied: Collection[str], path: str = ""
) -> Iterator[tuple[str, str]]:
    """Fields of `mapping:` that are nowhere: the path, and what was probably meant. An alias is a field of its own, as
    is what others are copied to, and an object that holds such.

    Args:
        mapping: of one level.
        known: the fields there; of several views, or of objects of one name in them.
        copied: fields, by their paths, that others are copied to.
        path: what stands before a name, ending with a point.
    """
    names = {name for fields in known for name in fields}
    targets = {one.removeprefix(path) for one in copied if one.startswith(path)}
    for name, how in mapping.items():
        alias = isinstance(how, Mapping) and how.get("type") == "alias"
        if name not in names and (alias or name in targets):
            continue
        objects = [fields[name] for fields in known if name in fields]
        below = how.get("properties") if isinstance(how, Mapping) else None
        if not objects and not (isinstance(below, Mapping) and any(one.startswith(f"{name}.") for one in targets)):
            near = difflib.get_close_matches(name, names | targets, 1)
            there = ", ".join(sorted(names or targets))
            yield path + name, f"did you mean {path + near[0]!r}?" if near else f"the fields are {there}"
        elif isinstance(below, Mapping) and all(isinstance(one, Mapping) for one in objects):
            inner = [{field: of.get("properties") for field, of in one.items()} for one in objects]
            yield from _named_wrong(below, inner, copied, f"{path}{name}.")


def no_name(field: str) -> str | None:
    """Why a search server has no field of this name; None if it can have one."""
    if field in THEIR_OWN:
        return "it is the server's own"
    if not all(part.strip() for part in field.rstrip(".").split(".")):
        return "nothing is before, after or between its points"
    return None


def plain(value: Any) -> Any:
    """Mappings and sequences as dicts and lists, whatever immutable kind the model holds."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _redis(name: str, sink: RedisSink, views: Sequence[View], generation: int) -> dict[str, Any]:
    return {
        "type": "redis",
        "name": name,
        "targets": {view.name: {"generation": generation} for view in views},
        **_present(
            url=_secret(sink.url),
            key_prefix=sink.key_prefix or None,
            ttl_seconds=sink.ttl_seconds,
            fence_seconds=sink.fence_seconds,
            cluster=sink.cluster,
            keep=None if sink.changes is None else sink.changes.keep,
            user=sink.user,
            password=_secret(sink.password),
            ca_certs=sink.ca_certs,
            request_timeout_seconds=sink.request_timeout_seconds,
            give_up_seconds=sink.give_up_seconds,
        ),
    }
