"""Spark's checkpoint of a flow on disk: which batches were planned and committed, and at which offsets."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cdc.errors import CheckpointLost, StateError
from spark.disk import filling
from spark.disk.files import write_atomic
from spark.disk.notes import offsets_of_json


def check_checkpoint(checkpoint: Path, fix: str) -> None:
    """Look a checkpoint over before Spark does.

    Raises:
        CheckpointLost: it has lost a part without which Spark would begin anew or fail without a reason (terminal).
    """
    offsets = _numbers(checkpoint / "offsets")
    if not offsets:
        return
    if not (checkpoint / "metadata").is_file():
        raise CheckpointLost(
            f"{checkpoint}/metadata is missing",
            means="Spark would take the folder for a new query and lose its place (SPARK-55058)",
            fix=fix,
        )
    for number in offsets:
        if (checkpoint / "offsets" / str(number)).stat().st_size == 0:
            raise CheckpointLost(
                f"{checkpoint}/offsets/{number} is empty", means="the place in the log is lost", fix=fix
            )
    if offsets != list(range(offsets[0], offsets[-1] + 1)):
        raise CheckpointLost(
            f"{checkpoint}/offsets has a gap: {offsets[-5:]}", means="batches can't be told apart", fix=fix
        )
    commits = _numbers(checkpoint / "commits")
    if commits and commits[-1] > offsets[-1]:
        raise CheckpointLost(
            f"{checkpoint}: batch {commits[-1]} is committed but its offsets are gone",
            means="the place in the log is lost",
            fix=fix,
        )


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()) if folder.is_dir() else []


def batch_offsets(checkpoint: Path, batch_id: int) -> dict[str, dict[int, int]]:
    """Offsets through which a batch reads, exclusive: topic -> partition -> next offset.

    The file has a version line, a metadata line, then one JSON line a source; we have one source.
    """
    text = (checkpoint / "offsets" / str(batch_id)).read_text()
    return offsets_of_json(json.loads(text.split("\n")[2]))


def holds(checkpoint: Path, batch: int) -> bool:
    """Whether a checkpoint can be put back to a batch; -1 is before the first."""
    offsets, commits = _numbers(checkpoint / "offsets"), _numbers(checkpoint / "commits")
    return offsets[:1] == [0] if batch == -1 else batch in commits and batch in offsets


def rewind(checkpoint: Path, batch: int) -> bool:
    """Make a checkpoint forget the batches after ``batch``, so that the query replays them.

    Returns:
        whether it could: False, and nothing was changed, when it no longer holds that batch. -1 is before the first.
    """
    if not holds(checkpoint, batch):
        return False
    commits = _numbers(checkpoint / "commits")
    for number in reversed(commits):  # commits first: a batch with offsets and no commit is one to be replayed
        if number > batch:
            (checkpoint / "commits" / str(number)).unlink()
    trim(checkpoint)  # which the next start does again, should this be cut here
    return True


def forget_topics(checkpoint: Path, topics: Collection[str]) -> None:
    """Make a checkpoint forget its place in topics that were made anew: Spark takes them up at their beginning, as it
    does one that it has not seen before. What was planned and not committed goes with it.

    For a flow whose batches may be of other records when they are run again. Cut, the same again ends it.
    """
    commits = _numbers(checkpoint / "commits")
    last = commits[-1] if commits else -1
    for number in reversed(_numbers(checkpoint / "offsets")):
        if number > last:
            (checkpoint / "offsets" / str(number)).unlink()
    if last >= 0:
        path = checkpoint / "offsets" / str(last)
        version, metadata, source = path.read_text().split("\n")[:3]
        kept = {topic: parts for topic, parts in json.loads(source).items() if topic not in topics}
        write_atomic(path, "\n".join((version, metadata, json.dumps(kept, separators=(",", ":")))))


def trim(checkpoint: Path, fix: str = "") -> None:
    """Forget all planned batches but the first that is not committed.

    Spark replays only the newest of several (it warns of a batch "not trailing" the committed one, and goes on): those
    before it would be skipped without a word. There are several when commits were removed: by ``rewind``, or by hand.

    Raises:
        CheckpointLost: the first that is not committed has no offsets any more (terminal).
    """
    offsets, commits = _numbers(checkpoint / "offsets"), _numbers(checkpoint / "commits")
    if not offsets:
        return
    wanted = commits[-1] + 1 if commits else 0
    if offsets[0] > wanted:
        raise CheckpointLost(
            f"{checkpoint}: batches before {offsets[0]} are not committed, and their offsets are gone",
            means="what they read would be skipped",
            fix=fix,
        )
    for number in reversed(offsets):
        if number > wanted:
            (checkpoint / "offsets" / str(number)).unlink()


def planned(checkpoint: Path) -> int:
    """The newest batch that was begun, committed or not; -1 for none."""
    return max(_numbers(checkpoint / "offsets"), default=-1)


def planned_at(checkpoint: Path, batch: int) -> float | None:
    """When a batch was planned (epoch seconds), as it says itself: the time of its file is another one in a copy.

    None of one that the checkpoint does not hold, or whose file is damaged.
    """
    try:
        return float(_metadata(checkpoint, batch)["batchTimestampMs"]) / 1000
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return None


def _metadata(checkpoint: Path, batch: int) -> Any:
    return json.loads((checkpoint / "offsets" / str(batch)).read_text().split("\n")[1])


def committed_offsets(checkpoint: Path) -> tuple[int, dict[str, dict[int, int]]]:
    """The newest committed batch and its end offsets; ``(-1, {})`` before the first commit.

    No offsets if their file, or a fill's note, is damaged: whoever only shows how far a flow is must not fall over what
    ``check_checkpoint``, and a flow's start, refuse by name. A joined view's flow begins where its fill ended
    (spark/join/fill.py), and may wait there for its first batch.
    """
    commits = _numbers(checkpoint / "commits")
    if not commits:
        try:
            filled = filling.load(checkpoint.parent) if filling.is_live(checkpoint.parent) else None
        except StateError:
            filled = None
        return -1, {topic: dict(parts) for topic, parts in filled.ends.items()} if filled is not None else {}
    try:
        return commits[-1], batch_offsets(checkpoint, commits[-1])
    except (OSError, ValueError, IndexError):
        return commits[-1], {}


def committed_watermark(checkpoint: Path) -> int:
    """Spark's watermark (ms since 1970) in the newest committed batch; 0 before there is one, or if its file is
    damaged."""
    commits = _numbers(checkpoint / "commits")
    try:
        return int(_metadata(checkpoint, commits[-1])["batchWatermarkMs"])
    except (OSError, ValueError, IndexError, KeyError):
        return 0
