"""What a changed table makes necessary, done by processes of their own: `run` must not wait for it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cdc.pipeline import Pipeline

Say = Callable[[str], None]
# How often it is told how far reading again is.
TELL_SECONDS = 2.0


def read_again(say: Say, pipeline: Pipeline, wanted: Mapping[str, str | None]) -> None:
    """Bring the capture to the tables as they are, and read rows again; one that was cut goes on.

    Args:
        say: told how far it is.
        pipeline: the loaded file.
        wanted: table -> a condition on its rows; empty for all, None for none.

    Raises:
        HeadwaterError: a server refused, or a right is missing.
    """
    from connectors.apply import apply
    from connectors.resnapshot import read_anew
    from connectors.snapshot import Progress, wait_snapshot

    for action in apply(pipeline).actions:
        say(f"{action.kind} {action.name}: {action.detail}")
    rows = {table: condition for table, condition in wanted.items() if condition is not None}
    if not rows:
        return
    read_anew(pipeline, rows)
    told = 0.0

    def tell(now: Progress) -> None:
        nonlocal told
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            say(", ".join(f"{one.table}: {one.rows:,} rows read again" for one in now.tables if one.table in wanted))

    wait_snapshot(pipeline, tell)


def build(say: Say, pipeline: Pipeline, file: Path, sink: str) -> bool:
    """A new generation from offset 0, promoted if it equals Postgres; one that was cut goes on.

    Returns:
        whether it is equal, and readers see it.
    """
    from operations.generations.promote import promote
    from operations.rebuild import Rebuild, compare
    from operations.run.flow_lines import lines
    from operations.state_folder import register_of

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    ready = register_of(pipeline, sink).newest("ready")
    if ready is None:
        report = Rebuild(pipeline, file, sink, 1.0, stop, say, partial(lines, say)).run(auto=True)
        return bool(report["equal"])
    if not compare(say, pipeline, sink, ready.number)["equal"]:
        return False
    promote(pipeline, sink, ready.number, say)
    return True
