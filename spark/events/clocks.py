"""The clocks of partitions: the newest event time that each has had before an offset, beside the checkpoint.

A task that reads a slice of a partition needs to know what came before it. Its predecessor leaves that here: after the
record at this offset the clock is that. Such a note is a fact of the log, whoever writes it and however often, so a
batch that is repeated, also with other ends, finds the same (docs/decisions/windows.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from urllib.parse import quote

import orjson

from cdc.errors import CheckpointLost
from spark.disk.files import replaced

# Notes that are kept of a partition: more than batches that Spark may do again after a crash.
NOTES = 64
# A partition that has had no event for so long, while others had, no longer keeps windows from being forgotten.
IDLE_SECONDS = 600.0
# Ends the names of files that say what all partitions had reached, in microseconds.
TOLD = ".told"


@dataclass(slots=True)
class _Clock:
    """A partition's clock: after the record at ``offset`` it is at ``micros`` (None: no event of it had a time).

    ``committed`` is when the newest event was committed, in microseconds too; 0 if that is not known."""

    offset: int
    micros: int | None
    committed: int = 0


class Clocks:
    """The clocks of a flow's partitions.

    Args:
        folder: theirs; the driver's, which a task reaches because it runs on the driver's machine.
        awaited: (topic, partition) that have events: before each of them was read, nobody knows what all have reached.
    """

    def __init__(self, folder: Path, awaited: Sequence[tuple[str, int]] = ()) -> None:
        self._folder, self._awaited = folder, awaited
        self._now: dict[tuple[str, int], _Clock] = {}

    def before(self, topic: str, partition: int, offset: int) -> int | None:
        """What a partition's clock showed before a record; None for nothing yet. Call it for each, in their order.

        Raises:
            CheckpointLost: earlier batches have left no note (terminal).
        """
        known = self._now.get((topic, partition))
        if known is None:
            notes = self._read(topic, partition)
            older = [note for note in notes if note.offset < offset]
            if notes and not older and notes[0].offset >= offset and len(notes) >= NOTES:
                raise CheckpointLost(
                    f"{self._folder}: nothing says what time it was before record {topic}/{partition}/{offset}",
                    means="which events are late could not be told as it was before",
                    fix="fill a generation beside: `headwater rebuild FILE SINK`",
                )
            known = self._now[topic, partition] = older[-1] if older else _Clock(-1, None)
        return known.micros

    def after(self, topic: str, partition: int, offset: int, micros: int | None, committed: int = 0) -> None:
        """A record's event time, which the clock has seen from now on (None if it has none), and its commit's."""
        known = self._now[topic, partition]
        known.offset = offset
        if micros is not None and (known.micros is None or known.micros < micros):
            known.micros = micros
        known.committed = max(known.committed, committed)

    def keep(self) -> None:
        """Leave notes for the next batch: at the end of a slice, before its batch is committed.

        Raises:
            DiskFull: there is no room for them (transient).
        """
        for (topic, partition), clock in self._now.items():
            notes = {note.offset: note for note in self._read(topic, partition)} | {clock.offset: clock}
            kept = [astuple(notes[offset]) for offset in sorted(notes)[-NOTES:]]
            with replaced(self._path(topic, partition)) as out:
                out.write(orjson.dumps(kept))

    def begin(self, left: Iterable[tuple[str, int]]) -> None:
        """Somebody begins to read: the time in which nobody did is not the standstill of a partition that went on.

        Args:
            left: (topic, partition) of which something is still to be read. Nobody waits for the others, which stood
                still.
        """
        for one in left:
            with suppress(FileNotFoundError, PermissionError):  # an executor's own, on a cluster of several users
                os.utime(self._path(*one))

    def safe(self, through: int = 0) -> int | None:
        """The moment (microseconds) which all partitions have reached; None if nobody knows.

        One that stands still while others go on is left out after a while (see ``begin``): it
        may never get an event again. It never goes back, as Spark's watermark does not: a task can rely on it for what
        that is at the most.

        Args:
            through: nothing that was committed before this moment is still to come. Events have times of their own, so
                the clocks go on by what has passed since the last of them was committed.
        """
        if any(not self._path(*one).exists() for one in self._awaited):
            return self._highest(None)  # after a start with a new partition: what was told before still holds
        reached, committed = self.reached()
        if reached is not None and committed:
            reached += max(0, through - committed)
        return self._highest(reached)

    def reached(self) -> tuple[int | None, int]:
        """How far events alone have brought the clocks of all partitions, and when the newest of them was committed;
        both in microseconds. Only looks."""
        found = list(self._all())
        newest = max((written for *_, written in found), default=0.0)
        reached = min((micros for micros, _, written in found if newest - written <= IDLE_SECONDS), default=None)
        return reached, max((committed for _, committed, _ in found), default=0)

    def _highest(self, reached: int | None) -> int | None:
        """The highest moment that anybody has told: files that are named by it, so that tasks need no lock."""
        told = {int(path.stem): path for path in self._folder.glob(f"*{TOLD}")}
        if reached is not None and reached > max(told, default=0):
            (self._folder / f"{reached}{TOLD}").touch()
            for path in told.values():
                path.unlink(missing_ok=True)
            return reached
        return max(told, default=None) if told else reached

    def _all(self) -> Iterator[tuple[int, int, float]]:
        """Of each partition that had an event: its clock, when the newest was committed, and when that was noted."""
        for path in self._folder.glob("*.json"):
            with suppress(FileNotFoundError):
                notes = _parsed(path.read_bytes())
                if notes and notes[-1].micros is not None:
                    yield notes[-1].micros, notes[-1].committed, path.stat().st_mtime

    def _read(self, topic: str, partition: int) -> list[_Clock]:
        try:
            return _parsed(self._path(topic, partition).read_bytes())
        except FileNotFoundError:
            return []

    def _path(self, topic: str, partition: int) -> Path:
        return self._folder / f"{quote(topic, safe='')}.{partition}.json"


def _parsed(raw: bytes) -> list[_Clock]:
    return [_Clock(*note) for note in orjson.loads(raw)]
