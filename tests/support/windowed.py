"""Windows and matches as loops in plain Python make them, over the whole log at once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from cdc.timed import MatchView, TimedView, WindowView


class Happened(NamedTuple):
    """An event of the log.

    Attributes:
        partition: of its topic.
        event: its row; ``at`` is a datetime, or None.
        again: an incremental snapshot has read it.
        committed: when.
    """

    partition: int
    event: dict[str, Any]
    again: bool
    committed: datetime


def micros(count: int) -> timedelta:
    return timedelta(microseconds=count)


def watched(view: TimedView, log: Sequence[Happened]) -> Iterator[tuple[dict[str, Any], datetime | None]]:
    """(event, the watermark before it) of all that can count."""
    clocks: dict[int, datetime] = {}
    for partition, event, again, committed in log:
        at, clock = event["at"], clocks.get(partition)
        if at is None:
            continue
        clocks[partition] = max(filter(None, (clock, min(at, committed + timedelta(milliseconds=1)))))
        if not again:
            yield event, None if clock is None else clock - micros(view.delay)


def counted(view: WindowView, log: Sequence[Happened]) -> Iterator[tuple[dict[str, Any], datetime, datetime, bool]]:
    """(event, start, end, late) for each window that an event counts in; of sessions its own, not yet joined."""
    for event, before in watched(view, log):
        if event["type"] == "noise" or _amount(event) == "much":
            continue
        for start, end in _windows(view, event["at"]):
            late = before is not None and end <= before
            if not late or (before is not None and end > before - micros(view.correct)):
                yield event, start, end, late


def _windows(view: WindowView, at: datetime) -> Iterator[tuple[datetime, datetime]]:
    if view.gap:
        yield at, at + micros(view.gap)
        return
    epoch = datetime(2026, 1, 1, tzinfo=at.tzinfo)
    start = epoch + (at - epoch) // micros(view.slide) * micros(view.slide)
    while start > at - micros(view.size):
        yield start, start + micros(view.size)
        start -= micros(view.slide)


def _amount(event: dict[str, Any]) -> str | None:
    found = json.loads(event["payload"]).get("amount")
    return None if found is None else str(found)


def plainly(view: WindowView, log: Sequence[Happened]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """(grouping, group's values, start) -> what a document says."""
    found: dict[tuple[Any, ...], list[tuple[dict[str, Any], datetime, datetime, bool]]] = defaultdict(list)
    for event, start, end, late in counted(view, log):
        values = {"about": event["aggregateid"], "kind": event["type"]}
        for grouping in view.groupings:
            group = tuple(values[name] if name in grouping else None for name in view.by)
            found[",".join(grouping), group, None if view.gap else start].append((event, start, end, late))
    told = {}
    for (grouping, group, _), events in found.items():
        for start, end, inside in _sessions(events) if view.gap else [(events[0][1], events[0][2], events)]:
            told[grouping, group, start] = _measured([event for event, *_ in inside]) | {
                "end": end,
                "late": sum(late for *_, late in inside),
            }
    return told


def _sessions(events: list[Any]) -> Iterator[tuple[datetime, datetime, list[Any]]]:
    current: list[Any] = []
    end = None
    for one in sorted(events, key=lambda one: one[1]):
        if end is not None and one[1] >= end:
            yield current[0][1], end, current
            current, end = [], None
        current.append(one)
        end = one[2] if end is None else max(end, one[2])
    if end is not None:
        yield current[0][1], end, current


def _measured(events: list[dict[str, Any]]) -> dict[str, Any]:
    amounts = [Decimal(text) for text in map(_amount, events) if text is not None]
    users = {json.loads(event["payload"]).get("user") for event in events} - {None}
    return {
        "n": len(events),
        "amounts": len(amounts),
        "total": sum(amounts) if amounts else None,
        "mean": (sum(amounts) / len(amounts)).quantize(Decimal("0.000001"), ROUND_HALF_UP) if amounts else None,
        "least": min(amounts, default=None),
        "latest": max(event["at"] for event in events),
        "word": max(event["type"] for event in events),
        "sign": max(json.loads(event["payload"])["sign"] for event in events),
        "users": len(users),
        "values": sorted(map(float, amounts)),
    }


def matched(view: MatchView, log: Sequence[Happened], closed: datetime) -> dict[str, dict[str, Any]]:
    """First event's id -> what its document says, when all partitions have come to a moment."""
    events: list[tuple[dict[str, Any], bool]] = []
    for event, before in watched(view, log):
        late = before is not None and event["at"] < before
        if event["type"] != "noise" and (not late or event["at"] >= before - micros(view.correct)):  # type: ignore[operator]
            events.append((event, late))
    told = {}
    by_key: dict[str, list[tuple[dict[str, Any], bool]]] = defaultdict(list)
    for event, late in sorted(events, key=lambda one: (one[0]["at"], one[0]["id"])):
        by_key[event["aggregateid"]].append((event, late))
    for first, late in events:
        if first["type"] != "viewed":
            continue
        near, at = by_key[first["aggregateid"]], first["at"]
        if view.count:
            order = (at, first["id"])
            since = at - micros(view.within)
            found = [
                one
                for one in near
                if one[0]["type"] == "viewed" and since < one[0]["at"] and (one[0]["at"], one[0]["id"]) <= order
            ]
            if len(found) >= view.count:
                told[first["id"]] = {"n": len(found), "since": found[0][0]["at"], "late": sum(one[1] for one in found)}
            continue
        then = [one for one in near if one[0]["type"] == "größer" and at <= one[0]["at"] <= at + micros(view.within)]
        over = at + micros(view.within) <= closed - micros(view.delay)
        shown = {"all": True, "followed": bool(then), "alone": not then and over}[view.keep]
        if shown:
            told[first["id"]] = {
                "n": len(then),
                "late": late + sum(one[1] for one in then),
                "then": [(one["at"], _amount(one)) for one, _ in then],
            }
    return told
