"""How far each captured table's rows are on their way into its topic, as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc.errors import HeadwaterError
from cdc.log.ends import LogEnds
from cdc.outbox import topics_of_table, topics_of_tables
from cdc.pipeline import Pipeline
from connectors.captured.captured import read_captured
from connectors.names import Names
from connectors.postgres import connect
from connectors.tables.partitions import estimated_rows
from operations.overview.changes import KINDS, counted


def tables_report(pipeline: Pipeline, log: LogEnds) -> list[dict[str, Any]]:
    """The captured tables, those that are still being read first.

    Args:
        pipeline: the loaded file.
        log: of this report alone: it answers of each topic as it was first asked.

    Returns:
        for each: ``table``, ``state`` (``initial``, ``wanted``, ``requested``: its rows are read, or are to be; or
        ``done``), ``topics`` (how many hold its records), ``records`` (offsets of those; None if that is not known),
        ``records_error`` (why it is not: the brokers are away, or a topic is not there or may not be read; else None),
        ``rows`` (of the table, by Postgres's estimate), ``again`` (rows are read that the topic had before: ``records``
        do not say how far that is), ``gap``: what of its changes is missing, else None; and ``inserted``, ``updated``,
        ``deleted``: rows, since Postgres began to count; None where it does not.

    Raises:
        SourceUnavailable: Postgres does not answer (transient). SourceError: it refuses.
    """
    with connect(pipeline.source) as connection:
        captured = read_captured(connection, Names.of(pipeline))
        rows = estimated_rows(connection, captured)
        changes = counted(connection, list(captured))
    log.keep(topics_of_tables(pipeline, captured))
    found = [
        {
            "table": table,
            "state": entry.state,
            **_records(log, topics_of_table(pipeline, table)),
            "rows": rows.get(table, 0),
            "again": entry.sweep or entry.condition is not None,
            "gap": ", ".join(entry.gap.reasons) if entry.gap else None,
            **changes.get(table, dict.fromkeys(KINDS)),
        }
        for table, entry in captured.items()
    ]
    return sorted(found, key=lambda one: (one["state"] == "done", one["table"]))


def _records(log: LogEnds, topics: Sequence[str]) -> dict[str, Any]:
    records, why = None, None
    try:
        records = sum(end for parts in log.ends(topics).values() for end in parts.values())
    except HeadwaterError as error:
        why = error.what
    return {"topics": len(topics), "records": records, "records_error": why}
