"""What a sink holds is read and digested in processes beside this one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc.errors import HeadwaterError
from cdc.view import View
from operations.place import Place
from operations.verify.buckets import Side
from operations.verify.holding import holding


def write_held(place: Place, view: View, folder: Path, buckets: int) -> None:
    """Digests of everything that is held, into bucket files; meant for a process of its own.

    Args:
        place: the generation.
        view: the view.
        folder: of the ``Side``.
        buckets: how many.
    """
    side = Side(folder, buckets)
    with holding(place, view) as opened:
        for key, holds in opened.scan():
            side.add(key, holds.digest)
    side.flush()


Job = tuple[Place, View, Path, int]


@contextmanager
def _beside(jobs: Sequence[Job], *, beside: bool) -> Iterator[Callable[[], None]]:
    """Digests of what sinks hold, written by a process beside this one; few rows are read here, by ``finish``.

    Gives:
        ``finish``: waits until all is written, and raises what went wrong there.
    """
    if not beside:

        def here() -> None:
            for job in jobs:
                write_held(*job)

        yield here
        return
    # Not fork: this process has threads, and perhaps a JVM.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_write_all, args=(sender, jobs), daemon=True)
    process.start()
    sender.close()

    def finish() -> None:
        try:
            error = receiver.recv()
        except EOFError:
            error = HeadwaterError("the process that reads the sinks ended without a word", fix="run it again")
        process.join()
        if error is not None:
            raise error

    try:
        yield finish
    finally:
        process.terminate()
        process.join()


def _write_all(sender: Any, jobs: Sequence[Job]) -> None:
    """The other process's work: what the sinks hold, one after the other."""
    try:
        for job in jobs:
            write_held(*job)
    except HeadwaterError as error:
        sender.send(error)
    except BaseException as error:
        sender.send(HeadwaterError(f"reading the sinks: {type(error).__name__}: {error}"))
        raise
    else:
        sender.send(None)
