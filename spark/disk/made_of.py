"""What each generation of a sink was made of: its part of the file and its views, as they were when it began.

<state_dir>/<pipeline>/<sink>/g<N>/definition.json        of generation N (cdc/pipeline/definition.py)
<state_dir>/<pipeline>/<sink>/g<N>/taken_up.json          tables that it keeps besides, and whose targets are to be made
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc.errors import StateError
from cdc.formats import DEFINITION, refuse_newer
from cdc.pipeline import Pipeline
from cdc.pipeline.definition import changes, defined_as, definition_of, in_one_form, views_in
from cdc.pipeline.views import View
from spark.disk.files import Stamp, stamp, write_atomic
from spark.disk.state import Generation

Kept = tuple[Stamp | None, Stamp | None]
# Streams, webhooks and matchers look each second where each of their views is: a file of many views is not made as a
# generation was for each of them, as long as neither has changed.
MADE = 64
_made: dict[Path, tuple[Pipeline, Stamp, Pipeline]] = {}


def define(generation: Generation, pipeline: Pipeline, tables: Sequence[str]) -> Mapping[str, Any]:
    """A generation's definition; one that has none takes the file's as it is now, for good.

    Args:
        generation: the generation.
        pipeline: the loaded file.
        tables: all captured tables, for a sink that keeps tables.
    """
    path = generation.folder / "definition.json"
    if not path.exists():
        keep_definition(generation, proposed(generation, pipeline, tables))
    return _definition(path)


def proposed(generation: Generation, pipeline: Pipeline, tables: Sequence[str]) -> dict[str, Any]:
    """What a generation would be made of if it began now; arguments as ``define``. Nothing is written."""
    part = pipeline.sinks[generation.sink]
    chosen = tables if part.tables == "all" else part.tables or ()
    return definition_of(pipeline, generation.sink, chosen)


def keep_definition(generation: Generation, definition: Mapping[str, Any]) -> None:
    """Write what a generation is made of."""
    write_atomic(generation.folder / "definition.json", json.dumps(definition, indent=1))


def shapes_taken(generation: Generation) -> Mapping[str, int]:
    """The shapes in which a generation took its tables when it began: table -> LSN since when that shape holds; nothing
    of one that nobody had seen before, and of a generation that an older version has made."""
    path = generation.folder / "definition.json"
    return dict(_definition(path).get("shapes", {})) if path.exists() else {}


def add_table(generation: Generation, table: str) -> bool:
    """Let a generation of a sink of whole tables keep another one; whether it did not before.

    Args:
        generation: one that was defined.
        table: ``schema.table``.
    """
    kept = dict(_definition(generation.folder / "definition.json"))
    known = list(kept["sink"].get("tables") or ())
    if table in known:
        return False
    keep_definition(generation, {**kept, "sink": {**kept["sink"], "tables": [*known, table]}})
    return True


def note_taken_up(generation: Generation, table: str) -> None:
    """Note that the target of a table's documents is still to be made, where the flow has long written to others.

    Call it before ``add_table``: a flow that misses a target that it has not heard of takes it for lost.

    Raises:
        DiskFull: no room (transient).
    """
    write_atomic(generation.folder / "taken_up.json", json.dumps(sorted({*taken_up(generation.folder), table})))


def taken_up(folder: Path) -> set[str]:
    """What ``note_taken_up`` has noted of the generation of a folder, until ``forget_taken_up``."""
    try:
        return set(json.loads((folder / "taken_up.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return set()


def forget_taken_up(folder: Path) -> None:
    """Every target is made."""
    (folder / "taken_up.json").unlink(missing_ok=True)


def _definition(path: Path) -> Mapping[str, Any]:
    try:
        kept: Mapping[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise StateError(f"{path} can't be read: {error}", fix="restore it from a copy, or rebuild the sink") from error
    if not isinstance(kept, dict):
        raise StateError(f"{path} can't be read: it is no object", fix="restore it from a copy, or rebuild the sink")
    return kept


def as_defined(pipeline: Pipeline, generation: Generation) -> Pipeline:
    """The pipeline with a sink and its views as one of its generations was made of.

    Args:
        pipeline: the loaded file.
        generation: of the sink; one that was never started is as the file says.

    Raises:
        StateError: the definition can't be used with this file (terminal).
    """
    path = generation.folder / "definition.json"
    written = stamp(path)  # before it is read
    if written is None:
        return pipeline
    known = _made.get(path)
    if known is not None and known[0] is pipeline and known[1] == written:
        return known[2]
    kept, title = _definition(path), f"generation {generation.number} of sink {generation.sink}, as it was defined"
    made = defined_as(pipeline, generation.sink, kept, title)
    if len(_made) >= MADE:
        _made.clear()
    _made[path] = pipeline, written, made
    return made


def views_of(generation: Generation) -> Mapping[str, View]:
    """The views that a generation was made of; none of one that was never started.

    Raises:
        StateError: the definition can't be read (terminal).
        NewerFormat: a newer Headwater wrote it (terminal).
    """
    path = generation.folder / "definition.json"
    if not path.exists():
        return {}
    kept = _definition(path)
    refuse_newer(str(path), kept["format"], DEFINITION)
    return views_in(kept)


def kept_now(generation: Generation) -> Kept:
    """Something else each time that a generation keeps other views than before: one of whole tables takes more of them
    up while it lives, under the same number. To be asked for before its views are read."""
    return stamp(generation.folder / "definition.json"), stamp(generation.folder / "views.json")


def outdated(pipeline: Pipeline, generation: Generation) -> list[str]:
    """In what the file differs from what a generation was made of, in words; empty if it does not.

    Tables that a sink of whole tables has gained since are not known here without the catalogue, only those named.
    """
    path = generation.folder / "definition.json"
    if not path.exists():
        return []
    kept, sink = _definition(path), generation.sink
    part = pipeline.sinks[sink]
    tables = kept["sink"].get("tables") or () if part.tables == "all" else part.tables or ()
    if kept["sink"]["type"] != part.type:
        return [f"sink.type changed from {kept['sink']['type']} to {part.type}"]
    now = json.loads(json.dumps(definition_of(pipeline, sink, tables)))
    return [*changes(*(in_one_form(one, pipeline.source) for one in (kept, now))), *_moved(pipeline, generation)]


def _moved(pipeline: Pipeline, generation: Generation) -> list[str]:
    """Tables that a generation reads and the file has captured no more, where it names one of another schema that is
    called the same: as a rule the same one, after ALTER TABLE … SET SCHEMA. What they are called in documents is one
    name, so the generation can't take that one up, and goes on without its changes.

    A warehouse of all tables lets go of the one, and has a flow for each; nor could a new one be built beside a history
    of that name: `check`, `plan` and `apply` refuse the file (``operations/gate.py``).
    """
    part = pipeline.sinks[generation.sink]
    if part.tables == "all" and part.form == "columns":
        return []
    try:
        known = generation.known()
    except StateError:
        return []  # told by who opens it
    read = () if known is None else known.topic_ids
    found = moved(pipeline, read, pipeline.source.tables, pipeline.captures)
    return [f"{one} is {table} now" for one, table in found]


def moved(
    pipeline: Pipeline, read: Collection[str], tables: Iterable[str], there: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """Tables that were read and are there no more, each with the one of another schema that is called the same and that
    was not read. Pure.

    Args:
        pipeline: the loaded file.
        read: the topics that somebody has read.
        tables: ``schema.table`` of those that may have its name now.
        there: whether a table is there still.
    """
    before = pipeline.topic("")
    left = {topic.removeprefix(before) for topic in read if topic.startswith(before)}
    left = {table for table in left if not there(table)}
    new = [table for table in tables if pipeline.topic(table) not in read]
    return [(one, table) for one in sorted(left) for table in new if _short(one) == _short(table)]


def _short(table: str) -> str:
    return table.partition(".")[2]
