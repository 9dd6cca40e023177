"""Frontiers that were seen before, each with the log's ends of then: history that has come there is complete up to it.

Who only asked for the ends of now would refuse every cut, however old, of a history that is always some records behind.
What is written down here is no less true later: records are only added behind it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc.errors import DiskFull
from cdc.log.ends import Offsets, reached
from operations.state.history import FRONTIERS
from spark.disk.files import write_atomic
from spark.disk.notes import offsets_of_json

# How many are kept, and how far apart: half an hour of asking again and again. One that comes sooner is left out, and
# takes no older one's place: a history that is a minute behind would never come to the newest.
KEPT, APART_US = 60, 30_000_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Frontier:
    """Where history is complete.

    Attributes:
        after: packed; of every transaction that was committed at or before it all rows are there.
        at_us: when the heartbeat that says so was committed (µs since 1970 UTC).
    """

    after: int
    at_us: int


class Seen:
    """Frontiers of one sink's history.

    Args:
        folder: of its flow.
        topics: that it reads.
        snapshot_lsn: of the initial snapshot: topics of another one are other topics.
    """

    def __init__(self, folder: Path, topics: Iterable[str], snapshot_lsn: int) -> None:
        self._path, self._topics, self._snapshot_lsn = folder / FRONTIERS, frozenset(topics), snapshot_lsn

    def note(self, found: Frontier, ends: Offsets) -> None:
        """Write down where the log ended after a frontier was seen."""
        known = self._read()
        if known and found.at_us - known[-1][0].at_us < APART_US:
            return
        said = [
            {"after": one.after, "at_us": one.at_us, "ends": where} for one, where in [*known, (found, ends)][-KEPT:]
        ]
        try:
            write_atomic(self._path, json.dumps({"snapshot_lsn": self._snapshot_lsn, "seen": said}))
        except (DiskFull, OSError) as error:  # it only saves waiting
            _log.warning("where the log ends is not written down: %s", error)

    def find(self, enough: Callable[[Frontier], bool], applied: Offsets) -> Frontier | None:
        """The first that is far enough and that history has come to; None if there is none.

        Args:
            enough: whether one is.
            applied: through which offsets history has read its topics.
        """
        for one, ends in self._read():
            if enough(one) and self._topics <= ends.keys() and reached(applied, ends):
                return one
        return None

    def newest(self, applied: Offsets) -> Frontier | None:
        """The newest that history has come to; None if there is none. Arguments as ``find``."""
        come = [one for one, ends in self._read() if self._topics <= ends.keys() and reached(applied, ends)]
        return come[-1] if come else None

    def _read(self) -> list[tuple[Frontier, dict[str, dict[int, int]]]]:
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            said = json.loads(self._path.read_text())
            if said["snapshot_lsn"] == self._snapshot_lsn:
                return [_of(one) for one in said["seen"]]
        return []


def _of(said: Mapping[str, Any]) -> tuple[Frontier, dict[str, dict[int, int]]]:
    return Frontier(int(said["after"]), int(said["at_us"])), offsets_of_json(said["ends"])
