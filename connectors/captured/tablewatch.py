"""Looks at the captured tables again and again, over one connection, and remembers gaps in the database."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg
from psycopg import sql

from cdc.errors import SourceError, TableChanged
from cdc.pipeline import Pipeline
from connectors.captured.captured import read_captured
from connectors.captured.changed import (
    KeptKey,
    complete_keys,
    difference,
    differences,
    look_at,
    merged,
    note_gaps,
    refusal,
    refusals,
    remember,
)
from connectors.database.history import read_moment
from connectors.database.lost import note_whole
from connectors.database.sightings import Sighting, altering, look
from connectors.names import Names
from connectors.postgres import ANSWER_SECONDS, Connection, connect, explained, has_columns, has_table, within

RIGHTS = "SELECT has_table_privilege({0}, 'SELECT') AND has_table_privilege({0}, 'UPDATE')"
# Between two notes that all tables are whole: so much more than was lost is refused to who asks for a cut.
WHOLE_SECONDS = 30.0


def look_once(pipeline: Pipeline, kept: Mapping[str, KeptKey]) -> dict[str, TableChanged]:
    """Look at the captured tables, and note what is seen: gaps, or that all of them are whole.

    Args:
        pipeline, kept: as ``TableWatch``.

    Returns:
        Tables with a gap, and the error of each; none if Postgres does not answer.
    """
    watch = TableWatch(pipeline, kept)
    try:
        return watch.look()
    finally:
        watch.close()


class TableWatch:
    """The captured tables as a runner sees them.

    Attributes:
        changed: tables with a gap, and the error of each, as of the last look that was answered.
        forgetful: gaps can't be noted in the database: an older version has applied this pipeline.

    Args:
        pipeline: the loaded file.
        kept: table -> its oid and key as the sinks know them, for what an older version has not remembered.
    """

    def __init__(self, pipeline: Pipeline, kept: Mapping[str, KeptKey] = {}) -> None:
        self.pipeline, self.names, self.kept = pipeline, Names.of(pipeline), kept
        self.changed: dict[str, TableChanged] = {}
        self.forgetful = False
        self._connection: Connection | None = None
        self._first: dict[str, Sighting] = {}
        self._whole_at = -WHOLE_SECONDS

    def look(self) -> dict[str, TableChanged]:
        """Look once; what was seen before stays when Postgres does not answer."""
        try:
            if self._connection is None:
                self._connection = connect(self.pipeline.source)
            with within(self._connection, ANSWER_SECONDS):
                self.changed = self._look(self._connection)
        except (SourceError, psycopg.Error):  # down: the sinks go on with what the log holds
            self.close()
        return self.changed

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self, connection: Connection) -> dict[str, TableChanged]:
        if not self._may(connection):
            return self._without_list(connection)
        due = time.monotonic() - self._whole_at >= WHOLE_SECONDS
        # Before the look: what was committed until then was sent if all is well.
        moment = read_moment(connection) if due else None
        captured, publication = read_captured(connection, self.names), self.pipeline.source.publication
        captured = complete_keys(connection, self.names, captured, self.kept)
        oids = [entry.identity.oid for entry in captured.values() if entry.identity is not None]
        if moment is not None and altering(connection, oids):
            moment = None  # what was done may lie before it, and not be seen now
        seen = look_at(connection, publication, captured)
        found = differences(captured, seen, publication)
        note_gaps(connection, self.names, captured, found)
        remember(connection, self.names, {t: e for t, e in captured.items() if t not in found}, seen)
        out = refusals(captured, found)
        if moment is not None and captured and not out and not moment.standby:
            note_whole(connection, self.names, moment.wal_lsn)
            self._whole_at = time.monotonic()
        return out

    def _may(self, connection: Connection) -> bool:
        """Whether the list of captured tables can remember, and this role may write there."""
        with explained("looking for the list of captured tables"):
            if not has_table(connection, self.names.schema, self.names.captured):
                return True  # nothing is captured: an empty list
            name = sql.Literal(self.names.identifier(self.names.captured).as_string(connection))
            row = connection.execute(sql.SQL(RIGHTS).format(name)).fetchone()
            remembers = has_columns(connection, self.names.schema, self.names.captured, "identity", "gap")
            self.forgetful = not (row and row[0] and remembers)
        return not self.forgetful

    def _without_list(self, connection: Connection) -> dict[str, TableChanged]:
        """Compare with what this process has seen first."""
        publication = self.pipeline.source.publication
        named = [table for table in self.pipeline.source.tables if not table.endswith(".*")]
        seen = look(connection, publication, named, [known.oid for known in self._first.values()])
        for table, now in seen.by_name.items():
            self._first.setdefault(table, now)
        found = {}
        for table, known in self._first.items():
            same = seen.by_oid.get(known.oid)
            if change := difference(known, seen.by_name.get(table), same, publication):
                found[table] = refusal(table, merged(None, change), gone=change.gone)
        return {**self.changed, **found}
