"""Notes of ours that something hangs on: one that is damaged is refused by its name, and is that flow's trouble alone.

A file may be there with nothing in it after a machine has lost its power, or hold half of something after a disk was
full. Notes that only show how things are read as if they were not there, each in its own place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cdc.errors import StateError

_T = TypeVar("_T")


def read_note(path: Path, of: Callable[[Any], _T], fix: str, means: str = "nothing was written") -> _T | None:
    """What a note says; None if there is none.

    Args:
        path: of the note.
        of: makes something of its JSON.
        fix: what helps where it can't be read.
        means: what follows of it, as a clause.

    Raises:
        StateError: it can't be read (terminal).
    """
    try:
        return of(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        said = "it is empty" if path.stat().st_size == 0 else repr(error)
        raise StateError(f"{path} can't be read: {said}", means=means, fix=fix) from error
