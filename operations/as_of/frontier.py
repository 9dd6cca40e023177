"""Up to which commit a sink's history is complete: the frontier, beyond which no cut is made.

The heartbeat's row is captured like any other, so its record says after which commit it was made. One task writes all
records, in the order of commits: whatever was committed at or before that commit lies below the log's ends that are
read afterwards. History that has read up to those ends holds all of it, and nothing that comes can change that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cdc.errors import BeyondFrontier
from cdc.log.client import Kafka
from cdc.log.ends import Offsets, lacking, reached
from cdc.log.records import records
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.records.encoding import Encoding
from cdc.records.history import after_of
from cdc.records.position import format_lsn, unpack
from cdc.saying import Say
from connectors.database.write_tokens import beat
from connectors.debezium import beat_topic
from connectors.names import Names
from connectors.postgres import Connection
from operations.as_of.seen import Frontier, Seen
from spark.disk.applied import applied_offsets

# Between two touches of the heartbeat row, each a commit; and between two looks.
BEAT_SECONDS, LOOK_SECONDS = 0.5, 0.1
# How many of its records are looked at: the newest counts.
NEWEST = 50


def newest_beat(values: Iterable[bytes | None], encoding: Encoding, snapshot_lsn: int) -> Frontier | None:
    """The newest of the heartbeat's records that was streamed; None if there is none. Pure."""
    newest: Frontier | None = None
    for value in values:
        event = None if value is None else encoding.loads(value)
        if event is not None and event["op"] == "u":
            source = event["source"]
            newest = Frontier(after_of(source, 0, snapshot_lsn), int(source["ts_ms"] or 0) * 1000)
    return newest


class FrontierWatch:
    """Asks for the frontier.

    Args:
        pipeline: the loaded file.
        connection: Postgres as the replication role.
        topics: that history reads.
        folder: of its flow.
        snapshot_lsn: of the initial snapshot.
        whole: no table's rows are still on their way into the log (operations/as_of/begun.py). Where a table's history
            begins is known of those that have come: what is seen meanwhile is good for this look alone.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        connection: Connection,
        topics: Iterable[str],
        folder: Path,
        snapshot_lsn: int,
        *,
        whole: bool,
    ) -> None:
        self._pipeline, self._connection, self._folder = pipeline, connection, folder
        self._topics, self._snapshot_lsn = sorted(topics), snapshot_lsn
        self._kafka, self._encoding = Kafka(pipeline), encoding_of(pipeline.source.reader())
        self._seen, self._whole = Seen(folder, self._topics, snapshot_lsn), whole

    def wait(self, enough: Callable[[Frontier], bool], wanted: str, seconds: float, say: Say) -> Frontier:
        """Wait until the frontier is far enough.

        Args:
            enough: whether it is.
            wanted: what is waited for, in words.
            seconds: how long; one look is made in any case.
            say: told a line when it takes a while.

        Raises:
            BeyondFrontier: it is not, by then (transient).
            KafkaUnavailable, SourceUnavailable: no answer (transient).
        """
        known = self._seen.find(enough, applied_offsets(self._folder)) if self._whole else None
        if known is not None:
            return known
        until, told = time.monotonic() + seconds, False
        beaten = float("-inf")
        found: Frontier | None = None
        while True:
            if time.monotonic() - beaten > BEAT_SECONDS and (found is None or not enough(found)):
                beat(self._connection, Names.of(self._pipeline))
                beaten = time.monotonic()
            if found is None or not enough(found):
                found = self._newest()
            if found is not None and enough(found):
                break
            if time.monotonic() > until:
                raise self._beyond(found, wanted)
            if not told:
                say(f"waiting for {wanted} to reach the log")
                told = True
            time.sleep(LOOK_SECONDS)
        return self._applied(found, wanted, until, say)

    def _applied(self, found: Frontier, wanted: str, until: float, say: Say) -> Frontier:
        described = self._kafka.describe(self._topics)
        before = {t: parts for t, parts in applied_offsets(self._folder).items() if t in self._topics}
        # Only now, after the heartbeat's record was seen: the other way round they would promise too much.
        # And of all that is written: another partition of the same transaction may still wait for its marker.
        ends = self._kafka.ends({topic.name: topic.partitions for topic in described.values()}, written=True)
        if lacking(ends, before):
            raise BeyondFrontier(
                f"history has not come to {wanted}: the log ends before what history has read",
                means="the log has become shorter, and what comes to stand there is not in history; nothing was made",
                fix="`headwater run FILE` says what to do; right after a broker has come back, the same again",
            )
        if self._whole:
            self._seen.note(found, ends)
        told = time.monotonic() + 2
        while not reached(offsets := applied_offsets(self._folder), ends):
            if time.monotonic() > until:
                behind = _behind(offsets, ends)
                known = self._seen.newest(offsets) if self._whole else None
                there = f", or ask for what it has: `--lsn {format_lsn(unpack(known.after)[1])}`" if known else ""
                raise BeyondFrontier(
                    f"history has not come to {wanted}: it is {behind:,} records behind the log",
                    means="a cut there could lack rows of a transaction; nothing was made",
                    fix=f"let `headwater run` run, or wait longer (--wait){there}",
                )
            if time.monotonic() > told:
                left = max(until - time.monotonic(), 0.0)
                say(f"history is {_behind(offsets, ends):,} records behind; {left:,.0f} s are left to wait")
                told += 5
            time.sleep(LOOK_SECONDS)
        return found

    def _newest(self) -> Frontier | None:
        topic = beat_topic(self._pipeline)
        end = self._kafka.ends({topic: 1})[topic][0]
        values = (message.value() for message in records(self._kafka, topic, 0, max(end - NEWEST, 0)))
        return newest_beat(values, self._encoding, self._snapshot_lsn)

    @staticmethod
    def _beyond(found: Frontier | None, wanted: str) -> BeyondFrontier:
        now = "not known" if found is None else format_lsn(unpack(found.after)[1])
        return BeyondFrontier(
            f"{wanted} has not reached the log; it is at {now}",
            means="a cut there could lack rows of a transaction; nothing was made",
            fix="wait longer (--wait); `headwater status FILE` says how the connector is",
        )


def _behind(offsets: Offsets, ends: Offsets) -> int:
    return sum(max(end - offsets.get(t, {}).get(p, 0), 0) for t, parts in ends.items() for p, end in parts.items())
