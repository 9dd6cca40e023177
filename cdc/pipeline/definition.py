"""What a sink's generation was made of, kept as plain data: the parts of the file that decide what the sink holds.

A generation goes on as it was defined, whatever the file says later; the file's newer words are for the next one.
Addresses, passwords and knobs of performance are not part of it and always come from the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cdc.errors import StateError
from cdc.formats import DEFINITION, refuse_newer
from cdc.pipeline.models import Path, Pipeline, content_names, content_of
from cdc.pipeline.source import Source
from cdc.pipeline.views import STATEFUL, View

# What it keeps, and where readers find it; at the end, in this order, as in every definition that was kept.
_CHOICE = ("view", "views", "tables", "index")
# The format from which on NULL has a sign of its own in the ids of windows.
_MARKED = 2


def definition_of(pipeline: Pipeline, sink: str, tables: Sequence[str]) -> dict[str, Any]:
    """A sink's definition as the file has it now.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        tables: of a sink that keeps tables, those that it keeps (``schema.table``): ``all`` means others later.
    """
    part = pipeline.sinks[sink]
    dumped = part.model_dump(mode="json")
    content = (name for name in content_of(part) if name not in _CHOICE)
    kept = {name: dumped[name] for name in (*content, *_CHOICE) if name in dumped}
    if part.tables is not None:
        kept["tables"] = sorted(tables)
    views = {name: pipeline.views[name].model_dump(mode="json") for name in part.view_names}
    for view in views.values():
        for later in ("events", *STATEFUL):
            if not view[later]:  # as before there was the key
                del view[later]
    types = pipeline.event_types(sink)
    events = {"events": {"types": types}} if types else {}
    return {
        "format": _format(pipeline, sink),
        "spec_hash": pipeline.spec_hash(sink),
        "sink": kept,
        "views": views,
        **events,
    }


def _format(pipeline: Pipeline, sink: str) -> int:
    """The least number by which nobody misreads it: an older Headwater goes on with what it knows."""
    windows = (pipeline.views[name].window for name in pipeline.sinks[sink].view_names)
    return _MARKED if any(window is not None and window.by for window in windows) else 1


def defined_as(pipeline: Pipeline, sink: str, definition: Mapping[str, Any], title: str = "") -> Pipeline:
    """The pipeline with one sink, and its views, as a definition says; everything else as the file says.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        definition: from ``definition_of``.
        title: what errors name in place of the file's lines, which say something else.

    Raises:
        StateError: the sink is now of another kind (terminal).
        NewerFormat: a newer Headwater wrote the definition (terminal).
    """
    refuse_newer(title or f"the definition of sink {sink}", definition["format"], DEFINITION)
    part = pipeline.sinks[sink]
    kept = definition["sink"]
    if kept["type"] != part.type:
        raise StateError(
            f"sink {sink} was a sink of type {kept['type']} when it was filled; the file says {part.type}",
            means="its target can't be reached with the settings of another kind of server",
            fix=f"set it back, `headwater drop FILE --sink {sink}`, then change it; or give the new one another name",
        )
    # Only the kept fields are taken over; the others must be there for the model to be made at all.
    required = {n: str(getattr(part, n)) for n, info in type(part).model_fields.items() if info.is_required()}
    parsed = type(part).model_validate_json(json.dumps({**required, **kept}))
    # Of the keys that decide what it holds also those that were not there: the file may have them by now.
    names = {*kept, *content_names(part)}
    changed = part.model_copy(update={name: getattr(parsed, name) for name in names})
    views = views_in(definition)
    made = pipeline.model_copy(
        update={"sinks": {**pipeline.sinks, sink: changed}, "views": {**pipeline.views, **views}}
    )
    if pipeline.source.outbox is not None:
        made = made.model_copy(update={"source": _read_from(pipeline.source, definition.get("events"))})
    # Written by the former ids, its windows are looked for and written on by them.
    made.null_is_text_in(views if definition["format"] < _MARKED else ())
    differing: list[Path] = [("views", name) for name, view in views.items() if pipeline.views.get(name) != view]
    made.read_elsewhere(
        title or f"sink {sink}, as it was defined", differing + ([("sinks", sink)] if changed != part else [])
    )
    return made


def views_in(definition: Mapping[str, Any]) -> dict[str, View]:
    """The views of a definition.

    Args:
        definition: from ``definition_of``, of a format that is known.
    """
    return {name: View.model_validate_json(json.dumps(view)) for name, view in definition["views"].items()}


def _read_from(source: Source, events: Mapping[str, Any] | None) -> Source:
    """The source with the outbox as it was; without one if the table's rows were no events then."""
    outbox = source.outbox
    if outbox is not None:
        outbox = outbox.model_copy(update={"types": tuple(events["types"])}) if events else None
    return source.model_copy(update={"outbox": outbox})


def in_one_form(definition: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """A definition as it is held against another one: what a file may say in several ways is said in one of them. Pure.

    One that is kept may be in any of them; as it is kept it stays.

    Args:
        definition: from ``definition_of``.
        source: of the file as it is now, by which short names of tables are read; of one that is kept only where it
            does not have the shapes of the tables that were meant: another schema's may be called so by now.
    """
    sink = dict(definition["sink"])
    view = sink.pop("view", None)
    sink["views"] = [view] if view else sorted(sink.get("views") or ())
    meant = definition.get("shapes", ())
    sink["tables"] = sorted(_qualified(name, meant, source.tables) for name in sink.get("tables") or ())
    return {**definition, "sink": sink}


def _qualified(name: str, *known: Iterable[str]) -> str:
    """``schema.table`` for a table's name, by the first of the lists in which only one table can be meant; else as it
    is."""
    if "." in name:
        return name
    for tables in known:
        schemas = {schema for schema, _, table in (one.partition(".") for one in tables) if table in (name, "*")}
        if len(schemas) == 1:
            return f"{schemas.pop()}.{name}"
    return name


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two definitions, in words: ``views.card.fields.title changed``. Pure."""
    found = []
    for part in ("views", "sink", "events"):
        for path, kind in _differences(before.get(part, {}), after.get(part, {}), (part,)):
            found.append(f"{'.'.join(path)} {kind}")
    return found


def _differences(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            if name not in after:
                yield (*path, name), "removed"
            elif name not in before:
                yield (*path, name), "added"
            else:
                yield from _differences(before[name], after[name], (*path, name))
    elif before != after:
        yield path, "changed"
