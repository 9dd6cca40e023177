"""The steps by which a cache that has forgotten is made again: what `run` has done for it in processes of their own.

Named as the verbs that do the same: the names stand in ``status`` and in the log. As those do, they read the pipeline
file: `run` may have been up for long, and readers may see by now what was edited since. What they need is imported by
the process that does it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cdc.errors import HeadwaterError
from cdc.pipeline import load

Say = Callable[[str], None]


def rebuild(say: Say, file: Path, sink: str, master: str | None) -> None:
    """A generation from offset 0; asked to end, it stops where the next attempt goes on."""
    from operations.rebuild import Rebuild
    from operations.run.flow_lines import lines
    from operations.run.machines import with_master

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    pipeline = with_master(load(file), master)
    Rebuild(pipeline, file, sink, 1.0, stop, say, partial(lines, say)).run(auto=False)


def promote(say: Say, file: Path, sink: str, number: int) -> None:
    """However far it is behind: readers have nothing meanwhile."""
    from operations.generations import promote as generations

    pipeline = load(file)
    entry = generations.candidate(pipeline, sink, number, "ready", "previous", "living")
    generations.promote(pipeline, sink, entry.number, say, behind_too=True)


def retire(say: Say, file: Path, sink: str, number: int) -> None:
    """What was lost, with what is left of it."""
    from operations.generations.retire import retire as retired

    retired(load(file), sink, number, say)


def verify(say: Say, file: Path, sink: str, number: int) -> bool:
    """Whether it equals Postgres.

    Raises:
        HeadwaterError: that could not be seen.
    """
    from operations.rebuild import compare

    report = compare(say, load(file), sink, number)
    if error := report["sinks"][0]["error"]:
        raise HeadwaterError(error)
    return bool(report["equal"])
