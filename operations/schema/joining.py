"""Tables that join a sink of all tables while it lives: which it does not keep yet, and how it comes to keep one."""

from __future__ import annotations

from collections.abc import Collection

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, HeadwaterError
from cdc.pipeline import Pipeline
from cdc.resolve.views import refuse_unlike_tables, resolve_views
from operations.opened import going_on, kept_tables, with_table, without_absent
from operations.state.folder import register_of
from operations.state.frozen import known_to, read_by
from spark.disk.made_of import add_table, moved, note_taken_up
from spark.disk.state import Generation


def lacking(pipeline: Pipeline, sink: str, catalogue: Catalogue) -> set[str]:
    """Captured tables that a sink of all tables does not keep, and could: its generations were made when they were not
    there, or when the file named others.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        catalogue: the captured tables.

    """
    if pipeline.sinks[sink].tables != "all":
        return set()
    # What `run` builds by itself, and nobody sees, may be of an older file, and go.
    register = register_of(pipeline, sink)
    unseen = {one.number for one in register.entries() if one.own and one.unseen}
    generations = [one for one in register.begun() if one.number not in unseen]
    try:
        found = set().union(*(_not_kept(pipeline, one, catalogue) for one in generations))
        keyed = [table for table in found if catalogue.tables[table].primary_key]
        return {table for table in keyed if all(_unfit(pipeline, one, catalogue, table) is None for one in generations)}
    except HeadwaterError:
        return set()  # it is not run: whoever opens it refuses it, and the others go on


def _not_kept(pipeline: Pipeline, generation: Generation, catalogue: Catalogue) -> set[str]:
    if not catalogue.tables.keys() - {*kept_tables(pipeline, generation)}:
        return set()
    known = known_to(pipeline, generation, catalogue)
    views = resolve_views(going_on(pipeline, generation, known), known, generation.sink)
    found = catalogue.tables.keys() - {view.table.qualified for view in views}
    return found - _formers(pipeline, generation, catalogue, found).keys()


def take_up(pipeline: Pipeline, sink: str, catalogue: Catalogue, table: str, said: list[str]) -> bool:
    """Let the generations of a sink of whole tables keep a new one too; whether readers are to see it.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        catalogue: the captured tables.
        table: ``schema.table``.
        said: gets a line if that can't be.

    Raises:
        DiskFull: no room (transient).
    """
    if pipeline.sinks[sink].tables != "all":
        return False
    for generation in register_of(pipeline, sink).begun():
        if (error := _unfit(pipeline, generation, catalogue, table)) is not None:
            said.append(f"warning: sink {sink} does not keep table {table}: {error.what}")
            return False
        if table in kept_tables(pipeline, generation):
            continue
        if _formers(pipeline, generation, catalogue, [table]):
            continue  # readers see another one; who goes back to it has what it had
        if pipeline.sinks[sink].form != "columns":
            note_taken_up(generation, table)
        add_table(generation, table)
    return True


def _unfit(pipeline: Pipeline, generation: Generation, catalogue: Catalogue, table: str) -> ConfigError | None:
    """Why a generation can't keep a table besides; None if it can."""
    former = _formers(pipeline, generation, catalogue, [table]).get(table)
    if former is not None and not _is_previous(pipeline, generation):
        return ConfigError(f"{former} had this name in it: table, place and history are that one's")
    known = known_to(pipeline, generation, catalogue)
    try:
        defined = with_table(pipeline, generation, table)
        views = resolve_views(without_absent(pipeline, defined, generation.sink, known), known, generation.sink)
        refuse_unlike_tables(pipeline, generation.sink, [view for view in views if view.table.qualified == table])
    except ConfigError as error:
        return error
    return None


def _formers(
    pipeline: Pipeline, generation: Generation, catalogue: Catalogue, tables: Collection[str]
) -> dict[str, str]:
    """Those of some tables whose name one that is gone had in a warehouse, with that one: the flow would go on from its
    place, which is in another topic."""
    if pipeline.sinks[generation.sink].form != "columns":
        return {}
    found = moved(pipeline, read_by(generation), tables, catalogue.tables.__contains__)
    return {table: former for former, table in found}


def _is_previous(pipeline: Pipeline, generation: Generation) -> bool:
    return register_of(pipeline, generation.sink).stage(generation.number) == "previous"
