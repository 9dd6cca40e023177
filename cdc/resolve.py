"""From the pipeline file's views to resolved ones: every name is checked against the source's catalogue.

Errors name the place in the file and what was probably meant; nothing has been written anywhere by then.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Literal

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError
from cdc.pipeline import IcebergSink, Pipeline
from cdc.pipeline.checks import ICEBERG_COLUMNS
from cdc.types import supported, unsupported
from cdc.view import View

Path = tuple[str | int, ...]


def resolve_views(pipeline: Pipeline, catalogue: Catalogue, sink: str) -> list[View]:
    """The views that a sink keeps.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables as they are now.
        sink: the sink's name in the file.

    Raises:
        ConfigError: a table or column is not there, a key is not the primary key, a name is used twice (terminal).
    """
    spec = pipeline.sinks[sink]
    if spec.view_names:
        views = [resolve_view(pipeline, catalogue, name) for name in spec.view_names]
    else:
        views = _identities(pipeline, catalogue, sink, spec.tables)
    if isinstance(spec, IcebergSink):
        for view in views:
            at: Path = ("views", view.name, "columns") if spec.view_names else ("sinks", sink, "tables")
            _in_warehouse(pipeline, view, sink, at)
    return views


def resolve_view(pipeline: Pipeline, catalogue: Catalogue, name: str) -> View:
    """One view of the file.

    Raises:
        ConfigError: as ``resolve_views``.
    """
    if name not in pipeline.views:
        raise _error(pipeline, ("views",), f"there is no view {name}", near(name, pipeline.views))
    model = pipeline.views[name]
    path: Path = ("views", name)
    table = find_table(pipeline, catalogue, model.root, (*path, "root"))
    _keyed(pipeline, table, (*path, "root"))
    columns = _columns(pipeline, table, model.picks, (*path, "columns"))
    outputs = [out for _, out in columns] + list(model.fields)
    _distinct(pipeline, outputs, path, f"view {name} gives two fields the name")
    key = _key(pipeline, table, tuple(model.key or ()), (*path, "key"))
    return View(name, table, key, columns, dict(model.fields), model.where)


def find_table(pipeline: Pipeline, catalogue: Catalogue, name: str, path: Path) -> Table:
    """The captured table called ``schema.table``, or ``table`` if only one schema has it.

    Raises:
        ConfigError: none or several.
    """
    tables = list(catalogue.tables.values())
    found = [t for t in tables if t.qualified == name] or [t for t in tables if t.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        choices = " or ".join(sorted(table.qualified for table in found))
        raise _error(pipeline, path, f"{name} is ambiguous", f"write {choices}")
    names = [table.qualified for table in tables] + [table.name for table in tables]
    raise _error(pipeline, path, f"{name} is not a captured table", near(name, names) or "add it to source.tables")


def _identities(
    pipeline: Pipeline, catalogue: Catalogue, sink: str, chosen: Literal["all"] | tuple[str, ...] | None
) -> list[View]:
    """A view of all columns for each chosen table."""
    path: Path = ("sinks", sink, "tables")
    if chosen is None or chosen == "all":
        found = [(table, path) for table in catalogue.tables.values()]
    else:
        places: list[Path] = [(*path, index) for index in range(len(chosen))]
        found = [(find_table(pipeline, catalogue, name, at), at) for name, at in zip(chosen, places, strict=True)]
    _distinct(pipeline, [table.name for table, _ in found], path, f"sink {sink}: two of its views are called")
    for table, at in found:
        _keyed(pipeline, table, at)
    return [View.identity(table) for table, _ in found]


def _in_warehouse(pipeline: Pipeline, view: View, sink: str, path: Path) -> None:
    """What tables of a warehouse need beyond documents: they are merged by key, and Spark ignores letter case."""
    for name in view.key:
        if name not in dict(view.columns):
            raise _error(
                pipeline,
                path,
                f"sink {sink} merges rows by key, but view {view.name} leaves out its key column {name}",
                f"add {name} to `columns`, or keep the view in another kind of sink",
            )
    seen: dict[str, str] = {}
    for name in [out for _, out in view.columns] + list(view.fields):
        if name in ICEBERG_COLUMNS:
            raise _error(pipeline, path, f"sink {sink}: Iceberg has a column {name} of its own", "rename it in a view")
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise _error(
                pipeline,
                path,
                f"sink {sink}: {other} and {name} are one column to Spark",
                "rename one of them in a view",
            )


def _columns(
    pipeline: Pipeline, table: Table, picks: tuple[tuple[str, str], ...], path: Path
) -> tuple[tuple[str, str], ...]:
    for index, (source, _) in enumerate(picks):
        _known(pipeline, table, source, (*path, index))
    return picks or tuple((column.name, column.name) for column in supported(table).columns)


def _known(pipeline: Pipeline, table: Table, name: str, path: Path) -> None:
    if name not in table.by_name:
        raise _error(pipeline, path, f"{table.qualified} has no column {name}", near(name, table.by_name))
    if (reason := unsupported(table.by_name[name])) is not None:
        raise _error(pipeline, path, f"{table.qualified}.{name} can't be in a view: {reason}", "leave it out")


def _key(pipeline: Pipeline, table: Table, chosen: tuple[str, ...], path: Path) -> tuple[str, ...]:
    for index, name in enumerate(chosen):
        _known(pipeline, table, name, (*path, index))
    if chosen and sorted(chosen) != sorted(table.primary_key):
        # A delete names the primary key and nothing else: a document under another id could never be deleted.
        columns = ", ".join(table.primary_key)
        raise _error(pipeline, path, f"the key must be {table.qualified}'s primary key ({columns})", "leave `key` out")
    return chosen or table.primary_key


def _keyed(pipeline: Pipeline, table: Table, path: Path) -> None:
    if not table.primary_key:
        raise _error(
            pipeline,
            path,
            f"{table.qualified} has no primary key, so its changes can't be told apart",
            f"ALTER TABLE {table.qualified} ADD PRIMARY KEY (…), or REPLICA IDENTITY USING INDEX of a unique index",
        )
    for name in table.primary_key:
        if (reason := unsupported(table.by_name[name])) is not None:
            raise _error(pipeline, path, f"{table.qualified}'s key column {name}: {reason}", "use another key")


def _distinct(pipeline: Pipeline, names: Sequence[str], path: Path, what: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise _error(pipeline, path, f"{what} {name}", "rename one of them")


def near(name: str, names: Iterable[str]) -> str:
    """``did you mean x?`` for the names that look like ``name``; empty if none does."""
    close = difflib.get_close_matches(name, list(dict.fromkeys(names)), n=3)
    return f"did you mean {' or '.join(close)}?" if close else ""


def _error(pipeline: Pipeline, path: Path, what: str, fix: str) -> ConfigError:
    return pipeline.error_at(path, what, fix=fix, means="nothing was changed")
