"""What is under way because the source's tables have changed, as data. Asks no server."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cdc.ages import at_least
from cdc.pipeline import Pipeline
from cdc.shapes import RETYPED
from cdc.wording import split
from operations.state.evolution import Progress, Todo, read_evolution, read_progress


def evolving(pipeline: Pipeline, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What is under way because of changed tables: a part of `status --json`.

    Args:
        pipeline: the loaded file.
        only: for these sinks; all if empty.
    """
    progress = read_progress(pipeline)
    found: dict[str, list[tuple[str, Todo]]] = {}
    for sink in only or pipeline.sinks:
        for table, todo in read_evolution(pipeline, sink).todo.items():
            found.setdefault(table, []).append((sink, todo))
    return [
        {
            "table": table,
            "what": list(dict.fromkeys(words for _, todo in todos for words in todo.what)),
            "seconds": round(at_least(min(todo.at for _, todo in todos), time.time()), 1),
            "reading": any(todo.read is not None or todo.capture for _, todo in todos),
            "rows": _rows(table, [todo for _, todo in todos]),
            "capturing": any(todo.capture for _, todo in todos),
            "rebuilding": [sink for sink, todo in todos if todo.rebuild],
            "waits": any(todo.waits for _, todo in todos),
            "progress": _of(progress, table, [sink for sink, todo in todos if todo.rebuild]),
            "error": next((todo.error for _, todo in todos if todo.error), None),
        }
        for table, todos in sorted(found.items())
    ]


# What is asked of partitions alone that came ("false": that have gone), as operations/schema/changed.py combines it.
_OF_PARTITIONS = re.compile(r"tableoid IN \([\d, ]+\)|\bfalse\b|\bOR\b|[() ]")
_COME = re.compile(r"partition (.+) was added")


def _rows(table: str, todos: Sequence[Todo]) -> str | None:
    """Which rows are read, in words; None for none. Pure."""
    reads = [todo.read for todo in todos if todo.read is not None]
    if not reads:
        return f"rows of {table} are read again" if any(todo.capture for todo in todos) else None
    if any(read == "" or _OF_PARTITIONS.sub("", read) for read in reads):
        return f"rows of {table} are read again"
    if not any("tableoid" in read for read in reads):
        return "rows that are gone are looked for"
    said = (_COME.fullmatch(words) for todo in todos for words in todo.what)
    names = ", ".join(dict.fromkeys(one[1] for one in said if one))
    return f"rows of {names or f'partitions of {table} that came'} are read"  # another change's words may stand there


def _of(progress: Sequence[Progress], table: str, rebuilding: Sequence[str]) -> str | None:
    """What was said last of a table's own step, or else of the generation that is built because of it. Pure."""
    own = [words for _, tables, words in progress if table in tables and words]
    built = [words for sink, tables, words in progress if not tables and sink in rebuilding and words]
    return next(iter([*own, *built]), None)


def line(one: Mapping[str, Any]) -> str:
    """One of ``evolving`` for people."""
    doing = [one["rows"]] if one["rows"] else []
    if one["capturing"] and one["error"]:
        doing = ["it is still to be captured as it is now"]
    doing += [f"a new generation of {sink} is built" for sink in one["rebuilding"]]
    if one["rebuilding"] and any(RETYPED in words for words in one["what"]):
        doing.append("until it is shown, what the former type can't hold is null")
    doing = ["waits for `headwater apply`"] if one["waits"] else doing
    how_far = f" ({one['progress']})" if one["progress"] else ""
    what, fix = split(one["error"])
    error = f"; last error: {what}{f' (what to do: {fix})' if fix else ''}" if what else ""
    told = ": ".join(filter(None, (", ".join(one["what"]), ", ".join(doing))))
    return f"evolving: table {one['table']}: {told}{how_far}{error}"
