"""The fields that a generation's indices have of columns that are gone: ``<sink>/g<N>/mapped.json``.

A search server never forgets a field. What comes later under such a name must be of its type, or needs an index of its
own (``operations.schema.decide``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdc.formats import SHAPES, refuse_newer
from operations.state.evolution import MEND
from sinks.elasticsearch.mapping import merge
from spark.disk.files import write_atomic
from spark.disk.notes import read_note
from spark.disk.state import Generation

Fields = Mapping[str, Any]


def read_mapped(generation: Generation) -> dict[str, Fields]:
    """View -> the fields of its index, as it has had them; nothing of a view that has lost none.

    Raises:
        StateError: the file can't be read (terminal).
    """
    path = _path(generation)

    def of(raw: Any) -> dict[str, Fields]:
        refuse_newer(str(path), raw["format"], SHAPES)
        return {str(view): dict(fields) for view, fields in raw["views"].items()}

    return read_note(path, of, MEND) or {}


def note_mapped(generation: Generation, view: str, fields: Fields) -> None:
    """Remember a view's fields besides those that are known; nothing is written if all of them are.

    An index never loses one: of two tables of a view that change at once, each knows what it took away alone.

    Raises:
        StateError: the file can't be read (terminal).
        DiskFull: no room (transient).
    """
    known = read_mapped(generation)
    had = known.get(view, {})
    if (have := merge(had, fields)) != had:
        write_atomic(_path(generation), json.dumps({"format": SHAPES, "views": {**known, view: have}}, sort_keys=True))


def _path(generation: Generation) -> Path:
    return generation.folder / "mapped.json"
