"""Cuts with names: an Iceberg tag on each table of a history, and in its properties which cut it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cdc.errors import SinkRefused, TagExists, UnknownName
from cdc.pipeline import Pipeline
from cdc.records.history import quoted_by
from operations.state.catalogue import source_catalogue
from operations.state.history import history_sink, root_tables
from sinks.iceberg.catalogue import catalog_name, open_catalog
from sinks.iceberg.history import CUT, all_histories, tag, tags, untag

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from operations.as_of.cut import Cut


def name_cut(cut: Cut, name: str) -> None:
    """Give a cut a name, on every table or on none.

    Of two that give the same name at once at the most one has it.

    Raises:
        TagExists: a table has a tag or a cut of that name, or got one meanwhile (terminal).
        SinkRefused: a table was committed to all the time, or the catalogue refuses; no table has the name.
    """
    for table in cut.tables.values():
        _refuse_there(table, name)
    said = {"cut": cut.cut, "lsn": cut.lsn, "source": cut.source, "at": time.time()}
    begun: list[Table] = []
    try:
        # The catalogue refuses a second tag, and knows nothing of a table without a snapshot: that comes last.
        for table in sorted(cut.tables.values(), key=_empty):
            begun.append(table)
            _again(table, lambda one: _give(one, name, said))
    except BaseException:
        for table in begun:
            with suppress(Exception):
                _again(table, lambda one: _take_back(one, name, said))
        raise


def _empty(table: Table) -> bool:
    return table.current_snapshot() is None


def _refuse_there(table: Table, name: str) -> None:
    where = ".".join(table.name()[-2:])
    if CUT + name in table.properties:
        raise _taken(name, f"on {where}")
    if name in table.refs():
        raise _foreign(name, where, table.refs()[name].snapshot_ref_type.value)


def _give(table: Table, name: str, said: Mapping[str, Any]) -> None:
    """Called anew after a commit of somebody else's, which may have been this very name."""
    if _empty(table):
        table.refresh()
    if tags([table]).get(name) == said:
        return  # the answer to it was lost
    _refuse_there(table, name)
    tag(table, name, said)


def _take_back(table: Table, name: str, said: Mapping[str, Any]) -> None:
    table.refresh()
    if tags([table]).get(name) == said:  # else it is somebody else's
        untag(table, name)


def refuse_named(pipeline: Pipeline, sink: str, name: str) -> None:
    """Refuse a name that a cut has in what was put aside of a table's history: both would be read by it.

    Raises:
        TagExists: it has (terminal).
    """
    if any(one["name"] == name for one in list_cuts(pipeline, sink)):
        raise _taken(name, f"in sink {sink}")


def _taken(name: str, where: str) -> TagExists:
    return TagExists(
        f"there is a cut {name} already, {where}",
        means="nothing was changed",
        fix="choose another name, or drop that one: `headwater as-of FILE --drop NAME`",
    )


def _foreign(name: str, table: str, kind: str) -> TagExists:
    """A tag or a branch that is nobody's cut: ``--drop`` knows nothing of it."""
    drop = f", or drop that one if nobody needs it: ALTER TABLE {table} DROP TAG {quoted_by('`', [name])[0]}"
    return TagExists(
        f"table {table} has a {kind} {name} in Iceberg already, which is no cut",
        means="nothing was changed",
        fix=f"choose another name{drop if kind == 'tag' else ''}",
    )


# A writer's commit that comes between is no reason to give up.
TRIES = 20


def _again(table: Table, work: Any) -> Any:
    from pyiceberg.exceptions import CommitFailedException

    for _ in range(TRIES):
        try:
            return work(table)
        except CommitFailedException:
            time.sleep(0.1)
            table.refresh()
    raise SinkRefused(f"table {'.'.join(table.name()[-2:])} is committed to all the time", fix="the same again")


def list_cuts(pipeline: Pipeline, sink: str | None) -> list[dict[str, Any]]:
    """Every cut with a name, the oldest first."""
    name = history_sink(pipeline, sink)
    with open_catalog(pipeline.sinks[name], catalog_name(name)) as catalog:
        found = tags(_tables(pipeline, catalog, name))
    return sorted(({"name": one, **said} for one, said in found.items()), key=lambda one: one["at"])


def named_cut(pipeline: Pipeline, sink: str | None, name: str) -> dict[str, Any]:
    """What was said of a cut.

    Raises:
        UnknownName: there is none of that name (terminal).
    """
    found = list_cuts(pipeline, sink)
    for one in found:
        if one["name"] == name:
            return one
    there = ", ".join(one["name"] for one in found) or "none"
    raise UnknownName(f"there is no cut {name}", fix=f"there is {there}: `headwater as-of FILE --list`")


def drop_cut(pipeline: Pipeline, sink: str | None, name: str) -> None:
    """Take a cut's name back; what it shows stays in the tables.

    Raises:
        UnknownName: there is none of that name (terminal).
    """
    named_cut(pipeline, sink, name)
    there = history_sink(pipeline, sink)
    with open_catalog(pipeline.sinks[there], catalog_name(there)) as catalog:
        for table in _tables(pipeline, catalog, there):
            _again(table, lambda one: untag(one, name))


def _tables(pipeline: Pipeline, catalog: Catalog, sink: str) -> list[Table]:
    """Every history of the sink's tables, those that were put aside too: cuts were named in them."""
    namespace = pipeline.sinks[sink].namespace  # type: ignore[union-attr]
    found: list[Table] = []
    for table in root_tables(pipeline, source_catalogue(pipeline), sink).values():
        found += all_histories(catalog, namespace, table.name, table.qualified)
    return found
