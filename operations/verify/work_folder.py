"""Where a comparison keeps what memory would be too small for, and what it says if somebody removes that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc.errors import HeadwaterError
from cdc.scratch import LOCK, scratch_folder
from operations.verify.buckets import gone

PREFIX = ".verify-"


@contextmanager
def work_folder(root: Path) -> Iterator[Path]:
    """A folder for the time of a block; those that killed processes have left are removed.

    That it is there at the end is not looked at: what was done in sinks meanwhile has to be told. See ``refuse_gone``.

    Args:
        root: where it is made.

    Raises:
        StateError: the block failed for want of it: somebody has removed it meanwhile.
    """
    with scratch_folder(PREFIX, root) as folder, naming_gone(folder):
        yield folder


def refuse_gone(folder: Path) -> None:
    """Look whether what was compared in a folder was there to the end.

    Raises:
        StateError: somebody has removed it.
    """
    if not (folder / LOCK).exists():
        raise gone(folder)


@contextmanager
def naming_gone(folder: Path) -> Iterator[None]:
    """For a block that works in a folder: what fails for want of it says so.

    Raises:
        StateError: the block failed in a way that has no name, and somebody has removed the folder.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, HeadwaterError) or (folder / LOCK).exists():
            raise
        raise gone(folder) from error
