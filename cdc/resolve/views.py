"""From the pipeline file's views to resolved ones: every name is checked against the source's catalogue.

Errors name the place in the file and what was probably meant; nothing has been written anywhere by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError
from cdc.gather import Gathering
from cdc.join.columns import names_of
from cdc.join.view import JoinedView
from cdc.outbox import events_topics, is_outbox
from cdc.pipeline import Pipeline, SearchSink
from cdc.pipeline.checks import ICEBERG_COLUMNS
from cdc.pipeline.joins import standing
from cdc.pipeline.sink import SinkPart
from cdc.resolve.fold import resolve_fold
from cdc.resolve.joins import resolve_tree
from cdc.resolve.names import Path, columns_of, distinct, error, find_table, key_of, keyed, letter_twins, near, present
from cdc.resolve.timing import resolve_timing
from cdc.timed import TimedView
from cdc.view import View

# What to do about a table whose name a sink can't have.
APART = "write a view for it, for a sink of its own, and name the other tables in `tables`"


def resolve_views(pipeline: Pipeline, catalogue: Catalogue, sink: str, left_out: Collection[str] = ()) -> list[View]:
    """The views that a sink keeps.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables as they are now.
        sink: the sink's name in the file.
        left_out: tables that a sink of all tables does not keep, as ``schema.table``.

    Raises:
        ConfigError: a table or column is not there, a key is not the primary key, a name is used twice: all that is
            wrong, in one error (terminal).
    """
    spec = pipeline.sinks[sink]
    found, views = Gathering(), list[View]()
    for name in spec.view_names:
        with found.step():
            views.append(resolve_view(pipeline, catalogue, name))
    if not spec.view_names:
        with found.step():
            views = _identities(pipeline, catalogue, sink, spec.tables, left_out)
    if spec.form == "columns":
        for view in views:
            at: Path = ("views", view.name, "columns") if spec.view_names else ("sinks", sink, "tables")
            with found.step():
                _in_warehouse(pipeline, view, sink, at)
    if isinstance(spec, SearchSink) and spec.routing is not None:
        for view in views:
            with found.step():
                _routed(pipeline, view, sink, spec.routing)
    found.end()
    return views


def resolve_roots(pipeline: Pipeline, catalogue: Catalogue, sink: str) -> dict[str, Table]:
    """The tables that a sink's views are rooted in, by the views' names. Nothing else of the views is looked at: who
    asks about rows of tables goes on when a view can't be made any more.

    Raises:
        ConfigError: a table is not there, or has no key (terminal).
    """
    spec = pipeline.sinks[sink]
    if not spec.view_names:
        return {view.name: view.table for view in _identities(pipeline, catalogue, sink, spec.tables)}
    found, roots = Gathering(), dict[str, Table]()
    for name in spec.view_names:
        with found.step():
            roots[name] = _root(pipeline, catalogue, name)
    found.end()
    return roots


def resolve_view(pipeline: Pipeline, catalogue: Catalogue, name: str) -> View:
    """One view of the file.

    Raises:
        ConfigError: as ``resolve_views``.
    """
    table = _root(pipeline, catalogue, name)
    model = pipeline.views[name]
    path: Path = ("views", name)
    if model.fold is not None:
        return resolve_fold(pipeline, name, model, model.fold, table)
    if model.stateful is not None:
        return resolve_timing(pipeline, name, model, table)
    found, tree = Gathering(), None
    key: tuple[str, ...] = ()
    with found.step():
        key = key_of(pipeline, table, tuple(model.key or ()), (*path, "key"))
    with found.step():
        tree = resolve_tree(pipeline, catalogue, name, model, table) if model.joins else None
        columns = columns_of(pipeline, table, model.picks, (*path, "columns")) if tree is None else tree.columns
        outputs = [out for _, out in columns] + [name for _, name, _ in standing(model)]
        outputs += [*model.aggregates, *model.fields]
        distinct(pipeline, outputs, path, f"view {name} gives two fields the name")
    found.end()
    if tree is not None:
        return JoinedView(name, table, key, columns, dict(model.fields), model.where, tree)
    view = View(name, table, key, columns, dict(model.fields), model.where)
    outbox = pipeline.source.outbox
    if outbox is None or not is_outbox(pipeline, table.qualified):
        return view
    view = replace(view, topics=events_topics(pipeline, model.events))
    if not model.events:
        return view
    return replace(view, event_types=tuple(model.events), type_column=present(table, outbox.aggregate_type))


def _root(pipeline: Pipeline, catalogue: Catalogue, name: str) -> Table:
    if name not in pipeline.views:
        raise error(pipeline, ("views",), f"there is no view {name}", near(name, pipeline.views))
    path: Path = ("views", name, "root")
    table = find_table(pipeline, catalogue, pipeline.views[name].root, path)
    keyed(pipeline, table, path)
    return table


def view_tables(view: View) -> Mapping[str, Table]:
    """All tables whose rows a view is made of: ``schema.table`` -> Table."""
    return view.tree.tables() if isinstance(view, JoinedView) else {view.table.qualified: view.table}


def topics_of(pipeline: Pipeline, view: View) -> Mapping[str, Table]:
    """The topics that a view reads, each with the table whose records it holds: topic -> Table.

    Args:
        pipeline: the loaded file.
        view: resolved.
    """
    if view.topics:
        return dict.fromkeys(view.topics, view.table)
    return {pipeline.topic(name): table for name, table in view_tables(view).items()}


def in_tables(pipeline: Pipeline, view: View) -> bool:
    """Whether a warehouse of the file keeps a view of the file."""
    return any(part.form == "columns" and view.name in part.view_names for part in pipeline.sinks.values())


def table_view(pipeline: Pipeline, table: Table) -> View:
    """All of a table's columns, under its own name; of the outbox all events."""
    topics = events_topics(pipeline) if is_outbox(pipeline, table.qualified) else ()
    return replace(View.identity(table), topics=topics)


def _identities(
    pipeline: Pipeline,
    catalogue: Catalogue,
    sink: str,
    chosen: Literal["all"] | tuple[str, ...] | None,
    left_out: Collection[str] = (),
) -> list[View]:
    """A view of all columns for each chosen table."""
    path: Path = ("sinks", sink, "tables")
    wrong, found = Gathering(), list[tuple[Table, Path]]()
    if chosen is None or chosen == "all":
        found = [(table, path) for name, table in catalogue.tables.items() if name not in left_out]
        for index, name in enumerate(pipeline.source.tables):
            with wrong.step():
                _present(pipeline, catalogue, index, name)
    else:
        for index, name in enumerate(chosen):
            with wrong.step():
                found.append((find_table(pipeline, catalogue, name, (*path, index)), (*path, index)))
    with wrong.step():
        distinct(pipeline, [table.name for table, _ in found], path, f"sink {sink}: two of its views are called")
    for table, place in found:
        with wrong.step():
            keyed(pipeline, table, place)
    if isinstance(spec := pipeline.sinks[sink], SearchSink):
        wrong.wrong += _unlike_indices(pipeline, sink, spec, found)
    wrong.end()
    return [table_view(pipeline, table) for table, _ in found]


def _unlike_indices(
    pipeline: Pipeline, sink: str, spec: SearchSink, found: Sequence[tuple[Table, Path]]
) -> Iterator[ConfigError]:
    """Tables as which no index can be called, or only one of several. A sink with one of them writes nothing at all:
    it can't be opened, or set up."""
    places = {table.qualified: place for table, place in found}
    for table, other in unlike_tables(spec, [table for table, _ in found]):
        index, place = spec.index_of(table.name), places[table.qualified]
        if other is None:
            what = f"sink {sink}: no index can be called {index!r}, as table {table.qualified} would need"
            yield error(pipeline, place, what, f"give the sink an `index_prefix`, or {APART}")
        else:
            what = f"sink {sink}: {other.qualified} and {table.qualified} would be one index, {index!r} (in lower case)"
            yield error(pipeline, place, what, f"of one of them: {APART}")


def unlike_tables(spec: SinkPart, tables: Iterable[Table]) -> Iterator[tuple[Table, Table | None]]:
    """Tables as which a sink can call nothing, each with None; and those whose index an earlier one has, with that one.
    Pure.

    Args:
        spec: the sink's part of the file.
        tables: that it is to keep whole.
    """
    first: dict[str, Table] = {}
    for table in tables:
        if not spec.can_name(table.name):
            yield table, None
        other = first.setdefault(spec.index_of(table.name), table) if isinstance(spec, SearchSink) else table
        if other.name != table.name:  # of two that are called the same others tell
            yield table, other


def refuse_unlike_tables(pipeline: Pipeline, sink: str, views: Iterable[View]) -> None:
    """Refuse tables of the source as which no table of a warehouse can be called.

    It is no part of ``resolve_views``: each of a warehouse's tables has a flow of its own, and where one's has always
    failed, the others go on.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        views: of that sink.

    Raises:
        ConfigError: of all of them (terminal).
    """
    spec, found = pipeline.sinks[sink], Gathering()
    for view in views if spec.form == "columns" else ():
        if not spec.can_name(view.name):
            what = f"sink {sink}: no table of Iceberg can be called {view.name!r}, as {view.table.qualified} is"
            fix = f"{APART}: a view's name has letters, digits and '_' alone"
            found.wrong.append(error(pipeline, ("sinks", sink, "tables"), what, fix))
    found.end()


def _present(pipeline: Pipeline, catalogue: Catalogue, index: int, table: str) -> None:
    """Whoever keeps all tables must not begin without one that the file names."""
    if not table.endswith(".*") and table not in catalogue.tables:
        fix = near(table, catalogue.tables) or "create it, or take it out of source.tables"
        raise error(pipeline, ("source", "tables", index), f"there is no table {table}", fix)


def _in_warehouse(pipeline: Pipeline, view: View, sink: str, path: Path) -> None:
    """What tables of a warehouse need beyond documents: they are merged by key, and Spark ignores letter case."""
    found = Gathering()
    for name in () if isinstance(view, TimedView) else view.key:  # which has a column of its own for its ids
        if name not in dict(view.columns):
            what = f"sink {sink} merges rows by key, but view {view.name} leaves out its key column {name}"
            fix = f"add {name} to `columns`, or keep the view in another kind of sink"
            found.wrong.append(error(pipeline, path, what, fix))
    objects = dict(names_of(view.tree)) if isinstance(view, JoinedView) else {"": [out for _, out in view.columns]}
    objects[""] = [*objects[""], *view.fields]
    for name in ICEBERG_COLUMNS.intersection(objects[""]):
        what = f"sink {sink}: Iceberg has a column {name} of its own"
        found.wrong.append(error(pipeline, path, what, "rename it in a view"))
    for at, names in objects.items():
        for other, name in letter_twins(names):
            what = f"sink {sink}: {other} and {name}{f' of {at}' if at else ''} are one column to Spark"
            found.wrong.append(error(pipeline, path, what, "rename one of them in a view"))
    found.end()


def _routed(pipeline: Pipeline, view: View, sink: str, column: str) -> None:
    """A document's place must follow from its id, because it can't be moved (docs/decisions/routing.md)."""
    at: Path = ("sinks", sink, "routing")
    column = present(view.table, column)
    key = ", ".join(view.key)
    if column not in view.key:
        what = f"view {view.name} has the key ({key}), and {column} is not of it"
        fix = f"choose one of ({key}), or leave `routing` out"
        if column in view.table.by_name:
            fix += ": a value that can change would leave the document at its old place as well"
        raise error(pipeline, at, f"sinks.{sink}.routing: {what}", fix)
    if len(view.key) == 1:
        what = f"{column} is the whole key of view {view.name}, by which documents are placed anyway"
        raise error(pipeline, at, f"sinks.{sink}.routing: {what}", "leave `routing` out")
