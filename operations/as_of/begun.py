"""Tables whose rows are on their way into the log: until all of them are there, a cut would have a part of them."""

from __future__ import annotations

from collections.abc import Collection

from psycopg import sql

from cdc.errors import BeforeHistory
from cdc.log.client import Kafka
from cdc.pipeline import Pipeline
from connectors.captured.captured import read_captured
from connectors.names import Names
from connectors.postgres import Connection, connect, explained
from connectors.snapshots.requests import is_complete
from connectors.snapshots.signals import Notifications


class NotBegun(Exception):
    """A table's history is about to begin: it is waited for as long as for anything else of a cut.

    Args:
        error: what is raised if it has not begun by then.
    """

    def __init__(self, error: BeforeHistory) -> None:
        super().__init__(error.what)
        self.error = error


def have_rows(pipeline: Pipeline, tables: Collection[str]) -> set[str]:
    """Those of these tables (``schema.table``) that have a row at the source now: of a history that was begun anew, and
    in which nothing was read yet, it is still to be read.

    Raises:
        SourceUnavailable: no answer (transient).
    """
    found = set[str]()
    if tables:
        with connect(pipeline.source) as connection, explained("looking whether tables have rows"):
            for name in tables:
                query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(*name.split(".", 1)))
                row = connection.execute(query).fetchone()
                if row is not None and row[0]:
                    found.add(name)
    return found


def whole_since(pipeline: Pipeline, connection: Connection) -> dict[str, int]:
    """Where the log was (LSN in bytes) when all rows of a table were in its topic for the first time, of those captured
    tables of which that is known.

    Raises:
        SourceUnavailable: no answer (transient).
    """
    listed = read_captured(connection, Names.of(pipeline))
    return {table: one.read_through for table, one in listed.items() if one.read_through is not None}


def being_read(pipeline: Pipeline, connection: Connection, tables: Collection[str]) -> set[str]:
    """Those of these tables that are to be read again, or for the first time, while the source is streamed.

    Raises:
        KafkaUnavailable, SourceUnavailable: no answer (transient).
    """
    listed = read_captured(connection, Names.of(pipeline))
    asked = {table: one for table, one in listed.items() if table in tables and one.state in ("wanted", "requested")}
    if all(one.state == "wanted" for one in asked.values()):
        return set(asked)
    notifications = Notifications(Kafka(pipeline), pipeline)
    try:
        heard = notifications.catch_up()
    finally:
        notifications.close()
    # Who has applied without --wait has left the list as it was: Debezium knows more.
    return {table for table, one in asked.items() if one.state == "wanted" or not is_complete(heard, one)}
