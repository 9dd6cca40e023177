"""What a sink holds is read and digested in processes beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cdc.view import View
from operations.apart import Apart, Say
from operations.holding import holding
from operations.opened import Opened
from operations.verify.buckets import Side


def write_held(opened: Opened, view: View, folder: Path, buckets: int) -> None:
    """Digests of everything that is held, into bucket files; meant for a process of its own.

    Args:
        opened: the generation.
        view: the view.
        folder: of the ``Side``.
        buckets: how many.
    """
    side = Side(folder, buckets)
    with holding(opened, view) as held:
        for key, holds in held.scan():
            side.add(key, holds.digest)
    side.flush()


Job = tuple[Opened, View, Path, int]


@contextmanager
def beside(jobs: Sequence[Job], *, apart: bool) -> Iterator[Callable[[], None]]:
    """Digests of what sinks hold, written by a process beside this one; few rows are read here, by ``finish``.

    Gives:
        ``finish``: waits until all is written, and raises what went wrong there.
    """
    if not apart:

        def here() -> None:
            for job in jobs:
                write_held(*job)

        yield here
        return
    with Apart(_write_all, list(jobs)) as work:
        yield work.result


def _write_all(_say: Say, jobs: Sequence[Job]) -> None:
    """The other process's work: what the sinks hold, one after the other."""
    for job in jobs:
        write_held(*job)
