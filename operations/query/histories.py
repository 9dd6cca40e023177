"""The tables of histories, for a query: every event of a table, or every version of its rows, as they were committed.

They are asked for as ``<table>_history`` and ``<table>_versions``. With the log's tail they can't be: what it holds has
not been numbered and told from repetitions yet, as what is in a history has (docs/decisions/history.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cdc.catalogue import Catalogue, Table
from cdc.errors import QueryRefused, SinkRefused
from cdc.history_names import HISTORY, VERSIONS
from cdc.pipeline import IcebergSink, Pipeline
from cdc.records.history import OURS, versions_sql
from operations.query.tables import Held, Name, held_at
from operations.state.history import STREAM, history_folder, keeps_history, root_tables
from sinks.iceberg.catalogue import catalog_name, open_catalog
from sinks.iceberg.history import floats_of, key_of, load_history
from spark.disk.applied import applied_offsets


@dataclass(frozen=True)
class Past:
    """A history that a statement names.

    Attributes:
        held: its table.
        topic: whose events it holds.
        applied: through which offsets it was at least, before the table was looked at.
        versions: versions of rows are asked for, and not events.
    """

    held: Held
    topic: str
    applied: dict[str, dict[int, int]]
    versions: bool

    def select(self, rows: str) -> str:
        """What the name stands for, over the table's rows."""
        if not self.versions:
            return f"SELECT * FROM {rows}"  # noqa: S608 (names are quoted)
        columns = [name for name in self.held.columns if not name.startswith(OURS)]
        return versions_sql(columns, key_of(self.held.table), rows, floats=floats_of(self.held.table))


def is_past(name: str) -> bool:
    """Whether a table of that name can be a history's. Pure."""
    return name.lower().endswith((HISTORY, VERSIONS))


def past_tables(pipeline: Pipeline, catalogue: Catalogue, sinks: Collection[str]) -> dict[str, Mapping[str, Table]]:
    """sink -> what a statement may name -> the source's table, of those sinks that keep history.

    Raises:
        ConfigError: a view's root is not there any more (terminal).
    """
    found: dict[str, Mapping[str, Table]] = {}
    for sink in sinks:
        if keeps_history(pipeline, sink):
            roots = root_tables(pipeline, catalogue, sink).values()
            found[sink] = {table.name + end: table for table in roots for end in (HISTORY, VERSIONS)}
    return found


def open_past(
    pipeline: Pipeline, wanted: Collection[Name], known: Mapping[str, Mapping[str, Table]], *, all_there: bool
) -> list[Past]:
    """The tables of histories at their newest snapshots; one that has not begun is left out if not ``all_there``.

    Raises:
        SinkRefused: a history has not begun. SinkUnavailable: the catalogue does not open (transient).
    """
    found = []
    for name in wanted:
        part, table = pipeline.sinks[name.sink], known[name.sink][name.view]
        assert isinstance(part, IcebergSink)
        # First: what it says was read is in the table that is looked at afterwards.
        applied = applied_offsets(history_folder(pipeline, name.sink) / STREAM)
        with open_catalog(part, catalog_name(name.sink)) as catalog:
            try:
                held = held_at(name, None, load_history(catalog, part.namespace, table.name))
            except SinkRefused:
                if all_there:
                    raise
                continue
        found.append(Past(held, pipeline.topic(table.qualified), applied, name.view == table.name + VERSIONS))
    return found


def refuse_fresh(names: Collection[Name]) -> None:
    """Refuse to unite a history with the log's tail.

    Raises:
        QueryRefused: there is one among these (terminal).
    """
    if names:
        raise QueryRefused(
            f"{', '.join(sorted(name.shown for name in names))}: histories are read as they were committed",
            means="nothing was run",
            fix="ask without --fresh and --at-least; `headwater as-of FILE` waits until a history has come to a write",
        )
