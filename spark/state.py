"""What a sink's generation keeps on disk: its identity, one checkpoint a flow, a status file, a lock.

    <state_dir>/<pipeline>/<sink>/g<generation>/identity.json
                                                /lock
                                                /<flow>/checkpoint/   (Spark's)
                                                /<flow>/status.json

Spark trusts its checkpoint folder blindly: a lost ``metadata`` file silently makes a new query (SPARK-55058), an empty
or missing offset file fails in ways that do not name the cause. So we look before Spark does.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from cdc.errors import StateError


@dataclass(frozen=True)
class Identity:
    """What a generation is bound to: if any of it changes, its offsets and versions mean nothing any more.

    Attributes:
        system_identifier: Postgres' own, from ``pg_control_system()``.
        timeline: the WAL timeline; grows at a failover or restore.
        database: the source database.
        slot: the replication slot.
        topic_ids: topic -> Kafka's id of it; a re-created topic has another.
        spec_hash: hash of the sink's view and target definition.
    """

    system_identifier: str
    timeline: int
    database: str
    slot: str
    topic_ids: Mapping[str, str]
    spec_hash: str


_CHANGED = {
    "system_identifier": "the address now leads to another Postgres cluster",
    "timeline": "the database failed over or was restored to an earlier point",
    "database": "the pipeline names another database",
    "slot": "the pipeline names another replication slot",
    "spec_hash": "the sink's views, mapping or target were changed in the pipeline file",
}


class Generation:
    """One generation's folder.

    Args:
        state_dir: the pipeline's ``engine.state_dir``.
        pipeline: its name.
        sink: the sink's name.
        number: the generation, from 1.
    """

    def __init__(self, state_dir: Path, pipeline: str, sink: str, number: int = 1) -> None:
        self.pipeline, self.sink, self.number = pipeline, sink, number
        self.folder = state_dir / pipeline / sink / f"g{number}"
        self._lock: TextIO | None = None

    def flow_folder(self, flow: str) -> Path:
        """Where a flow keeps its checkpoint and status."""
        return self.folder / flow

    def checkpoint(self, flow: str) -> Path:
        """A flow's Spark checkpoint."""
        return self.flow_folder(flow) / "checkpoint"

    def flows(self) -> list[str]:
        """Names of the flows that have left anything on disk."""
        return sorted(path.name for path in self.folder.glob("*/") if path.is_dir())

    def note_views(self, views: Sequence[str]) -> None:
        """Remember which views the generation has written, so that they can be removed when the file says otherwise."""
        write_atomic(self.folder / "views.json", json.dumps(sorted({*views, *self.views()})))

    def views(self) -> list[str]:
        """The views this generation has ever written."""
        path = self.folder / "views.json"
        return list(json.loads(path.read_text())) if path.exists() else []

    def bind(self, identity: Identity) -> None:
        """Remember the identity at the first start; refuse a different one later.

        Raises:
            StateError: something that the generation is bound to has changed; nothing was written.
        """
        path = self.folder / "identity.json"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, json.dumps(asdict(identity), indent=1, sort_keys=True))
            return
        try:
            known = Identity(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise StateError(f"{path} can't be read: {error}", fix=self._restart()) from error
        for name, why in _CHANGED.items():
            before, now = getattr(known, name), getattr(identity, name)
            if before != now:
                raise StateError(
                    f"sink {self.sink}: {name.replace('_', ' ')} was {before}, is {now}: {why}",
                    means="going on would mix two histories in one target; nothing was written",
                    fix=self._restart(),
                )
        for topic, before in known.topic_ids.items():
            if identity.topic_ids.get(topic, before) != before:
                raise StateError(
                    f"sink {self.sink}: topic {topic} was deleted and created again",
                    means="the offsets this sink has read through belong to the old topic; nothing was written",
                    fix=self._restart(),
                )

    def _restart(self) -> str:
        return f"fill the sink anew from offset 0: `headwater drop FILE --sink {self.sink}`, then `headwater run FILE`"

    def lock(self) -> None:
        """Hold the generation for this process; released when the process ends, however it ends.

        Raises:
            StateError: another process runs it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = (self.folder / "lock").open("a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            handle.close()
            raise StateError(
                f"sink {self.sink} is already run by process {holder}",
                fix="stop that process, or leave this sink to it and run the others with --sink",
            ) from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        self._lock = handle

    def unlock(self) -> None:
        """Give the generation back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def write_atomic(path: Path, text: str) -> None:
    """Replace ``path`` in one step: a reader or a crash sees the old text or the new, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def check_checkpoint(checkpoint: Path, fix: str) -> None:
    """Look a checkpoint over before Spark does.

    Raises:
        StateError: it has lost a part without which Spark would begin anew or fail without a reason (terminal).
    """
    offsets = _numbers(checkpoint / "offsets")
    if not offsets:
        return
    if not (checkpoint / "metadata").is_file():
        raise StateError(
            f"{checkpoint}/metadata is missing",
            means="Spark would take the folder for a new query and lose its place (SPARK-55058)",
            fix=fix,
        )
    for number in offsets:
        if (checkpoint / "offsets" / str(number)).stat().st_size == 0:
            raise StateError(f"{checkpoint}/offsets/{number} is empty", means="the place in the log is lost", fix=fix)
    if offsets != list(range(offsets[0], offsets[-1] + 1)):
        raise StateError(
            f"{checkpoint}/offsets has a gap: {offsets[-5:]}", means="batches can't be told apart", fix=fix
        )
    commits = _numbers(checkpoint / "commits")
    if commits and commits[-1] > offsets[-1]:
        raise StateError(
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
    source: Mapping[str, Any] = json.loads(text.split("\n")[2])
    return {topic: {int(part): int(at) for part, at in parts.items()} for topic, parts in source.items()}


def rewind(checkpoint: Path, batch: int) -> bool:
    """Make a checkpoint forget the batches after ``batch``, so that the query replays them.

    Returns:
        whether it could: False, and nothing was changed, when it no longer holds that batch. -1 is before the first.
    """
    offsets, commits = _numbers(checkpoint / "offsets"), _numbers(checkpoint / "commits")
    first = batch == -1 and offsets[:1] == [0]
    if not first and (batch not in commits or batch not in offsets):
        return False
    for number in reversed(commits):  # commits first: a batch with offsets and no commit is one to be replayed
        if number > batch:
            (checkpoint / "commits" / str(number)).unlink()
    for number in reversed(offsets):
        if number > batch + 1:
            (checkpoint / "offsets" / str(number)).unlink()
    return True


def committed_offsets(checkpoint: Path) -> tuple[int, dict[str, dict[int, int]]]:
    """The newest committed batch and its end offsets; ``(-1, {})`` before the first commit."""
    commits = _numbers(checkpoint / "commits")
    if not commits:
        return -1, {}
    return commits[-1], batch_offsets(checkpoint, commits[-1])
