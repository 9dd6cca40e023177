"""Notes of ours that may be damaged: a file may be there with nothing in it after a machine has lost its power, or hold
half of something after a disk was full.

One that something hangs on is refused by its name, and is that flow's trouble alone. One that only shows how things are
is read as if it was not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cdc.errors import StateError

_T = TypeVar("_T")
# What JSON of another form raises in who makes something of it, and what is no JSON.
_OTHERWISE = (ValueError, LookupError, TypeError, AttributeError)


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
    except _OTHERWISE as error:
        said = "it is empty" if path.stat().st_size == 0 else repr(error)
        raise StateError(f"{path} can't be read: {said}", means=means, fix=fix) from error


def glance(path: Path, of: Callable[[Any], _T], default: _T, *, withheld: bool = False) -> _T:
    """What a note says that only shows how things are: nothing hangs on it.

    Args:
        path: of the note.
        of: makes something of its JSON.
        default: of one that is not there, or is damaged.
        withheld: it is also of one that the system does not let us read. Else nobody would be told of missing rights:
            who is at work would seem not to be.

    Raises:
        OSError: the system does not let us read it.
    """
    try:
        return of(json.loads(path.read_text()))
    except (FileNotFoundError, NotADirectoryError, *_OTHERWISE):
        return default
    except OSError:
        if not withheld:
            raise
        return default


def offsets_of_json(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[int, int]]:
    """Topic -> partition -> offset, of JSON, whose keys are texts.

    Raises:
        AttributeError, TypeError, ValueError: it is something else.
    """
    return {topic: {int(part): int(at) for part, at in parts.items()} for topic, parts in found.items()}
