"""What a changed table makes necessary, done by processes of their own: `run` must not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from cdc.pipeline import Pipeline

Say = Callable[[str], None]
# How often it is told how far reading again is.
TELL_SECONDS = 2.0


def read_again(say: Say, pipeline: Pipeline, wanted: Mapping[str, str | None], sweep: Collection[str] = ()) -> None:
    """Bring the capture to the tables as they are, and read rows again; one that was cut goes on.

    Args:
        say: told how far it is.
        pipeline: the loaded file.
        wanted: table -> a condition on its rows; empty for all, None for none.
        sweep: tables in which rows are looked for afterwards that are gone without a delete.

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
    read_anew(pipeline, rows, sweep)
    told = 0.0

    def tell(now: Progress) -> None:
        nonlocal told
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            say(", ".join(f"{one.table}: {one.rows:,} rows read again" for one in now.tables if one.table in wanted))

    wait_snapshot(pipeline, tell)
