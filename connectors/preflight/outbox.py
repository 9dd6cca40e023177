"""Has the outbox the columns that its events are routed by, and can the worker route them?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.catalogue import Table
from cdc.errors import ConnectError
from cdc.pipeline.source import Outbox
from cdc.resolve.names import near
from cdc.sql_names import sql_name, sql_table
from connectors.outbox import NAME, ROUTER
from connectors.preflight.model import Check, Finding, Level, Site

AGAIN = "then run `headwater check FILE` again"


def run(site: Site) -> Iterator[Finding]:
    """Nothing to ask without an outbox."""
    outbox = site.pipeline.source.outbox
    if outbox is None:
        return
    table = site.catalogue.tables.get(outbox.table)
    if table is None:
        message = f"source.outbox.table {outbox.table} is not a captured table"
        yield Finding(Level.ERROR, outbox.table, message, "correct it, or add the table to source.tables")
        return
    yield from column_findings(outbox, table)
    if outbox.message_prefix is not None and site.db.info.server_version < 140_000:
        message = "Postgres hands messages of pg_logical_emit_message on since version 14"
        yield Finding(Level.ERROR, outbox.table, message, "leave source.outbox.message_prefix out, and write rows")
    yield from _worker(site)
    topics = site.pipeline.connect.options.get("transforms")
    if topics is not None and NAME not in str(topics):
        message = "connect.options has transformations of its own: the router of events is put before them"
        fix = f"write '{NAME}' among them to have it in another place"
        yield Finding(Level.NOTE, "connect.options", message, fix)


def column_findings(outbox: Outbox, table: Table) -> Iterator[Finding]:
    """What keeps a table's rows from being events. Pure.

    Args:
        outbox: of the file.
        table: the table that it names.
    """
    missing = False
    for key in ("id", "aggregate_type", "aggregate_id"):
        name = getattr(outbox, key)
        if name not in table.by_name:
            missing = True
            message = f"{table.qualified} has no column {name} (source.outbox.{key})"
            fix = near(name, table.by_name) or f"its columns are {', '.join([*table.by_name][:20])}"
            yield Finding(Level.ERROR, table.qualified, message, f"{fix}; {AGAIN}")
        elif key != "id" and table.by_name[name].nullable:
            message = f"{table.qualified}.{name} may be null: such an event has no place of its own"
            fix = f"ALTER TABLE {sql_table(table.qualified)} ALTER COLUMN {sql_name(name)} SET NOT NULL"
            yield Finding(Level.ERROR, table.qualified, message, fix)
    if not missing and table.primary_key != (outbox.id,):
        key = ", ".join(table.primary_key) or "none"
        message = f"the primary key of {table.qualified} is ({key}), and not the event's id {outbox.id}"
        add = f"ALTER TABLE {sql_table(table.qualified)} ADD PRIMARY KEY ({sql_name(outbox.id)})"
        fix = f"{add}; or correct source.outbox.id"
        yield Finding(Level.ERROR, table.qualified, message, fix)


def _worker(site: Site) -> Iterator[Finding]:
    try:
        plugins = site.connect.plugins(connectors_only=False)
    except ConnectError:
        return  # the check of the worker says so
    if ROUTER not in plugins:
        message = f"this worker does not have {ROUTER}, which gives events their topics"
        fix = "put headwater-outbox.jar into the worker's plugin.path and restart it (docs/connectors.md)"
        yield Finding(Level.ERROR, site.pipeline.connect.url, message, fix)


CHECK = Check("outbox", "with an outbox: its rows can be routed as events", run, needs=("server", "tables"))
