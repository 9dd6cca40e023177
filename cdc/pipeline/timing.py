"""``window`` and ``match`` of a view: events in the time in which they happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from cdc.pipeline.fields import DURATION, Part, Text, Whole, entry
from cdc.pipeline.joins import FieldName

Duration = Annotated[str, Field(pattern=DURATION)]
Names = Annotated[tuple[FieldName, ...], Field(strict=False, max_length=16)]


class Timing(Part):
    """When events happened, and which are late."""

    time: Text = entry(
        description="Column with the moment at which an event happened: timestamptz, or timestamp in UTC.",
        example="at",
        content=True,
    )
    sent: Text | None = entry(
        None,
        "Column with the moment at which the event was sent, by the same clock as `time`: with `received` it corrects "
        "a device's clock (time + received - sent).",
        example="sent_at",
        content=True,
        alternative=True,
    )
    received: Text | None = entry(
        None,
        "Column with the moment at which the event was received, by a clock that is right.",
        example="received_at",
        content=True,
        alternative=True,
    )
    delay: Duration | None = entry(
        None,
        "How far events may be out of order: one is late for what ended so long before the newest event that its "
        "partition of the log had before it. Needed: without it nothing could ever be forgotten.",
        shown_default="none: it must be said",
        example="10 minutes",
        content=True,
        active=True,
    )
    late: Literal["drop", "correct"] = entry(
        "drop",
        "What becomes of late events: `drop` makes dead letters of them, which are counted and alarmed; `correct` "
        "counts them all the same, for `correct_for`, and marks the document.",
        content=True,
    )
    correct_for: Duration | None = entry(
        None,
        "For how long beyond `delay` late events still count, with `late: correct`. So long state is kept.",
        example="7 days",
        content=True,
        alternative=True,
    )


class Window(Timing):
    """Measures over the events of a time, by groups: a document for each window of each group."""

    size: Duration | None = entry(
        None,
        "How long a window is; they begin at whole multiples since 1970 (UTC).",
        shown_default="none: sessions, with `gap`",
        example="1 hour",
        content=True,
        active=True,
    )
    slide: Duration | None = entry(
        None,
        "From the start of one window to that of the next; less than `size` makes windows that overlap.",
        shown_default="`size`",
        example="15 minutes",
        content=True,
        alternative=True,
    )
    gap: Duration | None = entry(
        None,
        "In place of `size`: a session ends when its group has had no event for so long.",
        example="30 minutes",
        content=True,
        alternative=True,
    )
    by: Mapping[FieldName, Text] = entry(
        {},
        "What makes a group: name: Spark SQL over the event's columns.",
        shown_default="one group",
        example={"ip": "get_json_object(payload, '$.ip')"},
        content=True,
        active=True,
        max_length=16,
    )
    groupings: Annotated[tuple[Names, ...], Field(strict=False)] = entry(
        (),
        "Several groupings at once, a small cube: lists of names of `by`. Documents then say which in `grouping`.",
        shown_default="one, by all of `by`",
        example=[["ip"], []],
        content=True,
        alternative=True,
        max_length=16,
    )
    measures: Annotated[Mapping[FieldName, Text], Field(min_length=1, max_length=64)] = entry(
        description="name: count(*), count(x), sum(x), avg(x), min(x), max(x), approx_count_distinct(x) or "
        "percentile(x, 0.95); x is Spark SQL over the event's columns.",
        example={"views": "count(*)", "p95": "percentile(ms, 0.95)"},
        content=True,
    )


class Event(Part):
    """Some of a view's events, by what they are and whom they concern."""

    where: Text = entry(
        description="Spark SQL condition over the event's columns.", example="type = 'searched'", content=True
    )
    key: Text = entry(
        description="Spark SQL over the event's columns: events of one key belong together.",
        example="aggregateid",
        content=True,
    )
    fields: Mapping[FieldName, Text] = entry(
        {},
        "What the document says of the event: name: Spark SQL over its columns.",
        example={"words": "get_json_object(payload, '$.words')"},
        content=True,
        max_length=64,
    )


class Match(Timing):
    """Events that belong together within a time: a document for each event that was followed, or was not."""

    first: Event = entry(
        description="The events that have a document each.",
        example={"where": "type = 'searched'", "key": "aggregateid"},
        content=True,
    )
    then: Event | None = entry(
        None,
        "The events that may follow one. Without it, `count` of `first` are looked for.",
        example={"where": "type = 'clicked'", "key": "get_json_object(payload, '$.search')"},
        content=True,
        alternative=True,
    )
    within: Duration | None = entry(
        None,
        "How long after the first event the other one may happen. Needed: without it all events are kept for ever.",
        shown_default="none: it must be said",
        example="30 minutes",
        content=True,
        active=True,
    )
    keep: Literal["all", "followed", "alone"] = entry(
        "all",
        "Which documents there are: of every first event, with `followed` only of those that were followed (a "
        "sequence), with `alone` only of those that were not, once the time is over (absence).",
        content=True,
    )
    count: Whole = entry(
        0,
        "In place of `then`: a document for each first event that is the last of so many of its key within the time (a "
        "threshold).",
        unit="events",
        example=3,
        content=True,
        alternative=True,
        ge=0,
        le=1000,
    )
