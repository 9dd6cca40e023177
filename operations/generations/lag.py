"""How far a generation is behind the log, for whoever sends readers to it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cdc.errors import StateError
from cdc.log.ends import LogEnds, Offsets, lacking, reached
from cdc.pipeline import Pipeline
from operations.state.folder import register_of
from spark.disk.checkpoint import committed_offsets
from spark.disk.state import rebuild_command
from spark.disk.status import FlowStatus
from spark.shorter import SHORTER_FIX, Bounds, whole_bounds

# Records a generation may be behind the log when readers are sent to it: a few batches of a busy table.
MOST_BEHIND = 10_000


def behind(pipeline: Pipeline, sink: str, number: int) -> int:
    """Records that a generation has still to read, over all its flows.

    Raises:
        LogTruncated: the log ends before what it has read (terminal).
        KafkaUnavailable: no answer (transient).
    """
    generation = register_of(pipeline, sink).generation(number)
    folders = [generation.flow_folder(flow) for flow in generation.flows()]
    places = [committed_offsets(folder / "checkpoint")[1] for folder in folders]
    log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
    left = 0
    try:
        log.keep(topic for offsets in places for topic in offsets)
        for folder, offsets in zip(folders, places, strict=True):
            ends: Offsets = log.ends(offsets)
            written = _written(folder, offsets)
            if lacking(ends, written):  # who has read what the log has lost is not level with it
                who, fix = f"sink {sink}: generation {number}", SHORTER_FIX + rebuild_command(sink)
                _, ends = whole_bounds(partial(_asked_anew, log, offsets), written, who, fix)
            if not reached(offsets, ends):
                left += sum(
                    max(0, end - offsets[topic].get(part, 0)) for topic, of in ends.items() for part, end in of.items()
                )
    finally:
        log.close()
    return left


def _written(folder: Path, offsets: Offsets) -> Offsets:
    """Of the topics that a flow writes: one of a table that was let go may have been made anew."""
    status = FlowStatus.read(folder)
    topics = () if status is None or status.state == "finished" else status.topics
    return {topic: parts for topic, parts in offsets.items() if topic in topics}


def _asked_anew(log: LogEnds, offsets: Offsets) -> Bounds:
    log.keep(offsets)
    return log.bounds(offsets)


def refuse_far_behind(pipeline: Pipeline, sink: str, number: int) -> None:
    """Refuse to send readers to a generation that is far behind the log.

    Raises:
        StateError: it is, or has read what the log has lost. KafkaUnavailable: no answer (transient).
    """
    left = behind(pipeline, sink, number)
    if left > MOST_BEHIND:
        raise StateError(
            f"sink {sink}: generation {number} is {left:,} records behind the log",
            means="readers would see old documents; nothing was changed",
            fix=f"`headwater run {pipeline.file or 'FILE'}` brings it up to date; --force promotes it as it is",
        )
