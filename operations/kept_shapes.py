"""What is kept of the tables' shapes, below the pipeline's state folder.

shapes.json                 every shape that each captured table has had, since when: records are read by it
<sink>/evolution.json       the shape that the sink was brought to, and what is under way because of a newer one
<sink>/g<N>/frozen.json     tables that generation N goes on with as they were: its target can't hold what is new
<sink>/g<N>/mapped.json     fields that its indices have of columns that are gone (operations/schema/mapped.py)
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from cdc.catalogue import Catalogue, Table, table_of
from cdc.errors import StateError
from cdc.formats import SHAPES, refuse_newer
from cdc.pipeline import Pipeline
from cdc.records.former import with_digits
from cdc.shapes import Shape, Shapes, shape_of
from operations.state_folder import state_dir
from spark.disk.files import Stamp, stamp, write_atomic, write_somehow
from spark.disk.state import Generation

# More files than a process has sinks and generations.
KEPT_READ = 256
MEND = "restore it from a copy; or remove it, and `headwater verify FILE` shows what has to be read again"


def _folder(pipeline: Pipeline) -> Path:
    return state_dir(pipeline) / pipeline.name


def known_shapes(pipeline: Pipeline) -> Shapes:
    """Every shape that is known.

    Raises:
        StateError: the file can't be read (terminal).
    """
    path = _folder(pipeline) / "shapes.json"
    return Shapes.from_json(path.read_text(), str(path)) if path.exists() else Shapes({})


def remember_shapes(pipeline: Pipeline, seen: Mapping[str, Shape]) -> Shapes:
    """Add what was seen now; every process that reads the source's tables does.

    Raises:
        StateError: the file can't be read (terminal).
        DiskFull: no room (transient).
    """
    with _locked(pipeline):
        known = known_shapes(pipeline)
        now, _ = known.with_newer(seen)
        if now != known:
            write_atomic(_folder(pipeline) / "shapes.json", now.to_json())
        return now


@contextmanager
def _locked(pipeline: Pipeline) -> Iterator[None]:
    """One process at a time: two that add a shape each must not lose one."""
    folder = _folder(pipeline)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".shapes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Todo:
    """What is under way for one table.

    Attributes:
        what: what has happened to it, in words.
        at: when that was noticed, epoch seconds.
        read: which of its rows are to be read again: a condition, or empty for all; None for none, or done.
        rebuild: the sink gets a new generation.
        capture: the connector's settings are to be brought to the table.
        sweep: rows that are gone without a delete are to be looked for.
        new: the table is new; a sink of whole tables takes it up once it is captured.
        show: readers are to see what was taken up.
        waits: stopped by ``policy.schema`` until `headwater apply`.
        error: why the last attempt at a step has failed.
    """

    what: tuple[str, ...]
    at: float
    read: str | None = None
    rebuild: bool = False
    capture: bool = False
    sweep: bool = False
    new: bool = False
    show: bool = False
    waits: bool = False
    error: str | None = None

    @property
    def over(self) -> bool:
        """Nothing is left to do."""
        return self.read is None and not (self.rebuild or self.capture or self.show or self.waits)


@dataclass(frozen=True)
class Evolution:
    """How far one sink has followed the tables: by sink, because each may have a process of its own.

    Attributes:
        acted: table -> the shape that the sink was brought to.
        todo: table -> what is under way.
        allowed: shapes that `headwater apply` has let through, under ``policy.schema`` pause or ignore.
    """

    acted: Mapping[str, Shape] = field(default_factory=dict)
    todo: Mapping[str, Todo] = field(default_factory=dict)
    allowed: Mapping[str, Shape] = field(default_factory=dict)

    def having(self, table: str, todo: Todo | None) -> Evolution:
        """The same with what is under way for one table; None for nothing."""
        rest = {name: one for name, one in self.todo.items() if name != table}
        return replace(self, todo=rest if todo is None or todo.over else {**rest, table: todo})


def has_evolution(pipeline: Pipeline, sink: str) -> bool:
    """Whether it is known what a sink was brought to."""
    return _evolution(pipeline, sink).exists()


def _evolution(pipeline: Pipeline, sink: str) -> Path:
    return _folder(pipeline) / sink / "evolution.json"


def read_evolution(pipeline: Pipeline, sink: str) -> Evolution:
    """How far a sink has followed.

    Raises:
        StateError: the file can't be read (terminal).
    """
    path = _evolution(pipeline, sink)
    if not path.exists():
        return Evolution()
    try:
        raw = json.loads(path.read_text())
        refuse_newer(str(path), raw["format"], SHAPES)
        return Evolution(
            {name: shape_of(shape) for name, shape in raw["acted"].items()},
            {name: Todo(**{**todo, "what": tuple(todo["what"])}) for name, todo in raw["todo"].items()},
            {name: shape_of(shape) for name, shape in raw["allowed"].items()},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} can't be read: {error!r}", fix=MEND) from error


def write_evolution(pipeline: Pipeline, sink: str, evolution: Evolution) -> None:
    """Replace it in one step.

    Raises:
        DiskFull: no room (transient); nothing was changed.
    """
    text = json.dumps({"format": SHAPES, **asdict(evolution)}, sort_keys=True)
    write_atomic(_evolution(pipeline, sink), text)


def read_allowed(pipeline: Pipeline) -> dict[str, Shape]:
    """Shapes that `headwater apply` has let through; a word of its own file, because `run` writes the other one."""
    path = _folder(pipeline) / "allowed.json"
    return dict(_allowed(path, stamp(path)))


# `run` asks for this and for what is frozen twice a second, of every generation: they are read when they have changed.
@lru_cache(maxsize=KEPT_READ)
def _allowed(path: Path, _now: Stamp | None) -> Mapping[str, Shape]:
    try:
        return {name: shape_of(shape) for name, shape in json.loads(path.read_text()).items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def allow(pipeline: Pipeline, shapes: Mapping[str, Shape]) -> None:
    """Let the tables' shapes through, whatever ``policy.schema`` says."""
    text = json.dumps({name: asdict(shape) for name, shape in sorted(shapes.items())})
    write_atomic(_folder(pipeline) / "allowed.json", text)


# A step that is under way: its sink, or none; its tables, or none; what it has said last.
Progress = tuple[str, Sequence[str], str]


def write_progress(pipeline: Pipeline, steps: Sequence[Progress]) -> None:
    """How far the steps are that are under way, for `status`; nothing when none is."""
    path = _folder(pipeline) / "evolving.json"
    if not steps:
        path.unlink(missing_ok=True)
        return
    write_somehow(path, json.dumps({"steps": steps}))


def read_progress(pipeline: Pipeline) -> list[Progress]:
    """What ``write_progress`` has said last; empty for nothing."""
    try:
        steps = json.loads((_folder(pipeline) / "evolving.json").read_text())["steps"]
        return [(str(sink), tuple(tables), str(words)) for sink, tables, words in steps]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return []


def read_asked(pipeline: Pipeline) -> dict[str, str]:
    """Tables that are being read again -> what was asked for, of which shape: it is not asked for twice."""
    try:
        return dict(json.loads((_folder(pipeline) / "asked.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return {}


def write_asked(pipeline: Pipeline, asked: Mapping[str, str]) -> None:
    """Replace what ``read_asked`` gives.

    Raises:
        DiskFull: no room (transient).
    """
    write_atomic(_folder(pipeline) / "asked.json", json.dumps(dict(asked)))


def forget_asked(pipeline: Pipeline, table: str) -> None:
    """It has ended: the next time it is asked for anew. Raises as ``write_asked``."""
    write_asked(pipeline, {name: one for name, one in read_asked(pipeline).items() if name != table})


def read_owed(pipeline: Pipeline) -> dict[str, list[int]]:
    """Table -> numbers of columns that have values which no log has, and which nobody has needed yet."""
    try:
        owed = json.loads((_folder(pipeline) / "owed.json").read_text())
        return {str(table): [int(number) for number in numbers] for table, numbers in owed.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def owe(pipeline: Pipeline, table: str, numbers: Iterable[int] = (), *, settled: bool = False) -> None:
    """Remember such columns of a table besides.

    Args:
        pipeline: the loaded file.
        table: ``schema.table``.
        numbers: of the columns.
        settled: all its rows were read again: nothing is owed of those that were.

    Raises:
        DiskFull: no room (transient).
    """
    with _locked(pipeline):
        known = read_owed(pipeline)
        mine = set() if settled else {*known.get(table, ())}
        now = {name: one for name, one in known.items() if name != table}
        if left := sorted(mine | {*numbers}):
            now[table] = left
        if now != known:
            write_atomic(_folder(pipeline) / "owed.json", json.dumps(now))


# -- one generation ----------------------------------------------------------------------------------------------------


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
    return replace(frozen, renamed=tuple(sorted({*frozen.renamed, *found})), present=others)


def known_to(pipeline: Pipeline, generation: Generation, catalogue: Catalogue) -> Catalogue:
    """The tables as a generation knows them: as they were, where its target can't hold what is new; and, once it has
    written, one that is gone as it was last, though the file has it captured.

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
        catalogue = with_gone(pipeline, generation.sink, catalogue)
    documents = pipeline.sinks[generation.sink].form != "columns"
    return read_frozen(generation).over(catalogue, documents=documents)


def with_gone(pipeline: Pipeline, sink: str, catalogue: Catalogue) -> Catalogue:
    """The tables with those that are gone although the file has them captured, as they were last. Pure.

    Of a schema that is captured whole nobody says that a table should be there: a warehouse of all tables is one of
    those that are (``opened.without_absent``). Documents of all of them are kept by one flow, gone or not.
    """
    every = pipeline.sinks[sink].tables == "all" and pipeline.sinks[sink].form == "columns"
    named = pipeline.source.tables
    gone = {
        name: table
        for name, table in catalogue.gone.items()
        if name in named or (not every and pipeline.captures(name))
    }
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
    try:
        raw = json.loads(path.read_text())
        refuse_newer(str(path), raw["format"], SHAPES)
        return Frozen({name: table_of(table) for name, table in raw["tables"].items()}, raw["refused"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} can't be read: {error!r}", fix=MEND) from error


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


def _write_frozen(generation: Generation, tables: Mapping[str, Table], refused: Mapping[str, str]) -> None:
    text = json.dumps(
        {"format": SHAPES, "tables": {name: asdict(one) for name, one in tables.items()}, "refused": dict(refused)}
    )
    write_atomic(generation.folder / "frozen.json", text)
