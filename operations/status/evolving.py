"""What is under way because the source's tables have changed, as data. Asks no server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from cdc.pipeline import Pipeline
from operations.kept_shapes import read_evolution, read_progress


def evolving(pipeline: Pipeline) -> list[dict[str, Any]]:
    """What is under way because of changed tables: a part of `status --json`."""
    progress = read_progress(pipeline)
    return [
        {
            "table": table,
            "what": list(todo.what),
            "seconds": round(time.time() - todo.at, 1),
            "reading": todo.read is not None,
            "rebuilding": list(todo.rebuild),
            "waits": todo.waits,
            "progress": progress.get("progress") or None,
            "error": todo.error,
        }
        for table, todo in sorted(read_evolution(pipeline).todo.items())
    ]


def line(one: Mapping[str, Any]) -> str:
    """One of ``evolving`` for people."""
    doing = [f"rows of {one['table']} are read again"] if one["reading"] else []
    doing += [f"a new generation of {sink} is built" for sink in one["rebuilding"]]
    doing = ["waits for `headwater apply`"] if one["waits"] else doing
    how_far = f" ({one['progress']})" if one["progress"] else ""
    error = f"; last error: {one['error'].splitlines()[0]}" if one["error"] else ""
    return f"evolving: table {one['table']}: {', '.join(one['what'])}: {', '.join(doing)}{how_far}{error}"
