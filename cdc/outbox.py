"""The outbox: which topics hold the events that an application has written, and which tables hold none of their own.

A record of the outbox table is an event, and the connector routes it by its aggregate's type
(deploy/connect/OutboxRouter.java): the table's own topic stays empty, and does not exist. Whoever wants to know where
the records of a table are asks ``topics_of_table``; of a view, ``cdc.resolve.views.topics_of``.
docs/decisions/outbox.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cdc.pipeline import Pipeline


def is_outbox(pipeline: Pipeline, table: str) -> bool:
    """Whether a table's rows are events.

    Args:
        pipeline: the loaded file.
        table: ``schema.table``.
    """
    outbox = pipeline.source.outbox
    return outbox is not None and outbox.table == table


def other_events(pipeline: Pipeline) -> str:
    """The topic of events whose type has none of its own; the others' names begin with it."""
    return pipeline.events_topic


def events_topics(pipeline: Pipeline, types: Iterable[str] = ()) -> tuple[str, ...]:
    """The topics of events.

    Args:
        pipeline: the loaded file.
        types: aggregate types of the file; none for all events, also those of types that the file does not name.
    """
    outbox, other = pipeline.source.outbox, other_events(pipeline)
    if outbox is None:
        return ()
    named = tuple(f"{other}.{one}" for one in sorted(set(types) or set(outbox.types)))
    return named if set(types) else (other, *named)


def topics_of_table(pipeline: Pipeline, table: str) -> tuple[str, ...]:
    """The topics that hold a table's records: one, but of the outbox those of events.

    Args:
        pipeline: the loaded file.
        table: ``schema.table``.
    """
    return events_topics(pipeline) if is_outbox(pipeline, table) else (pipeline.topic(table),)


def topic_of_row(pipeline: Pipeline, table: str, row: Mapping[str, Any]) -> str:
    """The topic that the connector gives a record of a row; as OutboxRouter.java does it.

    Args:
        pipeline: the loaded file.
        table: ``schema.table``.
        row: column -> raw value.
    """
    outbox = pipeline.source.outbox
    if outbox is None or outbox.table != table:
        return pipeline.topic(table)
    kind, other = row.get(outbox.aggregate_type), other_events(pipeline)
    return f"{other}.{kind}" if kind in outbox.types else other


def topics_of_tables(pipeline: Pipeline, tables: Iterable[str]) -> list[str]:
    """The same of several, one after the other."""
    return [topic for table in tables for topic in topics_of_table(pipeline, table)]


def by_topic(pipeline: Pipeline, said: Mapping[str, str]) -> dict[str, str]:
    """What is said of tables, of their topics: topic -> what."""
    return {topic: what for table, what in said.items() for topic in topics_of_table(pipeline, table)}
