"""Every shape that each captured table has had, since when: records are read by it; and what a table owes.

<state_dir>/<pipeline>/shapes.json     the shapes
                       owed.json       columns with values that no log has, and which nobody has needed yet
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from cdc.catalogue import Table
from cdc.pipeline import Pipeline
from cdc.shapes import Shape, Shapes
from operations.state.folder import pipeline_folder
from spark.disk.files import write_atomic


def known_shapes(pipeline: Pipeline) -> Shapes:
    """Every shape that is known.

    Raises:
        StateError: the file can't be read (terminal).
    """
    path = pipeline_folder(pipeline) / "shapes.json"
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
            write_atomic(pipeline_folder(pipeline) / "shapes.json", now.to_json())
        return now


def positions(pipeline: Pipeline, tables: Iterable[Table]) -> dict[str, int]:
    """Since when tables have been what somebody takes them for: table -> LSN in bytes; nothing of one that was never
    seen so.

    Raises:
        StateError: the file can't be read (terminal).
    """
    shapes, found = known_shapes(pipeline).tables, dict[str, int]()
    for table in tables:
        same = [shape.since for shape in shapes.get(table.qualified, ()) if shape.table == table]
        found |= {table.qualified: same[-1]} if same else {}
    return found


@contextmanager
def _locked(pipeline: Pipeline) -> Iterator[None]:
    """One process at a time: two that add a shape each must not lose one."""
    folder = pipeline_folder(pipeline)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".shapes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_owed(pipeline: Pipeline) -> dict[str, list[int]]:
    """Table -> numbers of columns that have values which no log has, and which nobody has needed yet."""
    try:
        owed = json.loads((pipeline_folder(pipeline) / "owed.json").read_text())
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
            write_atomic(pipeline_folder(pipeline) / "owed.json", json.dumps(now))
