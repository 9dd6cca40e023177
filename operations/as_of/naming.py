"""Cuts with names: an Iceberg tag on each table of a history, and in its properties which cut it is."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cdc.errors import SinkRefused, TagExists, UnknownName
from cdc.pipeline import Pipeline
from cdc.records.history import quoted_by
from operations.state.catalogue import source_catalogue
from operations.state.history import history_sink, root_tables, topics_read
from sinks.iceberg.catalogue import catalog_name, open_catalog
from sinks.iceberg.history import CUT, TABLE, cuts_of, histories_in, tag, untag
from sinks.iceberg.remains import OURS

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from operations.as_of.cut import Cut


def name_cut(cut: Cut, name: str) -> None:
    """Give a cut a name, on every table or on none.

    Of two that give the same name at once at the most one has it. Who drops a cut of that name at the same time drops
    this one whole, or it is refused.

    Raises:
        TagExists: a table has a tag or a cut of that name, or got one meanwhile (terminal).
        SinkRefused: a table was committed to all the time, or the catalogue refuses, or somebody has dropped the name
            meanwhile; no table has it.
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
        for table in begun:
            table.refresh()
            if cuts_of(table).get(name) != said:
                raise SinkRefused(
                    f"cut {name} was dropped while its tables got the name", means="none has it", fix="the same again"
                )
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
    if cuts_of(table).get(name) == said:
        return  # the answer to it was lost
    _refuse_there(table, name)
    tag(table, name, said)


def _take_back(table: Table, name: str, *said: Mapping[str, Any]) -> None:
    table.refresh()
    if cuts_of(table).get(name) in said:  # else it is somebody else's
        untag(table, name)


def refuse_ours(name: str) -> None:
    """Refuse a name that a branch of each table has, or may get. Pure.

    A table without a snapshot takes it all the same, and an erasure takes what has it for no tag that keeps a row.

    Raises:
        TagExists: it is one (terminal).
    """
    if name in OURS:
        whose = "Iceberg's own branch, which every table has" if name == "main" else "a branch that Headwater makes"
        raise TagExists(
            f"no cut can be called {name}: so is {whose}", means="nothing was changed", fix="choose another name"
        )


def refuse_named(pipeline: Pipeline, sink: str, name: str) -> None:
    """Refuse a name that a cut of the sink has in any history, also in one that was put aside, or of a table that was
    taken out: both would be read by it.

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
    """Every cut with a name, the oldest first; also those of tables that the sink keeps no more."""
    with _named_in(pipeline, sink) as (histories, _):
        found = _distinct({"name": one, **said} for table in histories for one, said in cuts_of(table).items())
    return sorted(found, key=lambda one: one["at"])


def named_cut(pipeline: Pipeline, sink: str | None, name: str, tables: Collection[str] = ()) -> dict[str, Any]:
    """What was said of a cut.

    Args:
        pipeline: the loaded file.
        sink: whose history; None where only one sink keeps it.
        name: of the cut.
        tables: that are to be shown; none for all that the sink keeps.

    Raises:
        UnknownName: there is none of that name; or it is the name of one cut in some of these tables, and of another
            one in others (terminal).
    """
    with _named_in(pipeline, sink) as (histories, kept):
        cuts = [(table.properties[TABLE], cuts_of(table)) for table in histories]
    found = [(table, named[name]) for table, named in cuts if name in named]
    if not found:
        raise _unknown(name, {one for _, named in cuts for one in named})
    shown = [(table, said) for table, said in found if table in (tables or kept)] or found
    if len(_distinct(said for _, said in shown)) > 1:
        where = ", ".join(f"{said['lsn']} in {table}" for table, said in shown)
        raise UnknownName(
            f"{name} is the name of several cuts: {where}",
            means="together their tables would be of two moments; nothing was read",
            fix=f"ask for the tables of one (--table), or take the name back of all (--drop {name})",
        )
    return shown[0][1]


def drop_cut(pipeline: Pipeline, sink: str | None, name: str) -> None:
    """Take a cut's name back, in all tables that have it, also those that the sink keeps no more; what it shows stays.

    Raises:
        UnknownName: there is none of that name (terminal).
    """
    with _named_in(pipeline, sink) as (histories, _):
        cuts = [(table, cuts_of(table)) for table in histories]
        found = [table for table, named in cuts if name in named]
        if not found:
            raise _unknown(name, {one for _, named in cuts for one in named})
        dropped = [named[name] for _, named in cuts if name in named]
        # Looked at again: one that is just being named has its name on further tables by now. Who names it looks once
        # all have it, so that either here or there it is seen. A cut that got this name afterwards keeps it.
        while found:
            for table in found:
                _again(table, lambda one: _take_back(one, name, *dropped))
            for table, _ in cuts:
                table.refresh()
            found = [table for table, _ in cuts if cuts_of(table).get(name) in dropped]


def _unknown(name: str, known: Collection[str]) -> UnknownName:
    there = ", ".join(sorted(known)) or "none"
    return UnknownName(f"there is no cut {name}", fix=f"there is {there}: `headwater as-of FILE --list`")


def _distinct(said: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in said:
        if one not in found:
            found.append(one)
    return found


@contextmanager
def _named_in(pipeline: Pipeline, sink: str | None) -> Iterator[tuple[list[Table], Collection[str]]]:
    """Every history that a cut of the sink may have been named in, and the tables that the sink keeps now.

    Those that were put aside, and those of tables that were taken out of the sink: their tags keep files, and a name
    that was forgotten there would have two cuts once such a table comes back.
    """
    name = history_sink(pipeline, sink)
    part = pipeline.sinks[name]
    kept = root_tables(pipeline, source_catalogue(pipeline), name)
    read = {topic.removeprefix(pipeline.topic("")) for topic in topics_read(pipeline, name)}
    with open_catalog(part, catalog_name(name)) as catalog:
        yield histories_in(catalog, part.namespace, {*kept, *read}), kept  # type: ignore[union-attr]
