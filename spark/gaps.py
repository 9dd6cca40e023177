"""Does the log still have what comes next? Looked at before a flow starts, because nobody says so later.

A compacted topic forgets a deleted key's tombstone some time after it was written (``delete.retention.ms``). A reader
that was away for longer may never hear of the delete, and there is no gap in the offsets to see it by.
"""

from __future__ import annotations

import time

from cdc.errors import LogTruncated, TooLate
from spark.flow import Flow
from spark.lag import LogEnds
from spark.state import committed_offsets, rebuild_command
from spark.status import FlowStatus

DAY = 86400.0


def check_log(flow: Flow) -> None:
    """Compare a flow's place with the log.

    Raises:
        LogTruncated: the log begins after it (terminal).
        TooLate: it was away for longer than tombstones are kept, and there is something to read (terminal).
        KafkaUnavailable: no answer (transient).
    """
    _, committed = committed_offsets(flow.checkpoint)
    if not committed:
        return
    log = LogEnds(flow.reading.bootstrap, flow.reading.client)
    try:
        first, ends = log.bounds(committed)
    finally:
        log.close()
    fix = rebuild_command(flow.spec.sink)
    for topic, parts in committed.items():
        for part, at in parts.items():
            if at < first.get(topic, {}).get(part, 0):
                raise LogTruncated(
                    f"sink {flow.spec.sink}: {topic}/{part} begins at {first[topic][part]}, {flow.title} is at {at}",
                    means="records that it has not read were removed from the log; nothing was written past them",
                    fix=f"`headwater resnapshot FILE --all --wait` reads the rows into the log again, then {fix}",
                )
    status = FlowStatus.read(flow.folder)
    away = time.time() - status.current_at if status is not None and status.current_at else 0.0
    behind = any(
        at < ends.get(topic, {}).get(part, 0) for topic, parts in committed.items() for part, at in parts.items()
    )
    if behind and away > flow.reading.tombstone_seconds:
        raise TooLate(
            f"sink {flow.spec.sink}: {flow.title} was away for {away / DAY:.1f} days; the log remembers deletes for "
            f"{flow.reading.tombstone_seconds / DAY:.1f}",
            means="rows deleted meanwhile might stay in the target for ever; nothing was written",
            fix=fix,
        )
