"""Tables that a generation goes on with as they were: its target can't hold what is new.

<state_dir>/<pipeline>/<sink>/g<N>/frozen.json
                                  /mapped.json    fields that its indices have of columns that are gone
                                                  (operations/schema/mapped.py)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cdc.catalogue import Catalogue, Table, as_stored, moved_from, table_of
from cdc.formats import SHAPES, refuse_newer
from cdc.pipeline import Pipeline
from cdc.records.former import with_digits
from operations.state.evolution import KEPT_READ, MEND
from spark.disk.files import Stamp, stamp, write_atomic
from spark.disk.notes import read_note
from spark.disk.state import Generation


@dataclass(frozen=True)
class Frozen:
    """What a generation goes on with as it was.

    Attributes:
        tables: as the generation knows them.
        refused: table -> why the flows that read it are stopped.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def over(self, catalogue: Catalogue, *, documents: bool = False) -> Catalogue:
        """The catalogue as the generation knows it; records, and the database, of today have its columns under their
        present names.

        Args:
            catalogue: the tables as they are.
            documents: it keeps documents, not columns of a table.
        """
        tables = {
            name: _known_as(with_digits(table, catalogue.tables[name]) if documents else table, catalogue.tables[name])
            for name, table in self.tables.items()
            if name in catalogue.tables
        }
        return replace(catalogue, tables={**catalogue.tables, **tables}) if tables else catalogue


def _known_as(frozen: Table, now: Table) -> Table:
    present = {column.ordinal: column for column in now.columns}
    there = [(column, present.get(column.ordinal)) for column in frozen.columns]
    found = {(one.name, column.name) for column, one in there if one is not None and one.name not in frozen.by_name}
    others = tuple((column.name, one) for column, one in there if one != column)
    renamed, moved = tuple(sorted({*frozen.renamed, *found})), frozen.moved
    # Another column may have a name of then: records of today would be read as that one's. Not where all names are what
    # they were: those of before and of today can't be told apart.
    if now.by_name.keys() != frozen.by_name.keys() and (today := moved_from(now, frozen, renamed)) is not None:
        moved = (*moved, today)
    return replace(frozen, renamed=renamed, moved=moved, present=others)


def known_to(pipeline: Pipeline, generation: Generation, catalogue: Catalogue) -> Catalogue:
    """The tables as a generation knows them: as they were, where its target can't hold what is new; and, once it has
    written, one that is gone, or that the file has captured no more, as it was last.

    Whoever was at work when it went has it so too: what reads it is stopped by name, and the rest of the sink goes on,
    also after a start (docs/decisions/changed-tables.md).

    Args:
        pipeline: the loaded file.
        generation: the generation.
        catalogue: the captured tables that are there.

    Raises:
        StateError: what is kept of it can't be read (terminal).
    """
    if catalogue.gone and generation.started:
        catalogue = with_gone(pipeline, generation.sink, catalogue, read_by(generation))
    documents = pipeline.sinks[generation.sink].form != "columns"
    return read_frozen(generation).over(catalogue, documents=documents)


def read_by(generation: Generation) -> Collection[str]:
    """The topics that a generation has come to read; none of one that is bound to nothing yet."""
    known = generation.known()
    return known.topic_ids.keys() if known is not None else ()


def with_gone(pipeline: Pipeline, sink: str, catalogue: Catalogue, read: Collection[str] = ()) -> Catalogue:
    """The tables with those that are gone although the file has them captured, as they were last. Pure.

    Of a schema that is captured whole nobody says that a table should be there: a warehouse of all tables is one of
    those that are (``opened.without_absent``). Documents of all of them are kept by one flow, gone or not.

    A generation that reads a table which was taken out of the file goes on as it was made: that table's topic stays,
    and what it has of its rows stands still. One that reads another table of that name was made after it had gone.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        catalogue: the captured tables that are there.
        read: topics that a generation of it has come to read: also those of tables that the file has captured no more.
    """
    every = pipeline.sinks[sink].tables == "all" and pipeline.sinks[sink].form == "columns"
    named = pipeline.source.tables
    others = {table.name for name, table in catalogue.tables.items() if pipeline.topic(name) in read}

    def stays(table: Table) -> bool:
        if pipeline.topic(table.qualified) in read:
            return not every or table.qualified in named
        wanted = table.qualified in named or (not every and pipeline.captures(table.qualified))
        return wanted and table.name not in others

    gone = {name: table for name, table in catalogue.gone.items() if stays(table)}
    return replace(catalogue, tables={**catalogue.tables, **gone}) if gone else catalogue


def read_frozen(generation: Generation) -> Frozen:
    """What a generation goes on with; nothing for most.

    Raises:
        StateError: the file can't be read (terminal).
    """
    path = generation.folder / "frozen.json"
    return _frozen(path, stamp(path)) if path.exists() else Frozen()


@lru_cache(maxsize=KEPT_READ)
def _frozen(path: Path, _now: Stamp | None) -> Frozen:
    def of(raw: Any) -> Frozen:
        refuse_newer(str(path), raw["format"], SHAPES)
        return Frozen({name: table_of(table) for name, table in raw["tables"].items()}, raw["refused"])

    return read_note(path, of, MEND) or Frozen()


def freeze(generation: Generation, table: Table, reason: str | None = None) -> None:
    """Let a generation go on with a table as it was; the older shape stays if it is frozen already.

    Args:
        generation: which.
        table: as it was.
        reason: why the flows that read it are stopped; None if they go on.

    Raises:
        DiskFull: no room (transient).
    """
    known = read_frozen(generation)
    tables = {table.qualified: table, **known.tables}
    refused = {**known.refused, **({table.qualified: reason} if reason else {})}
    _write_frozen(generation, tables, refused)


def thaw(generation: Generation, table: str) -> bool:
    """Let a generation go by a table as it is again; whether it did not before.

    Raises:
        DiskFull: no room (transient).
    """
    known = read_frozen(generation)
    if table not in known.tables:
        return False
    tables = {name: one for name, one in known.tables.items() if name != table}
    refused = {name: why for name, why in known.refused.items() if name != table}
    _write_frozen(generation, tables, refused)
    return True


def release(generation: Generation, table: str) -> None:
    """Let the flows that read a table go on with it as it was: what has stopped them is no more.

    Raises:
        DiskFull: no room (transient).
    """
    known = read_frozen(generation)
    _write_frozen(generation, known.tables, {name: why for name, why in known.refused.items() if name != table})


def _write_frozen(generation: Generation, tables: Mapping[str, Table], refused: Mapping[str, str]) -> None:
    text = json.dumps(
        {"format": SHAPES, "tables": {name: as_stored(one) for name, one in tables.items()}, "refused": dict(refused)}
    )
    write_atomic(generation.folder / "frozen.json", text)
