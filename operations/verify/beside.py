"""What a sink holds is read and digested in processes beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cdc.saying import Say
from cdc.view import View
from operations.child_process import Apart
from operations.holding import holding
from operations.opened import Opened
from operations.verify.buckets import Side
from operations.verify.expected_file import reading
from truth.bounds import Bounds


def write_held(opened: Opened, view: View, folder: Path, buckets: int, told: Path | None = None) -> int:
    """Digests of everything that is held, into bucket files; meant for a process of its own.

    Args:
        opened: the generation.
        view: the view.
        folder: of the ``Side``.
        buckets: how many.
        told: of a ``Told`` that knows which values are compared within bounds; None if none are.

    Returns:
        how many were within theirs.
    """
    side = Side(folder, buckets)
    with holding(opened, view) as held, _bounds(told) as bounds:
        held.bounds = bounds
        for key, holds in held.scan():
            side.add(key, holds.digest)
    side.flush()
    return held.within


@contextmanager
def _bounds(told: Path | None) -> Iterator[Callable[[str], Bounds]]:
    if told is None:
        yield lambda key: {}
        return
    with reading(told) as known:
        yield known.bounds


Job = tuple[Opened, View, Path, int, Path | None]


@contextmanager
def beside(jobs: Sequence[Job], *, apart: bool) -> Iterator[Callable[[], list[int]]]:
    """Digests of what sinks hold, written by a process beside this one; few rows are read here, by ``finish``.

    Gives:
        ``finish``: waits until all is written, and raises what went wrong there; of each job what ``write_held`` gave.
    """
    if not apart:
        yield lambda: [write_held(*job) for job in jobs]
        return
    with Apart(_write_all, list(jobs)) as work:
        yield work.result


def _write_all(_say: Say, jobs: Sequence[Job]) -> list[int]:
    """The other process's work: what the sinks hold, one after the other."""
    return [write_held(*job) for job in jobs]
