"""The next generation of a sink whose view was changed: what `run` has done in a process of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cdc.pipeline import loads
from operations.accepted import Text

Say = Callable[[str], None]


def build(say: Say, taken: Text, sink: str, master: str | None) -> bool:
    """Fill it, compare it with Postgres, and show it to readers if it is equal: as ``rebuild --auto``.

    Asked to end, it stops where the next attempt goes on.

    Args:
        say: told what happens, a line each.
        taken: the file that was applied; what was saved since does not count.
        sink: the sink's name.
        master: where Spark runs, if not where the file says.

    Returns:
        whether it equals Postgres, and readers see it.
    """
    from operations.generations.promote import promote
    from operations.rebuild import Rebuild, compare
    from operations.run.flow_lines import lines
    from operations.run.machines import with_master
    from operations.state_folder import register_of
    from spark.register import outdated

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    pipeline = with_master(loads(taken.text, taken.file), master)
    register = register_of(pipeline, sink)
    ready = register.newest("ready")
    if ready is None or outdated(pipeline, register.generation(ready.number)):
        report = Rebuild(pipeline, Path(taken.file), sink, 1.0, stop, say, partial(lines, say)).run(auto=True)
        return bool(report["equal"])
    # Filled by an attempt that was broken off before it was shown.
    equal = bool(compare(say, pipeline, sink, ready.number)["equal"])
    if equal:
        promote(pipeline, sink, ready.number, say)
    return equal
