"""A cut as data: the shape of ``headwater as-of --json``."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from cdc.errors import StateError
from cdc.pipeline import Pipeline
from cdc.records.history import set_aside
from cdc.records.position import format_lsn, unpack
from cdc.saying import Say
from connectors.captured.changed import KeptKey
from connectors.captured.tablewatch import look_once
from connectors.database.lost import read_lost
from connectors.names import Names
from connectors.postgres import connect
from operations.as_of.cut import Asked, Cut, with_cut
from operations.as_of.lost import refuse_lost
from operations.as_of.naming import name_cut, refuse_named, refuse_ours
from operations.as_of.statements import statements
from operations.state.keys import kept_keys
from sinks.iceberg.history import former_names, own_columns


def as_of(pipeline: Pipeline, sink: str | None, asked: Asked, tag: str | None, say: Say) -> dict[str, Any]:
    """Find a cut, give it a name if one is wanted, and say how to read it.

    Args:
        pipeline: the loaded file.
        sink: whose history; None where only one sink keeps it.
        asked: where the cut is to be.
        tag: its name.
        say: told a line when something takes a while.

    Raises:
        HeadwaterError: as ``operations.as_of.cut.find_cut`` and ``operations.as_of.naming.name_cut``.
    """
    if tag is not None:
        refuse_ours(tag)

    def work(cut: Cut) -> dict[str, Any]:
        if tag is not None:
            refuse_named(pipeline, cut.sink, tag)
            _look(pipeline, cut)
            name_cut(cut, tag)
        return told(pipeline, cut, tag)

    found: dict[str, Any] = with_cut(pipeline, sink, asked, say, work)
    return found


def _look(pipeline: Pipeline, cut: Cut) -> None:
    """A table that is altered next is in doubt since all were last seen whole, and the cut shall not be; one that was
    altered just now is seen by this."""
    kept: dict[str, KeptKey] = {}
    with suppress(StateError):  # another sink's, which has nothing to do with a warehouse's cut
        kept.update(kept_keys(pipeline))
    look_once(pipeline, kept)
    with connect(pipeline.source) as connection:
        refuse_lost(read_lost(connection, Names.of(pipeline)), unpack(cut.cut)[1], None)


def told(pipeline: Pipeline, cut: Cut, tag: str | None) -> dict[str, Any]:
    """A cut as plain data."""
    texts = statements(pipeline, cut)
    tables = []
    for name, table in cut.tables.items():
        snapshot, columns = table.current_snapshot(), [field.name for field in table.schema().fields]
        tables.append(
            {
                "table": name,
                "history": ".".join(table.name()[-2:]),
                "aside": set_aside(columns, own_columns(table), former_names(table)),
                "snapshot": None if snapshot is None else snapshot.snapshot_id,
                "sql": texts[name],
            }
        )
    return {
        "pipeline": pipeline.name,
        "sink": cut.sink,
        "cut": cut.cut,
        "lsn": cut.lsn,
        "frontier": format_lsn(unpack(cut.frontier)[1]),
        "tag": tag,
        "tables": tables,
    }
