"""``headwater preview --diff``: what the file's view makes now, held against what readers of a sink see."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.errors import ConfigError, StateError
from cdc.pipeline import Pipeline
from cdc.resolve.names import near
from cdc.view import View
from connectors.postgres import Connection
from operations.explain.differences import ABSENT, Difference, differences
from operations.holding import Holding, holding
from operations.opened import Opened
from operations.preview.asked import SEED, Asked, keys_of, within
from operations.preview.previewer import Made, Previewer, view_of
from operations.state.folder import register_of
from spark.disk.made_of import as_defined
from truth.columns import as_read, with_singles
from truth.expected import form_of
from truth.rows import snapshot
from truth.values import canonical, parse

Document = Mapping[str, Any] | None


@dataclass(frozen=True)
class _Living:
    """A view as the sink's living generation was defined, and how that holds documents."""

    opened: Opened
    view: View


def diff_report(previewer: Previewer, pipeline: Pipeline, name: str, asked: Asked, sink: str | None) -> dict[str, Any]:
    """Hold documents of a view against those of the living generation; the shape of ``preview --diff --json``.

    Args:
        previewer: makes the documents.
        pipeline: the loaded file.
        name: the view's.
        asked: which documents; of a sample as many of the sink's.
        sink: the sink's name; None if only one keeps the view.

    Raises:
        ConfigError: no such view or sink (terminal). StateError: the sink has never run.
        HeadwaterError: a server does not answer.
    """
    sink = _sink(pipeline, name, sink)
    register = register_of(pipeline, sink)
    generation = register.generation(register.living())
    if not generation.started:
        raise StateError(
            f"sink {sink} has never run: there is nothing to hold the view against",
            fix=f"`headwater preview {pipeline.file} {name}` without --diff shows what it would hold",
        )
    defined = as_defined(pipeline, generation)
    with snapshot(pipeline.source) as connection:
        view = previewer.view(pipeline, name, connection)
        old = view_of(defined, name, connection) if name in defined.sinks[sink].view_names else None
        living = None if old is None else _Living(Opened(defined, generation, [old], token=0), old)
        with within(connection, view):
            documents = list(_compared(previewer, pipeline, (view, living), connection, asked))
    changed = [one for one in documents if one["change"] != "same"]
    return {
        "pipeline": pipeline.name,
        "at": time.time(),
        "view": view.name,
        "sink": sink,
        "generation": generation.number,
        "new": living is None,
        "compared": len(documents),
        "equal": not changed,
        "documents": changed,
    }


def _sink(pipeline: Pipeline, view: str, wanted: str | None) -> str:
    keeping = [name for name, part in pipeline.sinks.items() if view in part.view_names]
    if wanted is not None:
        if wanted in keeping:
            return wanted
        fix = near(wanted, keeping) or f"it is in {', '.join(keeping) or 'no sink'}"
        raise ConfigError(f"no sink {wanted} keeps view {view}", fix=fix)
    if len(keeping) != 1:
        many = f"{len(keeping)} sinks keep it" if keeping else "no sink keeps it"
        fix = f"say which: --sink {' or --sink '.join(keeping)}" if keeping else "name it under a sink's `views`"
        raise ConfigError(f"view {view}: {many}", fix=fix)
    return keeping[0]


def _compared(
    previewer: Previewer,
    pipeline: Pipeline,
    views: tuple[View, _Living | None],
    connection: Connection,
    asked: Asked,
) -> Iterable[dict[str, Any]]:
    view, living = views
    keys = keys_of(connection, view, asked)
    if living is None:
        for one in previewer.made(pipeline, view, connection, keys):
            if one.text is not None:
                yield _difference(one.key, None, _comparable(view, one, columns=False), one.why, behind=False)
        return
    with holding(living.opened, living.view) as held:
        if asked.key is None and asked.where is None:
            keys = list(dict.fromkeys([*keys, *held.sample(asked.sample, SEED)]))
        yield from _held_against(previewer, pipeline, (view, living), connection, held, keys)


def _held_against(
    previewer: Previewer,
    pipeline: Pipeline,
    views: tuple[View, _Living],
    connection: Connection,
    held: Holding,
    keys: list[str],
) -> Iterable[dict[str, Any]]:
    view, living = views
    columns = living.opened.warehouse
    there = {key: one.documents[0] for key, one in held.documents(keys).items()}
    made = {one.key: one for one in previewer.made(pipeline, view, connection, keys)}
    now = {key: _comparable(view, one, columns=columns) for key, one in made.items()}
    differing = [key for key in keys if now.get(key) != there.get(key)]
    # What its own view would make of these now: where the sink has something else, it is behind, or wrong.
    before = {
        one.key: _comparable(living.view, one, columns=columns)
        for one in previewer.made(living.opened.pipeline, living.view, connection, differing)
    }
    for key in keys:
        why = made[key].why if key in made else "the row is not there"
        behind = key in differing and before.get(key) != there.get(key)
        if key in there or now.get(key) is not None:
            yield _difference(key, there.get(key), now.get(key), why, behind=behind)


def _comparable(view: View, one: Made, *, columns: bool) -> dict[str, Any] | None:
    """A document as JSON reads it, numbers as they are compared; of a warehouse as its columns can hold it."""
    if one.text is None:
        return None
    if columns and one.found.fields is not None:
        return as_read(form_of(view, one.found.document, one.found.fields, "columns"))
    document: dict[str, Any] = parse(canonical(with_singles(view, one.text)))
    return document


def _difference(key: str, held: Document, now: Document, why: str, *, behind: bool) -> dict[str, Any]:
    found: list[Difference] = [] if held is None or now is None else list(differences(held, now))
    change = "added" if held is None else "removed" if now is None else "changed" if found else "same"
    return {
        "key": key,
        "change": change,
        "why": why if change == "removed" else "",
        "behind": behind,
        "fields": [{"change": _kind(one), **one.to_dict("sink", "file")} for one in found],
    }


def _kind(one: Difference) -> str:
    return "added" if one.left is ABSENT else "removed" if one.right is ABSENT else "changed"
