"""What views of matches must hold: all events of the log by key, and what followed each of them within the time.

Events wait in a file, sorted by key and time. In memory is one page of them, and of one key the events within the time
of a match.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from time import time as now
from typing import TYPE_CHECKING, Any

import orjson

from cdc.scratch import scratch_folder
from cdc.timed import Kind, MatchView
from cdc.types import canonical_result
from truth.events.happened import TABLE, TOGETHER_MS, Happened, Waiting, happened, take
from truth.events.logged import PREFIX, Events, scratch
from truth.events.windowed import Told, moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A document lists so many that followed; all are counted.
LISTED = 100
# More events of one key at once are dead letters: how many there were at once, the log does not say.
CROWD = 10_000
FIRST, THEN = 0, 1

PLACED = "placed (about TEXT, at INT, kind INT, id TEXT, late INT, unsure INT, said BLOB)"
_SORTED = "SELECT about, at, kind, id, late, unsure, said FROM placed ORDER BY about, at, kind, id"
_CROWDED = "SELECT about FROM placed GROUP BY about HAVING count(*) > ?"


@dataclass
class _First:
    """A first event, and what has followed it so far."""

    id: str
    at: int
    said: dict[str, Any]
    late: int
    unsure: bool
    count: int = 0
    followers: list[dict[str, Any]] = field(default_factory=list)
    # Something followed it that can't have been given up.
    sure: bool = False


def matches(view: MatchView, events: Events, spark: SparkSession, folder: Path | None = None) -> Iterator[Told]:
    """The document of each first event that has one, by the log as it is now.

    Args:
        view: the view.
        events: reads the log from its beginning; what it raises is raised here.
        spark: a session.
        folder: where events wait; None for where temporary files lie.
    """
    with (
        scratch_folder(PREFIX, folder) as own,
        scratch(own / "events", TABLE) as log,
        scratch(own / "placed", PLACED) as placed,
    ):
        complete, before = take(log, view, events), view.within if view.count else 0
        waiting = Waiting(log, by_time=view.keep == "alone")
        asked = [*_asked(view.first), *(_asked(view.then) if view.then else [])]
        for event in happened(log, waiting, view, spark, asked):
            placed.executemany("INSERT INTO placed VALUES (?, ?, ?, ?, ?, ?, ?)", _placed(view, event))
        crowded = {about for (about,) in placed.execute(_CROWDED, (CROWD,))}
        for about, rows in groupby(placed.execute(_SORTED), lambda row: str(row[0])):
            crowd = about in crowded
            found = _thresholds(view, about, rows, crowd) if view.count else None
            for told in found or _pairs(view, about, rows, waiting, crowd):
                # An event that was lost may belong to it.
                lost = complete is not None and told.start - before < complete
                yield told._replace(unsure=True) if lost else told


def _asked(kind: Kind) -> list[str]:
    """What it is, its key, and its fields: of an event that is none of these nothing is computed."""
    there = f"coalesce(({kind.where}), false)"
    said = [f"CAST(({kind.key}) AS string)", *(f"({one})" for one in kind.fields.values())]
    return [there, *(f"CASE WHEN {there} THEN {one} END" for one in said)]


def _placed(view: MatchView, event: Happened) -> Iterator[tuple[Any, ...]]:
    before = None if event.clock is None else event.clock - view.delay
    late = before is not None and event.at < before
    if before is not None and event.at < before - view.correct:
        return
    unsure = event.unsure is not None and event.at < event.unsure - view.delay - view.correct
    begin = 0
    for number, kind in enumerate((view.first, view.then)):
        if kind is not None:
            there, key, *said = event.said[begin : begin + 2 + len(kind.fields)]
            begin += 2 + len(kind.fields)
            if there is True and key is not None:
                values = {name: canonical_result(value) for name, value in zip(kind.fields, said, strict=True)}
                yield key, event.at, number, event.id, late, unsure, orjson.dumps(values)


def _pairs(view: MatchView, about: str, rows: Iterator[tuple[Any, ...]], time: Waiting, crowd: bool) -> Iterator[Told]:
    """First events with what followed them, both ends of the time included."""
    waiting: deque[_First] = deque()
    for _, at, kind, identity, late, unsure, said in rows:
        while waiting and waiting[0].at + view.within < at:
            yield from _pair(view, about, waiting.popleft(), time)
        if kind == FIRST:
            waiting.append(_First(identity, at, orjson.loads(said), late, bool(unsure) or crowd))
            continue
        for first in waiting:
            if first.id != identity:  # nothing follows itself
                first.count += 1
                first.late += late
                first.unsure |= bool(unsure)
                first.sure |= not unsure and not crowd
                if len(first.followers) < LISTED and view.keep != "alone":
                    first.followers.append({"at": moment(at), **orjson.loads(said)})
    for first in waiting:
        yield from _pair(view, about, first, time)


def _pair(view: MatchView, about: str, first: _First, time: Waiting) -> Iterator[Told]:
    fields = {"key": about, "at": moment(first.at), **first.said}
    if view.keep == "alone":
        end = first.at + view.within + view.delay
        # The clock on the wall may be some seconds off, and the sink is read a little later.
        most = time.until(int(now() * 1000) + TOGETHER_MS)
        if most is None or time.least is None or end > most or first.sure:
            return
        if first.count:  # all of them may have been given up
            yield Told(first.id, None, unsure=True, start=first.at)
        else:
            # A partition that lags behind may be waited for no longer, or heartbeats have told the time. (Spark counts
            # whole milliseconds.)
            unsure = first.unsure or end > time.least // 1000 * 1000
            yield Told(first.id, fields | {"late": first.late}, unsure, first.at)
    elif first.count or view.keep == "all":
        company = {"followed": first.count > 0, "count": first.count, "then": first.followers}
        yield Told(first.id, fields | company | {"late": first.late}, first.unsure, first.at)


def _thresholds(view: MatchView, about: str, rows: Iterator[tuple[Any, ...]], crowd: bool) -> Iterator[Told]:
    """First events that are the so manieth of their key within the time."""
    earlier: deque[tuple[int, int, bool]] = deque()
    for _, at, _, identity, late, unsure, said in rows:
        earlier.append((at, late, bool(unsure) or crowd))
        while earlier[0][0] <= at - view.within:
            earlier.popleft()
        if len(earlier) >= view.count:
            company = {"since": moment(earlier[0][0]), "count": len(earlier)}
            fields = {"key": about, "at": moment(at), **orjson.loads(said), **company}
            doubt = any(one[2] for one in earlier)
            yield Told(identity, fields | {"late": sum(one[1] for one in earlier)}, doubt, at)
