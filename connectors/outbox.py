"""The outbox on the connector's side: what the router is told, and the topics that it fills. Pure."""

from __future__ import annotations

import json
import re

from cdc.catalogue import Catalogue, Column, Table
from cdc.log.client import Topic
from cdc.outbox import events_topics, other_events
from cdc.pipeline import Pipeline
from cdc.types import type_key

# deploy/connect/OutboxRouter.java, and its name among the connector's transformations.
ROUTER = "headwater.connect.OutboxRouter"
NAME = "events"
DAY_MS = 86_400_000
# Postgres type -> how a message's value becomes that of a row (deploy/connect/OutboxMessage.java). Moments without a
# zone are numbers in Debezium's events, which nobody would write into a message.
_KINDS = {
    "bool": "boolean",
    "int2": "int16",
    "int4": "int32",
    "int8": "int64",
    "oid": "int64",
    "float4": "float",
    "float8": "double",
    "json": "json",
    "jsonb": "json",
    **dict.fromkeys(
        ("text", "varchar", "bpchar", "citext", "name", "uuid", "enum", "numeric", "timestamptz"), "string"
    ),
}
# Of those the ones that not every text fits. The router is told apart: an older one does not know more kinds than these
# above, and would take such a column for one that no message gives.
_FORMS = ("numeric", "timestamptz")


def router(pipeline: Pipeline, catalogue: Catalogue, transforms: str) -> dict[str, str]:
    """The router's part of the connector's configuration; nothing without an outbox.

    Args:
        pipeline: the loaded file.
        catalogue: the captured tables.
        transforms: the transformations as they are named up to here. The router is the first, because it goes by the
            topics that Debezium gives; a user who names it himself has it where he put it.
    """
    outbox = pipeline.source.outbox
    if outbox is None:
        return {}
    settings = {
        "type": ROUTER,
        "table.topic": pipeline.topic(outbox.table),
        "target": other_events(pipeline),
        "types": ",".join(outbox.types),
        "type.column": outbox.aggregate_type,
        "aggregate.column": outbox.aggregate_id,
    }
    table = catalogue.tables.get(outbox.table)
    if outbox.message_prefix is not None and table is not None:
        settings |= {
            "id.column": outbox.id,
            "message.topic": pipeline.topic("message"),
            "message.prefix": outbox.message_prefix,
            "message.table": outbox.table,
            "message.columns": json.dumps(message_columns(table)),
            "message.forms": json.dumps(message_forms(table)),
        }
    more = {}
    if outbox.message_prefix is not None:
        # Debezium gives every application's messages a topic that nobody has asked for.
        more["message.prefix.include.list"] = re.sub(r"([^A-Za-z0-9_])", r"\\\1", outbox.message_prefix)
    names = [name.strip() for name in transforms.split(",") if name.strip()]
    return more | {
        "transforms": ",".join(names if NAME in names else [NAME, *names]),
        **{f"transforms.{NAME}.{name}": value for name, value in settings.items()},
    }


def message_columns(table: Table) -> dict[str, str]:
    """Column -> how a message gives its value; "" for one that it can't give."""
    return {column.name: _kind(column) for column in table.columns}


def message_forms(table: Table) -> dict[str, str]:
    """Column -> the form that its text must have in a message, where it must have one; a numeric's digits beside it."""
    found = {}
    for column in table.columns:
        if not column.array and (kind := type_key(column)) in _FORMS:
            limited = kind == "numeric" and column.precision is not None
            found[column.name] = f"{kind}({column.precision},{column.scale or 0})" if limited else kind
    return found


def _kind(column: Column) -> str:
    return "" if column.array else _KINDS.get(type_key(column), "")


def event_topics(pipeline: Pipeline) -> list[Topic]:
    """The topics of events, which are facts: none takes the place of another, and they stay."""
    outbox, kafka = pipeline.source.outbox, pipeline.kafka
    if outbox is None:
        return []
    config = {
        # Compaction would leave the last event of each aggregate.
        "cleanup.policy": "delete",
        "retention.ms": "-1" if outbox.keep_days is None else str(outbox.keep_days * DAY_MS),
        "retention.bytes": "-1",
        "segment.ms": str(int(kafka.segment_hours * 3_600_000)),
        "max.message.bytes": str(kafka.max_message_bytes),
    }
    copies = kafka.replication_factor
    return [Topic(name, kafka.partitions, copies, config, holds="events") for name in events_topics(pipeline)]
