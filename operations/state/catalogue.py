"""The source's catalogue for verbs that run: read from Postgres, remembered for when Postgres is away."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError, SourceError
from cdc.pipeline import Pipeline
from cdc.resolve.names import near
from connectors.postgres import connect
from connectors.tables.shapes import read_shapes
from operations.state.folder import state_dir
from operations.state.shapes import known_shapes, remember_shapes
from spark.disk.files import write_atomic

# Python's logging writes a warning to standard error when nobody has said otherwise.
_warn = logging.getLogger(__name__).warning


def source_catalogue(pipeline: Pipeline) -> Catalogue:
    """Read the captured tables' definitions, with the names that their columns have had; fall back on the last known
    ones when Postgres does not answer.

    The sinks live from the log: they must start, and catch up on what the log holds, while the database is down. A
    table that is not there is left out, with a warning: only the sinks that need it have a reason to stop.

    Args:
        pipeline: the loaded file.

    Raises:
        SourceError: Postgres does not answer and this pipeline has never run here (transient by nature); or none of
            the tables is there (terminal).
    """
    remembered = remembered_at(pipeline)
    absent: list[SourceError] = []
    try:
        with connect(pipeline.source) as connection:
            catalogue, shapes = read_shapes(connection, pipeline.source.tables, absent=absent)
    except SourceError as error:
        if not error.transient or not remembered.exists():
            raise
        _warn(f"warning: {error.what}; going on with the table definitions of the last start")
        return _remembered(pipeline, remembered)
    if absent and not catalogue.tables:
        raise absent[0]
    for missing in absent:
        _warn(f"warning: {missing.what}; what reads it stands still")
    write_atomic(remembered, catalogue.to_json())
    return remember_shapes(pipeline, shapes).told_to(catalogue)


def remembered_at(pipeline: Pipeline) -> Path:
    """The file in which the definitions of the last start are kept."""
    return state_dir(pipeline) / pipeline.name / "catalogue.json"


def remembered_catalogue(pipeline: Pipeline) -> Catalogue | None:
    """The captured tables as this machine has seen them last, Postgres not being asked; None if it never has.

    Raises:
        StateError: what is kept of the tables can't be read (terminal).
    """
    path = remembered_at(pipeline)
    return _remembered(pipeline, path) if path.exists() else None


def _remembered(pipeline: Pipeline, path: Path) -> Catalogue:
    # What was seen last is in the shapes: a `run` that goes on for months reads the catalogue at its start alone.
    known, catalogue = known_shapes(pipeline), Catalogue.from_json(path.read_text())
    # Not those of tables that the file has captured once.
    newest = {name: shapes[-1].table for name, shapes in known.tables.items() if pipeline.captures(name)}
    return known.told_to(replace(catalogue, tables={**catalogue.tables, **newest}))


def captured_table(catalogue: Catalogue, name: str) -> Table:
    """A captured table by its name, with or without its schema.

    Raises:
        ConfigError: there is none, or there are several (terminal).
    """
    found = [table for known, table in catalogue.tables.items() if name in (known, known.partition(".")[2])]
    if len(found) == 1:
        return found[0]
    others = near(name, catalogue.tables) or f"choose from {', '.join(sorted(catalogue.tables)[:20])}"
    if not found and (gone := [known for known in catalogue.gone if name in (known, known.partition(".")[2])]):
        raise ConfigError(
            f"no table {name} is captured any more",
            means="its topic, and what sinks have of its rows, stay as they were",
            fix=f"if it is there still, put {' or '.join(gone)} into source.tables, then `apply --wait`; {others}",
        )
    what = f"{len(found)} captured tables are called {name}" if found else f"no table {name} is captured"
    raise ConfigError(what, fix=others)
